"""OffsetCommit: commits of members and others, and which error goes where."""

from typing import Any
from uuid import UUID

import pytest

from smq.model.errors import ErrorCode
from smq.store.rows import CommittedOffset
from smq.wire.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.gateway.coordinator_bench import CoordinatorBench
from tests.gateway.groups import make_topic, stable_member

E = ErrorCode


def topic(
    bench: CoordinatorBench, *partitions: OffsetCommitRequestPartition
) -> OffsetCommitRequestTopic:
    found = bench.coordinator.topics.catalog.by_name["t"]
    return OffsetCommitRequestTopic(name="t", topic_id=found.id, partitions=partitions)


def partition(index: int = 0, **fields: Any) -> OffsetCommitRequestPartition:
    plain: dict[str, Any] = {
        "committed_offset": 42,
        "committed_leader_epoch": 3,
        "committed_metadata": "note",
    }
    return OffsetCommitRequestPartition(partition_index=index, **plain | fields)


def commit(bench: CoordinatorBench, version: int, **fields: Any) -> list[int]:
    """The errors of a commit that is fine but for `fields`, one for each partition."""
    plain: dict[str, Any] = {
        "group_id": "g",
        "generation_id_or_member_epoch": -1,
    }
    if "topics" not in fields:
        plain["topics"] = [topic(bench, partition())]
    answer = bench.ask("OffsetCommit", version, OffsetCommitRequest(**plain | fields))
    return [each.error_code for of_topic in answer.topics for each in of_topic.partitions]


@pytest.mark.parametrize("version", range(2, 11))
def test_a_committed_offset_is_stored(bench: CoordinatorBench, version: int) -> None:
    number = make_topic(bench).partition_numbers[0]
    member_id = stable_member(bench)
    assert commit(bench, version, generation_id_or_member_epoch=1, member_id=member_id) == [E.NONE]
    epoch = 3 if version >= 6 else -1
    expected = CommittedOffset(42, epoch, "note", bench.now.monotonic_ms, None)
    assert bench.store.committed_offsets("g") == {number: expected}


def test_somebody_from_outside_makes_the_group(bench: CoordinatorBench) -> None:
    make_topic(bench)
    assert commit(bench, 8) == [E.NONE]
    assert commit(bench, 8, group_id="") == [E.NONE]
    assert {group.group_id for group in bench.coordinator.groups} == {"g", ""}


def test_a_retention_that_the_client_names_is_kept(bench: CoordinatorBench) -> None:
    make_topic(bench)
    for retention_ms, expire_ms in ((5000, bench.now.monotonic_ms + 5000), (2**63 - 1, 2**63 - 1)):
        commit(bench, 4, retention_time_ms=retention_ms)
        [committed] = bench.store.committed_offsets("g").values()
        assert committed.expire_ms == expire_ms


@pytest.mark.parametrize(
    ("version", "wrong", "error"),
    [
        (2, {"generation_id_or_member_epoch": 2}, E.ILLEGAL_GENERATION),
        (2, {"member_id": "stranger"}, E.UNKNOWN_MEMBER_ID),
        (2, {"member_id": "", "generation_id_or_member_epoch": -1}, E.UNKNOWN_MEMBER_ID),
        (7, {"group_instance_id": "i"}, E.UNKNOWN_MEMBER_ID),
        (8, {"group_id": "none"}, E.ILLEGAL_GENERATION),
        (9, {"group_id": "none"}, E.GROUP_ID_NOT_FOUND),
    ],
)
def test_a_group_error_is_returned_for_every_partition(
    bench: CoordinatorBench, version: int, wrong: dict[str, Any], error: ErrorCode
) -> None:
    make_topic(bench)
    member = {"generation_id_or_member_epoch": 1, "member_id": stable_member(bench)}
    topics = [topic(bench, partition(0), partition(1))]
    assert commit(bench, version, **member | {"topics": topics} | wrong) == [error] * 2
    assert bench.store.committed_offsets("g") == {}


def test_a_partition_error_is_returned_for_that_partition_only(bench: CoordinatorBench) -> None:
    make_topic(bench)
    topics = [
        OffsetCommitRequestTopic(name="none", partitions=[partition()]),
        topic(
            bench,
            partition(3),
            partition(-1),
            partition(0, committed_metadata="m" * 4097),
            partition(1, committed_metadata="m" * 4096),
            partition(2, committed_metadata=None, committed_offset=-7),
        ),
    ]
    unknown = E.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(bench, 8, topics=topics) == [
        unknown,
        unknown,
        unknown,
        E.OFFSET_METADATA_TOO_LARGE,
        E.NONE,
        E.NONE,
    ]
    assert [each.metadata for each in bench.store.committed_offsets("g").values()] == [
        "m" * 4096,
        "",
    ]


def test_a_topic_without_partitions_is_left_out(bench: CoordinatorBench) -> None:
    make_topic(bench)
    request = OffsetCommitRequest(group_id="g", topics=[topic(bench)])
    assert bench.ask("OffsetCommit", 8, request).topics == []


def test_an_unknown_id_is_an_unknown_topic_id(bench: CoordinatorBench) -> None:
    topics = [OffsetCommitRequestTopic(topic_id=UUID(int=9), partitions=[partition()])]
    assert commit(bench, 10, topics=topics) == [E.UNKNOWN_TOPIC_ID]
