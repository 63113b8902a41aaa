"""Addresses as access rules name them."""

import pytest

from smq.security.addresses import is_address, neighbourhood_of, network_of, written

# As InetAddress.getHostAddress of Java 17 writes them.
WRITTEN = {
    "10.1.2.3": "10.1.2.3",
    "::1": "0:0:0:0:0:0:0:1",
    "2001:db8::1": "2001:db8:0:0:0:0:0:1",
    "2001:0DB8:0:0:0:00ff:0:A": "2001:db8:0:0:0:ff:0:a",
    "::ffff:10.1.2.3": "10.1.2.3",
    "::1.2.3.4": "0:0:0:0:0:0:102:304",
    "fe80::1%eth0": "fe80:0:0:0:0:0:0:1%eth0",
    "": "",
    "*": "*",
    "no:address": "no:address",
}


@pytest.mark.parametrize(("host", "text"), WRITTEN.items())
def test_an_address_is_written_as_java_does(host: str, text: str) -> None:
    assert written(host) == text
    assert written(text) == text


def test_a_network_of_ipv6_is_one_client() -> None:
    assert network_of("10.1.2.3") == "10.1.2.3"
    assert network_of("unix/1000") == "unix/1000"
    there = {network_of(written(f"2001:db8:1:2::{i:x}")) for i in range(9)}
    assert there == {"2001:db8:1:2"}


def test_a_name_is_no_address() -> None:
    assert [is_address(each) for each in ("10.1.2.3", "::1", "localhost", "*")] == [
        True, True, False, False,
    ]  # fmt: skip


def test_a_neighbourhood_has_many_addresses_of_one_owner() -> None:
    near = {neighbourhood_of(f"127.{i}.{i}.{i + 2}") for i in range(200)}
    assert near == {"127"}
    assert neighbourhood_of("127.0.0.1") == "127.0.0.1", "where programs of this host come from"
    assert {neighbourhood_of(f"10.1.2.{i}") for i in range(256)} == {"10.1.2"}
    assert neighbourhood_of("12.7.0.2") == "12.7.0"
    site = {neighbourhood_of(network_of(written(f"2001:db8:1:{i:x}::1"))) for i in range(99)}
    assert site == {"2001:db8:1"}


def test_a_name_that_is_no_address_stays_as_it_is() -> None:
    for name in ("unix/1000", "PLAINTEXT", "", "name 10.1.2.3", "name a:b:c:d", "10.1.2", "::1"):
        assert neighbourhood_of(name) == name
