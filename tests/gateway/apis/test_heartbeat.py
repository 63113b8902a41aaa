"""Heartbeat keeps a member, tells it to join again, and knows strangers."""

from typing import Any

import pytest

from smq.model.errors import ErrorCode
from smq.wire.generated.heartbeat import HeartbeatRequest
from tests.gateway.coordinator_bench import CoordinatorBench
from tests.gateway.groups import join_request, stable_member

E = ErrorCode


def request(member_id: str, **fields: Any) -> HeartbeatRequest:
    plain: dict[str, Any] = {"group_id": "g", "generation_id": 1, "member_id": member_id}
    return HeartbeatRequest(**plain | fields)


@pytest.mark.parametrize("version", range(5))
def test_a_member_is_heard_of(bench: CoordinatorBench, version: int) -> None:
    member_id = stable_member(bench)
    for _ in range(3):
        bench.wait(9000)
        assert bench.ask("Heartbeat", version, request(member_id)).error_code == E.NONE


@pytest.mark.parametrize(
    ("version", "wrong", "error"),
    [
        (0, {"group_id": ""}, E.INVALID_GROUP_ID),
        (0, {"group_id": "none"}, E.UNKNOWN_MEMBER_ID),
        (0, {"member_id": "stranger"}, E.UNKNOWN_MEMBER_ID),
        (0, {"generation_id": 0}, E.ILLEGAL_GENERATION),
        (3, {"member_id": "old", "group_instance_id": "i"}, E.FENCED_INSTANCE_ID),
    ],
)
def test_a_wrong_heartbeat_gets_its_error_code(
    bench: CoordinatorBench, version: int, wrong: dict[str, Any], error: ErrorCode
) -> None:
    member_id = stable_member(bench, group_instance_id="i")
    assert (
        bench.ask("Heartbeat", version, request(**{"member_id": member_id} | wrong)).error_code
        == error
    )


def test_a_heartbeat_during_a_rebalance_gets_rebalance_in_progress(bench: CoordinatorBench) -> None:
    member_id = stable_member(bench)
    bench.ask("JoinGroup", 3, join_request())
    answer = bench.ask("Heartbeat", 4, request(member_id))
    assert answer.error_code == E.REBALANCE_IN_PROGRESS
