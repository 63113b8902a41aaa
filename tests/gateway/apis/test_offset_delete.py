"""OffsetDelete: a group forgets offsets of what none of its members reads."""

import pytest

from smq.model.errors import ErrorCode
from smq.store.rows import CommittedOffset
from smq.wire.generated.join_group import JoinGroupRequestProtocol
from smq.wire.generated.offset_delete import OffsetDeleteRequest
from tests.gateway.coordinator_bench import CoordinatorBench
from tests.gateway.groups import make_topic, stable_member
from tests.oracle.dialogues.offset_deletion import deletion, read

E = ErrorCode


def delete(bench: CoordinatorBench, request: OffsetDeleteRequest) -> list[tuple[str, int, int]]:
    answer = bench.ask("OffsetDelete", 0, request)
    assert answer.error_code == E.NONE
    return [
        (topic.name, each.partition_index, each.error_code)
        for topic in answer.topics
        for each in topic.partitions
    ]


def refusal(bench: CoordinatorBench, group: str) -> int:
    answer = bench.ask("OffsetDelete", 0, deletion(group, ("t", 0)))
    assert not answer.topics
    return int(answer.error_code)


def reads(topic: str) -> list[JoinGroupRequestProtocol]:
    [(name, said)] = read(topic).items()
    return [JoinGroupRequestProtocol(name=name, metadata=said)]


def test_only_what_is_asked_for_is_forgotten(bench: CoordinatorBench) -> None:
    numbers = make_topic(bench).partition_numbers
    offsets = dict.fromkeys(numbers, CommittedOffset(1, -1, "", 0))
    stable_member(bench, protocols=reads("other"))
    bench.store.commit_offsets("g", offsets)
    bench.store.commit_offsets("h", offsets)
    asked = deletion("g", ("t", 0), ("t", 1), ("t", 9), ("t", -1), ("none", 0))
    assert delete(bench, asked) == [
        ("t", 9, E.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", -1, E.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 0, E.NONE),
        ("t", 1, E.NONE),
        ("none", 0, E.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert set(bench.store.committed_offsets("g")) == {numbers[2]}
    assert set(bench.store.committed_offsets("h")) == set(numbers)
    assert delete(bench, deletion("g", ("t", 0))) == [("t", 0, E.NONE)], "it has none: no error"


@pytest.mark.parametrize("said", [read("t")["range"], b"", b"\0", b"\0\0\0\0\0\1", b"\0\0" * 400])
def test_offsets_of_a_topic_that_a_member_may_read_are_not_deleted(
    bench: CoordinatorBench, said: bytes
) -> None:
    [number, *_] = make_topic(bench).partition_numbers
    stable_member(bench, protocols=[JoinGroupRequestProtocol(name="range", metadata=said)])
    bench.store.commit_offsets("g", {number: CommittedOffset(1, -1, "", 0)})
    is_read_by_nobody = said == b"\0\0" * 400  # Of no topics: what follows is not looked at.
    expected = E.NONE if is_read_by_nobody else E.GROUP_SUBSCRIBED_TO_TOPIC
    assert delete(bench, deletion("g", ("t", 0))) == [("t", 0, expected)]
    assert bool(bench.store.committed_offsets("g")) == (not is_read_by_nobody)


def test_groups_that_are_refused_as_a_whole(bench: CoordinatorBench) -> None:
    make_topic(bench)
    stable_member(bench, "workers", protocol_type="connect")
    assert refusal(bench, "workers") == E.NON_EMPTY_GROUP
    assert refusal(bench, "nobody") == E.GROUP_ID_NOT_FOUND
    assert refusal(bench, "") == E.INVALID_GROUP_ID
