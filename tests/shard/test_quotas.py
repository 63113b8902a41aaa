"""Clients with quotas in a shard, and how long each must wait."""

from smq.model.client_quotas import (
    CLIENT,
    CONNECTIONS,
    CONSUME,
    IP,
    PRODUCE,
    REQUEST_TIME,
    USER,
    key_of,
)
from smq.shard.quotas import KNOWN_MAX, THROTTLE_TIME_MS_MAX, ClientQuotas

SLOW = {
    key_of({CLIENT: "slow"}): {PRODUCE: "1000.0", CONSUME: "2000.0", REQUEST_TIME: "10.0"},
    key_of({IP: "10.0.0.1"}): {CONNECTIONS: "1.0"},
}


def test_only_who_has_quotas_waits() -> None:
    quotas = ClientQuotas()
    quotas.take(SLOW)
    assert quotas.is_on
    assert quotas.of("u", "fast") is None
    limits = quotas.of("u", "slow")
    assert limits is not None
    assert limits.produced(1000, 0) == 0
    assert limits.produced(1000, 0) == 1001
    assert limits.fetched(2000, 0) == 0
    assert limits.fetched(1000, 0) == 501
    assert limits.worked(10 * 10_000_000, 0) == 0
    assert limits.worked(10_000_000, 0) == 101
    assert limits.worked(10**12, 0) == THROTTLE_TIME_MS_MAX


def test_clients_of_one_id_share_what_they_may_use_and_a_change_keeps_what_is_owed() -> None:
    quotas = ClientQuotas()
    quotas.take(SLOW)
    one, other = quotas.of("u", "slow"), quotas.of("u", "slow")
    assert one is other
    assert one is not None
    one.produced(3000, 0)
    version = quotas.version
    quotas.take(dict(SLOW))
    assert quotas.version == version
    quotas.take({key_of({CLIENT: "slow"}): {PRODUCE: "500.0"}})
    assert quotas.version == version + 1
    limits = quotas.of("u", "slow")
    assert limits is not None
    assert limits.produced(0, 0) == 4001
    assert limits.fetched(10**9, 0) == limits.worked(10**12, 0) == 0


def test_users_with_clients_of_one_id_have_quotas_of_their_own() -> None:
    quotas = ClientQuotas()
    quotas.take({key_of({USER: "u"}): {PRODUCE: "1000.0"}, key_of({USER: None}): {PRODUCE: "9.0"}})
    one, other = quotas.of("u", "c"), quotas.of("v", "c")
    assert one is not None
    assert other is not None
    assert one.produced(2000, 0) == 1001
    assert other.produced(9, 0) == 0
    assert quotas.of("u", "another") is not one
    of_u = quotas.of("u", "another")
    assert of_u is not None
    assert of_u.produced(0, 0) == 1001


def test_an_address_that_connects_too_often_waits() -> None:
    quotas = ClientQuotas()
    quotas.take(SLOW)
    assert quotas.connected("10.0.0.1", 0) == 0
    assert quotas.connected("10.0.0.1", 0) == 1001
    assert quotas.connected("10.0.0.2", 0) == 0


def test_names_that_clients_think_of_do_not_grow_it() -> None:
    quotas = ClientQuotas()
    quotas.take(SLOW)
    for number in range(KNOWN_MAX + 10):
        quotas.of("u", str(number))
    assert len(quotas._known) <= KNOWN_MAX
