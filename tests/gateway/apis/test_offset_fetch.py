"""OffsetFetch: commits of one group or several; deleted topics."""

from uuid import UUID

import pytest

from smq.model.errors import ErrorCode
from smq.store.rows import CommittedOffset
from smq.wire.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.gateway.coordinator_bench import CoordinatorBench
from tests.gateway.groups import make_topic

E = ErrorCode
Row = tuple[str, int, int, int, str | None, int]


def fetch(
    bench: CoordinatorBench,
    version: int,
    topics: list[tuple[str, list[int]]] | None,
    group_id: str = "g",
    topic_id: UUID | None = None,
) -> list[Row]:
    """Name, partition, offset, epoch, metadata and error of what a group has."""
    ids = {name: topic.id for name, topic in bench.coordinator.topics.catalog.by_name.items()}
    asked = [
        OffsetFetchRequestTopics(
            name=name, topic_id=topic_id or ids.get(name, UUID(int=9)), partition_indexes=each
        )
        for name, each in topics or ()
    ]
    group = OffsetFetchRequestGroup(group_id=group_id, topics=None if topics is None else asked)
    answer = bench.ask("OffsetFetch", version, OffsetFetchRequest(groups=[group]))
    [found] = answer.groups
    assert (found.group_id, found.error_code) == (group_id if version >= 8 else "", E.NONE)
    names = {each.id: name for name, each in bench.coordinator.topics.catalog.by_name.items()}
    named = [(each.name or names.get(each.topic_id, ""), each) for each in found.topics]
    return [
        (
            name,
            each.partition_index,
            each.committed_offset,
            each.committed_leader_epoch,
            each.metadata,
            each.error_code,
        )
        for name, topic in named
        for each in topic.partitions
    ]


@pytest.fixture(autouse=True)
def _committed(bench: CoordinatorBench) -> None:
    """Group g has committed two partitions of t and one of u."""
    first = make_topic(bench, "t").partition_numbers[0]
    other = make_topic(bench, "u").partition_numbers[0]
    note = CommittedOffset(42, 3, "note", 0)
    bench.store.commit_offsets("g", {first: note, first + 2: note, other: note})


@pytest.mark.parametrize("version", range(1, 11))
def test_committed_offsets_are_returned(bench: CoordinatorBench, version: int) -> None:
    epoch = 3 if version >= 5 else -1
    assert fetch(bench, version, [("t", [0, 1, 7, -1])]) == [
        ("t", 0, 42, epoch, "note", E.NONE),
        ("t", 1, -1, -1, "", E.NONE),
        ("t", 7, -1, -1, "", E.NONE),
        ("t", -1, -1, -1, "", E.NONE),
    ]


@pytest.mark.parametrize("version", [1, 8, 10])
def test_metadata_is_returned_once_for_a_repeated_partition(
    bench: CoordinatorBench, version: int
) -> None:
    """A partition that was named 19,000 times grew a request of 76 KB to an answer of 78 MB."""
    epoch = 3 if version >= 5 else -1
    found = fetch(bench, version, [("t", [0, 1] * 500), ("u", [0]), ("t", [2, 0])])
    told = [each for each in found if each[4]]
    assert told == [(name, i, 42, epoch, "note", 0) for name, i in [("t", 0), ("u", 0), ("t", 2)]]
    assert found.count(("t", 1, -1, -1, "", 0)) == 500


@pytest.mark.parametrize("version", range(2, 11))
def test_null_topics_are_all_and_none_are_none(bench: CoordinatorBench, version: int) -> None:
    rows = fetch(bench, version, None)
    assert [row[:3] for row in rows] == [("t", 0, 42), ("t", 2, 42), ("u", 0, 42)]
    assert fetch(bench, version, []) == []


@pytest.mark.parametrize("version", [1, 7, 8])
def test_a_topic_that_is_not_there_has_no_offsets(bench: CoordinatorBench, version: int) -> None:
    assert fetch(bench, version, [("none", [0])]) == [("none", 0, -1, -1, "", E.NONE)]


def test_an_id_that_is_not_there_is_an_error(bench: CoordinatorBench) -> None:
    rows = fetch(bench, 10, [("", [0])], topic_id=UUID(int=9))
    assert rows == [("", 0, -1, -1, "", E.UNKNOWN_TOPIC_ID)]


@pytest.mark.parametrize("version", [2, 7, 8, 10])
@pytest.mark.parametrize("group_id", ["none", ""])
def test_a_group_that_is_not_there_has_none(
    bench: CoordinatorBench, version: int, group_id: str
) -> None:
    rows = fetch(bench, version, [("t", [0])], group_id=group_id)
    assert rows == [("t", 0, -1, -1, "", E.NONE)]
    assert fetch(bench, version, None, group_id=group_id) == []


def test_several_groups_at_once(bench: CoordinatorBench) -> None:
    groups = [OffsetFetchRequestGroup(group_id=each, topics=None) for each in ("x", "g")]
    answer = bench.ask("OffsetFetch", 8, OffsetFetchRequest(groups=groups))
    assert [(each.group_id, len(each.topics)) for each in answer.groups] == [("x", 0), ("g", 2)]


def test_a_topic_made_again_has_none_of_the_old_ones_offsets(bench: CoordinatorBench) -> None:
    topics = bench.coordinator.topics
    topics.delete(topics.catalog.by_name["t"])
    make_topic(bench, "t")
    assert fetch(bench, 7, [("t", [0])]) == [("t", 0, -1, -1, "", E.NONE)]


@pytest.mark.parametrize("version", [7, 8, 10])
def test_offsets_of_a_deleted_topic_are_not_listed(bench: CoordinatorBench, version: int) -> None:
    """data fault 13: its offsets are forgotten some at a time."""
    topics = bench.coordinator.topics
    other = make_topic(bench, "other").partition_numbers[2]
    bench.store.commit_offsets("g", {other: CommittedOffset(9, -1, "", 0)})
    topics.delete(topics.catalog.by_name["t"])
    assert len(bench.store.committed_offsets("g")) > 1
    found = fetch(bench, version, None)
    assert [(name, offset) for name, _, offset, *_ in found] == [("u", 42), ("other", 9)]
