"""Records in flight: what is committed is done with, and what is not comes again or is dead."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from smq.agent.in_flight import (
    FINAL,
    STEP,
    TRANSITIONS,
    FlightState,
    InstanceWindows,
    PartitionWindow,
    RecordIdentity,
    WindowLimits,
    window_of,
)

LIMITS = WindowLimits(window=4, ack_timeout_ms=100, deliveries_max=3)


def identity(offset: int) -> RecordIdentity:
    return RecordIdentity(offset * 10**6, b"k")


def window_with(count: int) -> PartitionWindow:
    window = PartitionWindow(0, LIMITS)
    for offset in range(count):
        window.take(offset, identity(offset), 0)
    return window


def test_every_state_is_reached_and_the_final_ones_have_no_way_out() -> None:
    reached = {FlightState.AVAILABLE} | {
        to for ways in TRANSITIONS.values() for to in ways.values()
    }
    assert reached == set(FlightState)
    assert {each for each in FlightState if not TRANSITIONS[each]} == FINAL


def test_windows_have_a_default_and_a_bound() -> None:
    asked = (-1, 0, 1, 65_535, 65_536, 65_537, 10**9)
    assert [window_of(each) for each in asked] == [128, 128, 1, 65_535, *[65_536] * 3]
    assert WindowLimits() == (128, 30_000, 5)


def test_the_commit_is_the_lowest_offset_that_is_not_acknowledged() -> None:
    window = window_with(3)
    assert window.acknowledge(1)
    assert window.commit == 0
    assert window.acknowledge(0)
    assert window.commit == 2
    assert window.acknowledge(2)
    assert (window.commit, window.end) == (3, 3)


def test_a_gap_in_the_log_is_committed_with_what_is_before_it() -> None:
    window = window_with(1)
    window.skip_to(10)
    assert window.commit == 0
    window.acknowledge(0)
    assert window.commit == 10


def test_a_full_window_has_room_once_its_lowest_record_is_done_with() -> None:
    window = window_with(4)
    assert window.room == 0
    window.acknowledge(3)
    assert window.room == 0
    window.acknowledge(0)
    assert window.room == 1


def test_a_record_that_is_not_acknowledged_in_time_is_delivered_again() -> None:
    window = window_with(1)
    window.expire(99)
    assert window.take_again(99) is None
    assert window.due_ms() == 100
    window.expire(100)
    assert window.due_ms() is None
    assert not window.acknowledge(0)
    assert window.take_again(100) == 0
    assert window.deliveries(0) == 2
    assert window.due_ms() == 200
    assert window.acknowledge(0)
    assert window.commit == 1


def test_a_time_out_of_an_earlier_delivery_does_not_end_a_later_one() -> None:
    window = window_with(1)
    window.release(0, "it failed")
    window.take_again(50)
    window.expire(120)
    assert window.is_acquired(0)
    window.expire(150)
    assert not window.is_acquired(0)


def test_the_last_failed_delivery_makes_a_dead_letter_which_holds_the_commit() -> None:
    window = window_with(2)
    window.acknowledge(1)
    for _ in range(2):
        window.release(0, "it failed")
        assert window.take_again(0) == 0
    window.release(0, "it failed again")
    assert [*window.dead()] == [(0, "it failed again")]
    assert [*window.dead()] == []
    assert window.commit == 0
    assert not window.acknowledge(0)
    window.archive(0)
    assert window.commit == 2


def test_a_time_out_says_so_in_the_dead_letter() -> None:
    window = PartitionWindow(0, WindowLimits(ack_timeout_ms=1500, deliveries_max=1))
    window.take(0, identity(0), 0)
    window.expire(1500)
    assert [*window.dead()] == [(0, "it was not acknowledged in 1.5 s")]


def test_a_record_that_counts_as_acknowledged_takes_no_room() -> None:
    window = PartitionWindow(5, LIMITS)
    for offset in range(5, 50):
        window.take_done(offset)
    assert (window.commit, window.room) == (50, 4)


def test_an_ack_is_found_on_another_stream_of_the_instance_the_oldest_first() -> None:
    unknown: list[int] = []
    instance = InstanceWindows(lambda: unknown.append(1))
    one, other = window_with(0), window_with(0)
    same = RecordIdentity(7, b"k")
    for window in (one, other):
        instance.add(window)
        window.take(0, same, 0)
        instance.delivered(window, 0)
    assert instance.find(same) == (one, 0)
    one.acknowledge(0)
    assert instance.find(same) == (other, 0)
    other.acknowledge(0)
    assert instance.find(same) is None
    assert unknown == [1]


def test_a_redelivery_is_found_and_what_has_timed_out_is_not() -> None:
    instance, window = InstanceWindows(), window_with(1)
    instance.add(window)
    instance.delivered(window, 0)
    window.expire(100)
    assert instance.find(identity(0)) is None
    window.take_again(100)
    instance.delivered(window, 0)
    assert instance.find(identity(0)) == (window, 0)


def test_deliveries_that_have_ended_leave_nothing_behind() -> None:
    instance, window = InstanceWindows(), PartitionWindow(0, LIMITS)
    instance.add(window)
    for offset in range(100):
        window.take(offset, identity(offset), 0)
        instance.delivered(window, offset)
        window.acknowledge(offset)
        instance.settle(identity(offset))
    assert instance._named == {}


def test_an_ended_streams_records_are_not_found() -> None:
    instance, window = InstanceWindows(), window_with(1)
    instance.add(window)
    instance.delivered(window, 0)
    instance.remove(window)
    assert instance.find(identity(0)) is None


class WindowMachine(RuleBasedStateMachine):
    """Delivers, acknowledges, fails and waits in any order; a set says what is done with."""

    deliveries: Bundle[int] = Bundle("deliveries")

    @initialize()
    def begin(self) -> None:
        self.window = PartitionWindow(0, LIMITS)
        self.now_ms = 0
        self.taken: list[int] = []
        self.done: set[int] = set()
        self.last_commit = 0

    @rule(target=deliveries, gap=st.integers(0, 2))
    def take(self, gap: int) -> Any:
        if not self.window.room:
            return multiple()
        offset = self.window.end + gap
        self.window.take(offset, identity(offset), self.now_ms)
        self.taken.append(offset)
        return offset

    @rule(target=deliveries)
    def take_again(self) -> Any:
        offset = self.window.take_again(self.now_ms)
        if offset is None:
            return multiple()
        assert offset not in self.done
        return offset

    @rule(offset=consumes(deliveries))
    def acknowledge(self, offset: int) -> None:
        if self.window.acknowledge(offset):
            self.done.add(offset)

    @rule(offset=consumes(deliveries))
    def fail(self, offset: int) -> None:
        self.window.release(offset, "it failed")

    @rule(later_ms=st.integers(1, 150))
    def wait(self, later_ms: int) -> None:
        self.now_ms += later_ms
        self.window.expire(self.now_ms)

    @rule()
    def write_dead_letters(self) -> None:
        for offset, why in self.window.dead():
            assert why
            self.window.archive(offset)
            self.done.add(offset)

    @invariant()
    def nothing_below_the_commit_is_unfinished(self) -> None:
        if hasattr(self, "window"):
            self.window.invariants()
            left = [each for each in self.taken if each not in self.done]
            assert self.window.commit == (min(left) if left else self.window.end)
            assert self.window.commit >= self.last_commit
            self.last_commit = self.window.commit


TestWindowMachine = WindowMachine.TestCase


def test_many_deliveries_are_ended_in_steps() -> None:
    window = PartitionWindow(0, WindowLimits(window=3 * STEP, ack_timeout_ms=100))
    for offset in range(2 * STEP + 1):
        window.take(offset, identity(offset), 0)
    left = []
    for _ in range(3):
        window.expire(100)
        left.append(sum(map(window.is_acquired, range(2 * STEP + 1))))
    assert left == [STEP + 1, 1, 0]


def test_the_rest_of_an_ended_stream_is_forgotten_in_steps() -> None:
    instance, one, other = InstanceWindows(), PartitionWindow(0), PartitionWindow(0)
    for window in (one, other):
        instance.add(window)
    for offset in range(100):
        one.take(offset, identity(offset), 0)
        instance.delivered(one, offset)
    instance.remove(one)
    assert len(instance._named) == 100
    assert instance.find(identity(99)) is None
    for offset in range(100, 120):
        other.take(offset, identity(offset), 0)
        instance.delivered(other, offset)
    assert {*instance._named} == {identity(offset) for offset in range(100, 120)}
    instance.remove(other)
    assert instance._named == {}
