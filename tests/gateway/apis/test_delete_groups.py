"""DeleteGroups: only an empty group goes, and takes its offsets along."""

import pytest

from smq.model.errors import ErrorCode
from smq.store.rows import CommittedOffset
from smq.wire.generated.delete_groups import DeleteGroupsRequest
from smq.wire.generated.leave_group import LeaveGroupRequest
from tests.gateway.coordinator_bench import CoordinatorBench
from tests.gateway.groups import make_topic, stable_member

E = ErrorCode


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
    bench.ask("LeaveGroup", 0, LeaveGroupRequest(group_id="g", member_id=member_id))
    assert delete(bench, version, "g") == [("g", E.NONE)]
    assert delete(bench, version, "g") == [("g", E.GROUP_ID_NOT_FOUND)]
    assert bench.store.committed_offsets("g") == {}
