"""Addresses of clients, written as Kafka on Java writes them, so that access rules that name one
find it.

    2001:db8::1        2001:db8:0:0:0:0:0:1     (Inet6Address.getHostAddress)
    ::ffff:10.0.0.1    10.0.0.1                 what a client by IPv4 has at a listener on [::]
"""

import ipaddress
import re

NETWORK_BITS = 64  # What one host of IPv6 may have addresses of, as many as it likes.
LOOPBACK = "127.0.0.1"
_IN_NETWORK = re.compile(r"(127|\d+\.\d+\.\d+)\.[\d.]+|([0-9a-f]+:[0-9a-f]+:[0-9a-f]+):[0-9a-f]+")


def written(host: str) -> str:
    """An address as rules name it; what is no address stays as it is."""
    if ":" not in host:
        return host
    text, sign, zone = host.partition("%")
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    words = (int(each, 16) for each in address.exploded.split(":"))
    return ":".join(f"{each:x}" for each in words) + sign + zone


def is_address(text: str) -> bool:
    """Whether it is an address of IPv4 or IPv6."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def network_of(host: str) -> str:
    """What is bounded as one client: an address of IPv4, a network of IPv6. Of what `written`
    returns."""
    if host.count(":") != 7:
        return host
    return ":".join(host.split(":")[: NETWORK_BITS // 16])


def neighbourhood_of(address: str) -> str:
    """What one owner may well have many addresses of: the first 24 bits of an address of IPv4, 48
    of IPv6; of this host all but the one that its programs come from. Of what `network_of` returns;
    what is no address stays as it is."""
    found = None if address == LOOPBACK else _IN_NETWORK.fullmatch(address)
    return address if found is None else found[1] or found[2]
