"""DeleteGroups: only an empty group goes, and takes its offsets along."""

from types import SimpleNamespace
from typing import Any

import pytest

from gateway.apis.delete_groups import handle
from smq.coordinator.group_events import Commit
from smq.coordinator.offsets import DELETED_A_STEP
from smq.model.errors import BrokerError, ErrorCode
from smq.security.rights import EVERYTHING
from smq.store.rows import CommittedOffset
from smq.wire.generated.delete_groups import DeleteGroupsRequest
from smq.wire.generated.describe_groups import DescribeGroupsRequest
from smq.wire.generated.leave_group import LeaveGroupRequest, MemberIdentity
from smq.wire.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.gateway.coordinator_bench import CoordinatorBench
from tests.gateway.groups import make_topic, stable_member
from tests.oracle.dialogues.offset_deletion import deletion

E = ErrorCode


def asked_of(bench: CoordinatorBench) -> Any:
    """What the handler needs of a request's surroundings."""
    return SimpleNamespace(coordinator=bench.coordinator, now=bench.now, rights=EVERYTHING)


def delete(bench: CoordinatorBench, version: int, *names: str) -> list[tuple[str, int]]:
    answer = bench.ask("DeleteGroups", version, DeleteGroupsRequest(groups_names=names))
    return [(each.group_id, each.error_code) for each in answer.results]


@pytest.mark.parametrize("version", range(3))
def test_an_empty_group_goes_and_takes_its_offsets_along(
    bench: CoordinatorBench, version: int
) -> None:
    number = make_topic(bench).partition_numbers[0]
    member_id = stable_member(bench)
    bench.store.commit_offsets("g", {number: CommittedOffset(1, -1, "", 0)})
    assert delete(bench, version, "g", "x") == [
        ("g", E.NON_EMPTY_GROUP),
        ("x", E.GROUP_ID_NOT_FOUND),
    ]
    members = [MemberIdentity(member_id=member_id)]
    bench.ask("LeaveGroup", 0, LeaveGroupRequest(group_id="g", members=members))
    assert delete(bench, version, "g") == [("g", E.NONE)]
    assert delete(bench, version, "g") == [("g", E.GROUP_ID_NOT_FOUND)]
    assert bench.store.committed_offsets("g") == {}


def test_a_group_with_many_offsets_is_deleted_in_steps_and_refuses_requests_meanwhile(
    bench: CoordinatorBench,
) -> None:
    """data fault 13: 100,000 offsets were deleted by one statement, which held the coordinator."""
    groups, context = bench.coordinator.groups, asked_of(bench)
    topic = make_topic(bench, partitions=3 * DELETED_A_STEP)
    offsets = {number: CommittedOffset(1, -1, "", 0) for number in topic.partition_numbers}
    bench.store.commit_offsets("g", offsets)
    groups.handle("g", Commit("", None, -1), context.now)
    parts = handle(DeleteGroupsRequest(groups_names=["g", "x"]), context)
    left = []
    answered: list[tuple[str, int]] = []
    for part in parts:
        answered += [(each.group_id, each.error_code) for each in part.results]
        left.append(len(bench.store.committed_offsets("g")))
        if not answered:
            with pytest.raises(BrokerError, match="COORDINATOR_LOAD_IN_PROGRESS"):
                groups.handle("g", Commit("", None, -1), context.now)
            assert bench.coordinator.offsets.next_wake_ms() == 0
            bench.coordinator.offsets.tick(context.now)
            groups.invariants()
    assert left == [2 * DELETED_A_STEP, DELETED_A_STEP, 0, 0]
    assert answered == [("g", E.NONE), ("x", E.GROUP_ID_NOT_FOUND)]
    with pytest.raises(BrokerError, match="GROUP_ID_NOT_FOUND"):
        groups.find("g")


def test_a_group_goes_though_its_asker_has_gone(bench: CoordinatorBench) -> None:
    groups, context = bench.coordinator.groups, asked_of(bench)
    topic = make_topic(bench, partitions=2 * DELETED_A_STEP)
    offsets = {number: CommittedOffset(1, -1, "", 0) for number in topic.partition_numbers}
    bench.store.commit_offsets("g", offsets)
    groups.handle("g", Commit("", None, -1), context.now)
    parts = handle(DeleteGroupsRequest(groups_names=["g"]), context)
    next(parts)
    parts.close()  # type: ignore[attr-defined]
    while "g" in groups.deleting:
        bench.coordinator.offsets.tick(context.now)
    assert not bench.store.has_offsets("g")
    groups.handle("g", Commit("", None, -1), context.now)


@pytest.mark.parametrize("version", [1, 2, 7, 8, 9])
def test_offset_fetch_is_refused_while_a_group_is_being_deleted(
    bench: CoordinatorBench, version: int
) -> None:
    """Data fault 13, its kind: OffsetFetch told the half that was left, without an error."""
    groups, context = bench.coordinator.groups, asked_of(bench)
    topic = make_topic(bench, partitions=2 * DELETED_A_STEP)
    offsets = {number: CommittedOffset(1, -1, "", 0) for number in topic.partition_numbers}
    bench.store.commit_offsets("g", offsets)
    groups.handle("g", Commit("", None, -1), context.now)
    parts = handle(DeleteGroupsRequest(groups_names=["g"]), context)
    next(parts)
    loading = E.COORDINATOR_LOAD_IN_PROGRESS
    last = 2 * DELETED_A_STEP - 1
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[last])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])
    [told] = bench.ask("OffsetFetch", version, request).groups
    if version == 1:
        [row] = told.topics[0].partitions
        assert (row.committed_offset, row.error_code) == (-1, loading)
    else:
        assert (list(told.topics), told.error_code) == ([], loading)
    assert bench.ask("OffsetDelete", 0, deletion("g", ("t", last))).error_code == loading
    [group] = bench.ask("DescribeGroups", 5, DescribeGroupsRequest(groups=["g"])).groups
    assert group.error_code == loading
