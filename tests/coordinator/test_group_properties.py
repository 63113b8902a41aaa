"""A group in any weather: any requests in any order, any silence, restarts in between."""

from contextlib import suppress
from typing import Any

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from smq.coordinator.group import Group
from smq.coordinator.group_events import HeldMember, Hold, JoinAnswer, SyncAnswer
from smq.coordinator.group_limits import GroupLimits
from smq.coordinator.group_states import GroupState
from smq.model.errors import BrokerError, ErrorCode
from tests.coordinator.group_driver import REBALANCE_MS, Driver

LIMITS = GroupLimits(initial_rebalance_delay_ms=3000, size_max=4)
PROTOCOLS = st.lists(
    st.sampled_from([("range", b"1"), ("range", b"2"), ("rr", b"")]),
    unique_by=lambda protocol: protocol[0],
    max_size=2,
).map(tuple)
MEMBERS = st.integers(0, 7).map("m{}".format)
JOIN_FIELDS = st.fixed_dictionaries(
    {
        "instance_id": st.sampled_from([None, None, "i0", "i1"]),
        "protocols": PROTOCOLS,
        "must_know_member_id": st.booleans(),
        "may_skip_assignment": st.booleans(),
        "rebalance_timeout_ms": st.sampled_from([-1, 0, 5000, REBALANCE_MS]),
    }
)


class AnyWeather(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver(LIMITS)
        self.new_ids = 0
        self.generation = 0
        self.seen: set[int] = set()

    @rule(member_id=st.just("") | MEMBERS, fields=JOIN_FIELDS)
    def join(self, member_id: str, fields: dict[str, Any]) -> None:
        self.new_ids += 1
        with suppress(BrokerError):
            self.driver.join(member_id, new_id=f"m{self.new_ids}", **fields)

    @rule(which=st.integers(0, 7), protocols=PROTOCOLS)
    def join_again(self, which: int, protocols: tuple[tuple[str, bytes], ...]) -> None:
        for member in list(self.driver.group.roster)[which : which + 1]:
            with suppress(BrokerError):
                self.driver.join(
                    member.member_id,
                    instance_id=member.instance_id,
                    protocols=protocols or member.protocols,
                )

    @rule(which=st.integers(0, 7), stale=st.booleans())
    def sync(self, which: int, *, stale: bool) -> None:
        for member in list(self.driver.group.roster)[which : which + 1]:
            everybody = dict.fromkeys(self.driver.group.roster.members, b"work")
            generation = self.driver.group.generation - stale
            with suppress(BrokerError):
                self.driver.sync(member.member_id, everybody, generation=generation)

    @rule(names=st.lists(MEMBERS, unique=True, max_size=5), is_whole=st.booleans())
    def hold(self, names: list[str], *, is_whole: bool) -> None:
        generation = -1 if is_whole else self.driver.group.generation
        members = tuple(HeldMember(each, "client", "/host", b"", b"work") for each in names)
        fields: dict[str, Any] = {
            "protocol_type": "seaweedmq",
            "protocol_name": "sharing",
            "session_timeout_ms": 10_000,
            "gone": ("m1",),
        }
        with suppress(BrokerError):
            self.driver.handle(Hold(generation=generation, members=members, **fields))

    @rule(which=st.integers(0, 7))
    def heartbeat(self, which: int) -> None:
        for member in list(self.driver.group.roster)[which : which + 1]:
            self.driver.heartbeat(member.member_id, member.instance_id)

    @rule(which=st.integers(0, 7), by_instance=st.booleans())
    def leave(self, which: int, *, by_instance: bool) -> None:
        for member in list(self.driver.group.roster)[which : which + 1]:
            by_instance = by_instance and member.instance_id is not None
            self.driver.leave(("" if by_instance else member.member_id, member.instance_id))

    @rule(member=MEMBERS)
    def ask_as_a_stranger(self, member: str) -> None:
        is_member = member in self.driver.group.roster.members  # A stranger may guess an id.
        assert self.driver.heartbeat(member) is not ErrorCode.NONE or is_member
        self.driver.leave((member, None))

    @rule(wait_ms=st.sampled_from([0, 1, 1000, 3000, 9_999, 10_000, 60_000]))
    def wait(self, wait_ms: int) -> None:
        self.driver.wait(wait_ms)

    @rule()
    def restart(self) -> None:
        driver = self.driver
        driver.asked &= driver.answers.keys()  # Whoever waited has lost its connection.
        if driver.saved:
            driver.group = Group.restore(driver.saved[-1], LIMITS, driver.now_ms)
        else:
            driver.group = Group("g", LIMITS)
        self.generation = driver.group.generation

    @invariant()
    def generations_only_rise(self) -> None:
        assert self.driver.group.generation >= self.generation
        self.generation = self.driver.group.generation

    @invariant()
    def only_the_leader_is_told_who_else_is_there(self) -> None:
        for ticket, answer in self.driver.answers.items():
            if ticket in self.seen:
                continue
            self.seen.add(ticket)
            if isinstance(answer, JoinAnswer) and answer.members:
                assert answer.member_id == answer.leader
                assert answer.member_id in {member for member, _, _ in answer.members}
            if isinstance(answer, SyncAnswer) and answer.error is ErrorCode.NONE:
                assert answer.assignment in {b"", b"work"}

    @invariant()
    def a_stable_group_is_saved_as_it_is(self) -> None:
        if self.driver.group.state is GroupState.STABLE:
            assert self.driver.saved[-1] == self.driver.group.stored()

    def teardown(self) -> None:
        self.driver.wait(10 * REBALANCE_MS)
        assert self.driver.group.is_idle()
        assert self.driver.asked == self.driver.answers.keys()


TestAnyWeather = AnyWeather.TestCase
TestAnyWeather.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
