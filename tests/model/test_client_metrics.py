"""Subscriptions to metrics: the meaning of their configs, and their clients."""

import pytest

from smq.model.client_metrics import (
    INTERVAL_MS_DEFAULT,
    ClientFacts,
    Subscription,
    WantedMetrics,
    wanted_of,
)

CLIENT = ClientFacts("an-id", "app-1", "apache-kafka-java", "4.3.1", "10.0.0.9", "4711")


def wanted(*configs: dict[str, str]) -> WantedMetrics:
    return wanted_of((Subscription.of(each) for each in configs), CLIENT)


def test_without_subscriptions_nothing_is_wanted() -> None:
    assert wanted() == wanted({}) == WantedMetrics((), INTERVAL_MS_DEFAULT)


def test_subscriptions_add_up_at_the_shortest_interval() -> None:
    first = {"metrics": "b., a.", "interval.ms": "5000"}
    assert wanted(first, {"metrics": "c.,b.", "interval.ms": "700"}) == WantedMetrics(
        ("a.", "b.", "c."), 700
    )
    assert wanted(first, {"metrics": "*"}) == WantedMetrics(("*",), 5000)


@pytest.mark.parametrize(
    ("match", "is_for"),
    [
        ("client_id=app-.*", True),
        ("client_id=app", False),
        (" client_id = app-1 , client_source_address=10[.].* ", True),
        ("client_id=app-1,client_source_address=11.*", False),
        ("client_instance_id=an-id", True),
        ("client_software_name=apache-.*,client_software_version=4[.].*", True),
        ("client_software_name=librdkafka", False),
        ("client_source_port=4711", True),
        ("client_id=b,client_id=app-1", True),
    ],
)
def test_every_clause_must_fit(match: str, is_for: bool) -> None:
    assert Subscription.of({"match": match}).is_for(CLIENT) == is_for


@pytest.mark.parametrize(
    ("configs", "words"),
    [
        ({"interval.ms": "soon"}, "Not a number"),
        ({"match": "client_id"}, "Illegal client matching pattern: client_id"),
        ({"match": "client_id=("}, "Illegal client matching pattern"),
        ({"match": "client_id=a=b"}, "Illegal client matching pattern"),
        ({"match": "colour=red"}, "Illegal client matching pattern"),
    ],
)
def test_other_values_are_refused(configs: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Subscription.of(configs)
