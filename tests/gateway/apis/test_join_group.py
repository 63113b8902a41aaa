"""JoinGroup: what each version says to members, static ones among them."""

import pytest

from smq.model.errors import ErrorCode
from smq.wire.generated.join_group import JoinGroupResponseMember
from tests.gateway.coordinator_bench import CoordinatorBench
from tests.gateway.groups import DELAY_MS, join_request, stable_member

E = ErrorCode


@pytest.mark.parametrize("version", range(10))
def test_a_member_joins_in_every_version(bench: CoordinatorBench, version: int) -> None:
    asked = bench.ask("JoinGroup", version, join_request())
    if version >= 4:
        assert asked.error_code == E.MEMBER_ID_REQUIRED
        assert asked.member_id.startswith("client-")
        asked = bench.ask("JoinGroup", version, join_request(member_id=asked.member_id))
    assert isinstance(asked, int)
    bench.wait(DELAY_MS)
    answer = bench.answers()[asked]
    assert (answer.error_code, answer.generation_id) == (E.NONE, 1)
    assert (answer.leader, answer.protocol_name) == (answer.member_id, "range")
    assert answer.protocol_type == ("consumer" if version >= 7 else None)
    assert answer.members == [JoinGroupResponseMember(member_id=answer.member_id, metadata=b"meta")]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"group_id": ""}, E.INVALID_GROUP_ID),
        ({"session_timeout_ms": 5999}, E.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, E.INVALID_SESSION_TIMEOUT),
        ({"protocols": []}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "stranger"}, E.UNKNOWN_MEMBER_ID),
    ],
)
@pytest.mark.parametrize("version", [0, 5, 6, 9])
def test_a_refusal_names_the_member_as_it_was_asked(
    bench: CoordinatorBench, version: int, wrong: dict[str, object], error: ErrorCode
) -> None:
    answer = bench.ask("JoinGroup", version, join_request(**wrong))
    assert answer.error_code == error
    assert answer.member_id == wrong.get("member_id", "")
    assert answer.generation_id == -1
    assert answer.protocol_name == (None if version >= 7 else "")


def test_before_version_1_the_session_timeout_is_the_rebalance_timeout(
    bench: CoordinatorBench,
) -> None:
    bench.ask("JoinGroup", 0, join_request(session_timeout_ms=7000))
    [member] = bench.coordinator.groups.find("g").roster
    assert member.rebalance_timeout_ms == 7000
    assert member.client_host == "/10.0.0.9"


def test_a_static_member_is_named_for_its_instance(bench: CoordinatorBench) -> None:
    asked = bench.ask("JoinGroup", 5, join_request(group_instance_id="i"))
    bench.wait(DELAY_MS)
    answer = bench.answers()[asked]
    assert answer.member_id.startswith("i-")
    assert answer.members[0].group_instance_id == "i"


@pytest.mark.parametrize(("version", "skips"), [(8, False), (9, True)])
def test_a_returning_static_leader_skips_the_assignment_from_9_on(
    bench: CoordinatorBench, version: int, *, skips: bool
) -> None:
    old_id = stable_member(bench, group_instance_id="i")
    answer = bench.ask("JoinGroup", version, join_request(group_instance_id="i"))
    assert answer.error_code == E.NONE
    assert answer.member_id != old_id
    assert answer.skip_assignment is skips
    assert (answer.leader == answer.member_id) is skips
