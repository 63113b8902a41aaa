"""SyncGroup gives an assignment to members of a stable group, and to no other client."""

from typing import Any

import pytest

from smq.model.errors import ErrorCode
from smq.wire.generated.sync_group import SyncGroupRequest
from tests.gateway.coordinator_bench import CoordinatorBench
from tests.gateway.groups import stable_member

E = ErrorCode


def request(member_id: str, **fields: Any) -> SyncGroupRequest:
    plain: dict[str, Any] = {
        "group_id": "g",
        "generation_id": 1,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocol_name": "range",
    }
    return SyncGroupRequest(**plain | fields)


@pytest.mark.parametrize("version", range(6))
def test_a_member_of_a_stable_group_gets_its_assignment(
    bench: CoordinatorBench, version: int
) -> None:
    answer = bench.ask("SyncGroup", version, request(stable_member(bench)))
    assert (answer.error_code, answer.assignment) == (E.NONE, b"work")
    named = (answer.protocol_type, answer.protocol_name)
    assert named == (("consumer", "range") if version >= 5 else (None, None))


@pytest.mark.parametrize(
    ("version", "wrong", "error"),
    [
        (0, {"group_id": ""}, E.INVALID_GROUP_ID),
        (0, {"group_id": "none"}, E.UNKNOWN_MEMBER_ID),
        (0, {"member_id": "stranger"}, E.UNKNOWN_MEMBER_ID),
        (0, {"generation_id": 2}, E.ILLEGAL_GENERATION),
        (3, {"group_instance_id": "i"}, E.UNKNOWN_MEMBER_ID),
        (5, {"protocol_type": None}, E.INCONSISTENT_GROUP_PROTOCOL),
        (5, {"protocol_name": None}, E.INCONSISTENT_GROUP_PROTOCOL),
        (5, {"protocol_name": "rr"}, E.INCONSISTENT_GROUP_PROTOCOL),
        (5, {"protocol_type": "connect"}, E.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_a_wrong_sync_gets_its_error_code(
    bench: CoordinatorBench, version: int, wrong: dict[str, Any], error: ErrorCode
) -> None:
    answer = bench.ask("SyncGroup", version, request(**{"member_id": stable_member(bench)} | wrong))
    assert (answer.error_code, answer.assignment) == (error, b"")
