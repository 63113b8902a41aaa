"""Which quota applies to a client: Kafka's precedence."""

import math

import pytest

from smq.model.client_quotas import (
    CLIENT,
    CONNECTIONS,
    IP,
    MUTATIONS,
    PRODUCE,
    USER,
    Entity,
    connection_limit_of,
    entity_of,
    key_of,
    limit_of,
    names_of,
    problem_of,
)

IN_ORDER: tuple[Entity, ...] = (
    {USER: "u", CLIENT: "c"},
    {USER: "u", CLIENT: None},
    {USER: "u"},
    {USER: None, CLIENT: "c"},
    {USER: None, CLIENT: None},
    {USER: None},
    {CLIENT: "c"},
    {CLIENT: None},
)


def test_the_first_that_has_one_holds() -> None:
    quotas = {key_of(entity): {PRODUCE: str(float(value))} for value, entity in enumerate(IN_ORDER)}
    for value, entity in enumerate(IN_ORDER):
        limit = limit_of(quotas, PRODUCE, "u", "c")
        assert limit is not None
        assert limit.value == value
        del quotas[key_of(entity)]
    assert limit_of(quotas, PRODUCE, "u", "c") is None
    other = {key_of({CLIENT: "d"}): {PRODUCE: "1.0"}, key_of({USER: "v"}): {PRODUCE: "1.0"}}
    assert limit_of(other, PRODUCE, "u", "c") is None


@pytest.mark.parametrize(
    ("entity", "is_bound"),
    [
        ({CLIENT: None}, False),
        ({USER: None, CLIENT: None}, False),
        ({USER: "u", CLIENT: None}, False),
        ({USER: "u"}, True),
        ({USER: None}, True),
    ],
)
def test_a_client_without_an_id_is_no_default_client(entity: Entity, *, is_bound: bool) -> None:
    """As Apache Kafka 4.3.1 answered, with an empty client id and with none."""
    quotas = {key_of(entity): {PRODUCE: "5"}}
    assert (limit_of(quotas, PRODUCE, "u", "") is not None) == is_bound
    assert limit_of(quotas, PRODUCE, "u", "c") is not None


@pytest.mark.parametrize(
    ("entity", "shared_by_clients", "shared_by_users"),
    [
        ({USER: None}, True, False),
        ({CLIENT: None}, False, True),
        ({USER: None, CLIENT: None}, False, False),
    ],
    ids=["user", "client", "both"],
)
def test_clients_share_a_quota_as_its_entity_says(
    entity: Entity, shared_by_clients: bool, shared_by_users: bool
) -> None:
    quotas = {key_of(entity): {PRODUCE: "1.0"}}
    limit = limit_of(quotas, PRODUCE, "u", "c")
    assert limit is not None
    assert (limit == limit_of(quotas, PRODUCE, "u", "d")) == shared_by_clients
    assert (limit == limit_of(quotas, PRODUCE, "v", "c")) == shared_by_users


def test_addresses_have_a_default() -> None:
    quotas = {key_of({IP: None}): {CONNECTIONS: "5.0"}, key_of({IP: "::1"}): {CONNECTIONS: "0.0"}}
    assert connection_limit_of(quotas, "::1") == connection_limit_of(quotas, "0:0:0:0:0:0:0:1") == 0
    assert connection_limit_of(quotas, "10.0.0.1") == 5
    assert connection_limit_of({}, "::1") is None


def test_an_entity_is_its_key() -> None:
    entity = {USER: "u", CLIENT: None}
    assert entity_of(key_of(entity)) == entity
    assert key_of({CLIENT: None, USER: "u"}) == key_of(entity)
    assert names_of({IP: "1", USER: "u"}) == names_of({}) == names_of({"host": "h"}) == ()


@pytest.mark.parametrize(
    ("name", "value", "is_good"),
    [
        (PRODUCE, 1.0, True),
        (PRODUCE, 0.5, False),
        (PRODUCE, 0.0, False),
        (PRODUCE, math.nan, False),
        (PRODUCE, math.inf, False),
        (MUTATIONS, 0.5, True),
        (CONNECTIONS, 0.0, True),
        (CONNECTIONS, -1.0, False),
    ],
)
def test_values_that_are_none_are_refused(name: str, value: float, is_good: bool) -> None:
    assert bool(problem_of(name, value)) != is_good
