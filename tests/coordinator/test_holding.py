"""Groups whose members a process of ours names: at once, beside no members that join."""

from typing import Any

import pytest

from smq.coordinator.group_events import HeldMember, Hold, JoinAnswer
from smq.coordinator.group_limits import ASSIGNMENTS_BYTES_MAX, METADATA_BYTES_MAX, GroupLimits
from smq.coordinator.group_states import GroupState
from smq.model.errors import BrokerError, ErrorCode
from tests.coordinator.group_driver import SESSION_MS, Driver

KIND = "seaweedmq"


def member(name: str, assignment: bytes = b"", said: bytes = b"said") -> HeldMember:
    return HeldMember(name, "client", "/host", said, assignment)


def hold(driver: Driver, *members: HeldMember, **fields: Any) -> None:
    told: dict[str, Any] = {
        "protocol_type": KIND,
        "protocol_name": "sharing",
        "session_timeout_ms": SESSION_MS,
    }
    driver.handle(Hold(**told | fields, members=members))


@pytest.fixture
def driver() -> Driver:
    return Driver(GroupLimits(initial_rebalance_delay_ms=3000, size_max=3))


def test_named_members_are_in_the_group_at_once_with_what_they_have(driver: Driver) -> None:
    hold(driver, member("a", b"1"), member("b", b"2"))
    group, saved = driver.group, driver.saved[-1]
    assert (group.state, group.generation, group.protocol_type) == (GroupState.STABLE, 1, KIND)
    assert [(each.member_id, each.assignment) for each in saved.members] == [
        ("a", b"1"),
        ("b", b"2"),
    ]


def test_a_generation_begins_when_members_come_or_go_and_only_then(driver: Driver) -> None:
    hold(driver, member("a", b"1"))
    hold(driver, member("a", b"2"), generation=1)
    assert driver.group.generation == 1
    assert driver.saved[-1].members[0].assignment == b"2"
    hold(driver, member("b"), generation=1)
    hold(driver, generation=2, gone=("a",))
    assert driver.group.generation == 3
    assert [*driver.group.roster.members] == ["b"]


def test_changes_of_another_generation_are_refused(driver: Driver) -> None:
    hold(driver, member("a"))
    with pytest.raises(BrokerError, match="ILLEGAL_GENERATION"):
        hold(driver, member("b"), generation=2)
    assert [*driver.group.roster.members] == ["a"]


def test_a_group_whose_last_member_goes_is_empty(driver: Driver) -> None:
    hold(driver, member("a"))
    hold(driver)
    assert driver.group.state is GroupState.EMPTY
    assert driver.saved[-1].members == ()
    assert driver.group.protocol_type == KIND


def test_members_stay_as_long_as_they_are_named(driver: Driver) -> None:
    hold(driver, member("a"))
    for _ in range(5):
        driver.wait(SESSION_MS - 1)
        hold(driver, generation=1)
    saved = len(driver.saved)
    hold(driver, generation=1)
    assert len(driver.saved) == saved
    driver.wait(SESSION_MS)
    driver.wait(SESSION_MS)
    assert driver.group.state is GroupState.EMPTY


def test_a_consumer_of_kafka_does_not_join_named_members(driver: Driver) -> None:
    hold(driver, member("a"))
    with pytest.raises(BrokerError, match="INCONSISTENT_GROUP_PROTOCOL"):
        driver.join(new_id="k")
    assert driver.group.state is GroupState.STABLE


def test_members_are_not_named_beside_consumers_of_kafka(driver: Driver) -> None:
    driver.join(new_id="k")
    with pytest.raises(BrokerError, match="INCONSISTENT_GROUP_PROTOCOL"):
        hold(driver, member("a"))
    assert [*driver.group.roster.members] == ["k"]


@pytest.mark.parametrize("knows_its_id", [False, True])
def test_a_stranger_with_our_protocol_goes_when_members_are_named_again(
    driver: Driver, *, knows_its_id: bool
) -> None:
    hold(driver, member("a"))
    fields = {"protocol_type": KIND, "protocols": (("sharing", b""),)}
    ticket = driver.join("a" if knows_its_id else "", new_id="k", **fields)
    assert driver.group.state is not GroupState.STABLE or knows_its_id
    with pytest.raises(BrokerError, match="ILLEGAL_GENERATION"):
        hold(driver, generation=1)
    hold(driver, member("a"))
    assert driver.group.state is GroupState.STABLE
    assert [*driver.group.roster.members] == ["a"]
    answer = driver.answers[ticket]
    assert isinstance(answer, JoinAnswer)
    assert knows_its_id or answer.error is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    "members",
    [
        [member(each) for each in "abcd"],
        [member("a", said=bytes(METADATA_BYTES_MAX))],
        [member("a", bytes(ASSIGNMENTS_BYTES_MAX + 1))],
    ],
    ids=["members", "what they say", "what they have"],
)
def test_a_group_holds_so_much(driver: Driver, members: list[HeldMember]) -> None:
    hold(driver, member("a"))
    with pytest.raises(BrokerError, match="GROUP_MAX_SIZE_REACHED"):
        hold(driver, *members, generation=1)
    assert driver.group.generation == 1
