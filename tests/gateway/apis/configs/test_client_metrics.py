"""The configs of client metrics: subscriptions, checked, kept and published."""

from typing import Any

import pytest

from gateway.apis.configs import client_metrics as module
from gateway.apis.configs.kinds import Resource
from smq.model.catalog import CLIENT_METRICS as RESOURCE
from smq.model.client_metrics import CONFIG_CHARACTERS_MAX
from smq.model.errors import ErrorCode
from tests.gateway.apis.configs.config_asker import APPEND, DELETE, SET, change, describe
from tests.gateway.coordinator_bench import CoordinatorBench

METRICS = Resource.CLIENT_METRICS


def test_a_subscription_is_set_described_published_and_deleted(bench: CoordinatorBench) -> None:
    defaults: dict[str, Any] = {
        "interval.ms": ("300000", 5, []),
        "match": ("", 5, []),
        "metrics": ("", 5, []),
    }
    assert describe(bench, METRICS, "s") == defaults
    assert change(bench, METRICS, "s", ("interval.ms", SET, " 100 "), ("metrics", SET, "*"))[0] == 0
    assert describe(bench, METRICS, "s") == defaults | {
        "interval.ms": ("100", 7, [("100", 7)]),
        "metrics": ("*", 7, [("*", 7)]),
    }
    assert bench.coordinator.topics.catalog.settings[RESOURCE] == {
        "s": {"interval.ms": "100", "metrics": "*"}
    }
    assert change(
        bench, METRICS, "s", ("interval.ms", DELETE, None), ("metrics", DELETE, None)
    ) == (
        0,
        None,
    )
    assert describe(bench, METRICS, "s") == defaults
    assert RESOURCE not in bench.coordinator.topics.catalog.settings


@pytest.mark.parametrize(
    ("name", "key", "value", "code"),
    [
        ("s", "interval.ms", "99", ErrorCode.INVALID_REQUEST),
        ("s", "interval.ms", "3600001", ErrorCode.INVALID_REQUEST),
        ("s", "interval.ms", "soon", ErrorCode.INVALID_CONFIG),
        ("s", "match", "client_id", ErrorCode.INVALID_CONFIG),
        ("s", "metrics", "a" * (CONFIG_CHARACTERS_MAX + 1), ErrorCode.INVALID_CONFIG),
        ("s", "no.such.thing", "1", ErrorCode.INVALID_REQUEST),
        ("", "interval.ms", "100", ErrorCode.INVALID_REQUEST),
        ("s" * 256, "interval.ms", "100", ErrorCode.INVALID_REQUEST),
    ],
)
def test_an_invalid_subscription_is_refused(
    bench: CoordinatorBench, name: str, key: str, value: str, code: ErrorCode
) -> None:
    assert change(bench, METRICS, name, (key, SET, value))[0] == code
    assert not bench.coordinator.settings.names(RESOURCE)


def test_there_are_at_most_so_many(
    bench: CoordinatorBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SUBSCRIPTIONS_MAX", 1)
    assert change(bench, METRICS, "s", ("metrics", SET, "a."))[0] == 0
    assert change(bench, METRICS, "s", ("metrics", SET, "b."))[0] == 0
    code, _ = change(bench, METRICS, "more", ("metrics", SET, "a."))
    assert code == ErrorCode.POLICY_VIOLATION
    assert change(bench, METRICS, "more", ("metrics", DELETE, None))[0] == 0


def test_nothing_is_appended_as_in_kafka(bench: CoordinatorBench) -> None:
    code, _ = change(bench, METRICS, "s", ("metrics", APPEND, "a."))
    assert code == ErrorCode.INVALID_CONFIG
