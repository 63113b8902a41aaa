"""DescribeClientQuotas and AlterClientQuotas, and what quotas do to changes of topics."""

from typing import Any

import pytest

from smq.coordinator import settings
from smq.model.errors import ErrorCode
from smq.wire.generated.alter_client_quotas import AlterClientQuotasRequest
from smq.wire.generated.create_topics import CreatableTopic, CreateTopicsRequest
from smq.wire.generated.describe_client_quotas import DescribeClientQuotasRequest
from tests.gateway.coordinator_bench import CoordinatorBench
from tests.oracle.dialogues.quotas import Part, entry

RATE = "controller_mutation_rate"


def alter(bench: CoordinatorBench, parts: list[Part], *ops: tuple[str, float | None]) -> int:
    request = AlterClientQuotasRequest(entries=[entry(parts, *ops)])
    [result] = bench.ask("AlterClientQuotas", 1, request).entries
    return int(result.error_code)


def described(bench: CoordinatorBench) -> list[tuple[Any, Any]]:
    request = DescribeClientQuotasRequest(components=[], strict=False)
    return [
        (
            [(part.entity_type, part.entity_name) for part in each.entity],
            {value.key: value.value for value in each.values},
        )
        for each in bench.ask("DescribeClientQuotas", 1, request).entries
    ]


def create(bench: CoordinatorBench, version: int, name: str, count: int) -> tuple[int, int]:
    topic = CreatableTopic(name=name, num_partitions=count, replication_factor=1)
    answer = bench.ask("CreateTopics", version, CreateTopicsRequest(topics=[topic]))
    return answer.topics[0].error_code, answer.throttle_time_ms


def test_quotas_outlive_the_coordinator_and_are_published(bench: CoordinatorBench) -> None:
    assert alter(bench, [("client-id", None), ("user", "u")], (RATE, 0.5)) == 0
    bench.store.commit()
    bench.restart()
    assert described(bench) == [([("client-id", None), ("user", "u")], {RATE: 0.5})]
    published = bench.coordinator.topics.catalog.settings
    assert [*published["quota"].values()] == [{RATE: "0.5"}]
    assert alter(bench, [("client-id", None), ("user", "u")], (RATE, None)) == 0
    assert described(bench) == []
    assert bench.coordinator.topics.catalog.settings == {}


def test_the_parts_of_an_entity_and_its_values_stand_in_a_fixed_order(
    bench: CoordinatorBench,
) -> None:
    """Data fault 37."""
    values = ("request_percentage", "consumer_byte_rate", RATE, "producer_byte_rate")
    request = AlterClientQuotasRequest(
        entries=[entry([("user", "u"), ("client-id", "c")], *((name, 5.0) for name in values))]
    )
    [altered] = bench.ask("AlterClientQuotas", 1, request).entries
    assert [part.entity_type for part in altered.entity] == ["client-id", "user"]
    [(parts, quotas)] = described(bench)
    assert parts == [("client-id", "c"), ("user", "u")]
    order = ["producer_byte_rate", "consumer_byte_rate", RATE, "request_percentage"]
    assert [*quotas] == order


@pytest.mark.parametrize(
    ("parts", "op"),
    [
        ([], (RATE, 1.0)),
        ([("host", "h")], (RATE, 1.0)),
        ([("user", "")], (RATE, 1.0)),
        ([("user", "u" * 256)], (RATE, 1.0)),
        ([("user", "a"), ("user", "b")], (RATE, 1.0)),
        ([("ip", "nowhere")], ("connection_creation_rate", 1.0)),
        ([("user", "u")], (RATE, 0.0)),
        ([("user", "u")], ("coffee", 1.0)),
    ],
)
def test_an_invalid_quota_is_refused(
    bench: CoordinatorBench, parts: list[Part], op: tuple[str, float]
) -> None:
    assert alter(bench, parts, op) == ErrorCode.INVALID_REQUEST
    assert described(bench) == []


def test_creating_partitions_beyond_the_quota_is_throttled(bench: CoordinatorBench) -> None:
    alter(bench, [("client-id", "client")], (RATE, 1.0))
    assert create(bench, 7, "one", 20) == (0, 10_001)
    assert create(bench, 7, "one", 20)[0] == ErrorCode.TOPIC_ALREADY_EXISTS
    assert create(bench, 7, "two", 1) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, 10_001)
    assert create(bench, 5, "two", 1) == (0, 11_001)
    bench.wait(11_001)
    assert create(bench, 7, "three", 1)[0] == 0


def test_quotas_beyond_the_room_for_them_are_refused_one_by_one(
    bench: CoordinatorBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "BYTES_MAX", 150)
    entries = [entry([("user", name)], (RATE, 1.0)) for name in "abc"]
    request = AlterClientQuotasRequest(entries=entries)
    answers = bench.ask("AlterClientQuotas", 1, request).entries
    assert [each.error_code for each in answers] == [0, 0, ErrorCode.POLICY_VIOLATION]
    assert "may take 150 bytes" in answers[2].error_message
    assert len(described(bench)) == 2
