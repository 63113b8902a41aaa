"""Descriptors, timers and hooks of the event loop."""

import os
import select
import socket
from collections.abc import Iterator

import pytest

from smq.app.process.clock import monotonic_ms, monotonic_ns
from smq.app.process.loop import Loop, Spin


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    yield read, write
    os.close(read)
    os.close(write)


def test_a_callback_is_called_while_its_event_is_pending(pipe: tuple[int, int]) -> None:
    loop, seen = Loop(), list[int]()
    loop.register(pipe[0], select.EPOLLIN, seen.append)
    assert loop.run_once(0) == 0
    os.write(pipe[1], b"x")
    assert loop.run_once(1) == loop.run_once(1) == 1  # Level-triggered.
    assert seen == [select.EPOLLIN] * 2
    loop.unregister(pipe[0])
    assert loop.run_once(0) == 0
    loop.unregister(pipe[0])  # Again is as good as once.


def test_other_events_may_be_waited_for(pipe: tuple[int, int]) -> None:
    loop, seen = Loop(), list[int]()
    loop.register(pipe[1], select.EPOLLIN, seen.append)
    assert loop.run_once(0) == 0
    loop.modify(pipe[1], select.EPOLLOUT)
    loop.run_once(1)
    assert seen == [select.EPOLLOUT]


def test_a_callback_removed_by_an_earlier_one_of_the_turn_is_not_called() -> None:
    loop, called = Loop(), list[int]()
    first, second = os.pipe(), os.pipe()
    for own, other in ((first, second), (second, first)):

        def callback(_events: int, own: int = own[0], other: int = other[0]) -> None:
            called.append(own)
            loop.unregister(other)

        loop.register(own[0], select.EPOLLIN, callback)
        os.write(own[1], b"x")
    loop.run_once(1)
    assert len(called) == 1
    for fd in (*first, *second):
        os.close(fd)


def test_timers_are_called_in_the_order_they_are_due_and_once() -> None:
    loop, called = Loop(), list[str]()
    now_ns = monotonic_ns()
    loop.call_at(now_ns, lambda: called.append("second"))
    loop.call_at(now_ns - 1, lambda: called.append("first"))
    loop.call_at(now_ns, lambda: called.append("third"))
    loop.call_at(now_ns, lambda: called.append("never")).cancel()
    assert loop.run_once(0) == 3
    assert called == ["first", "second", "third"]
    assert loop.run_once(0) == 0


def test_a_call_is_put_off_and_never_brought_forward() -> None:
    loop, called = Loop(), list[int]()
    timer = loop.call_no_sooner(None, 60_000, lambda: called.append(1))
    assert loop.call_no_sooner(timer, 5, lambda: called.append(2)) is timer
    later = loop.call_no_sooner(timer, 120_000, lambda: called.append(3))
    assert timer.action is None
    assert 119_000 < later.left_ms() <= 120_000
    due = loop.call_no_sooner(None, 0, lambda: called.append(4))
    assert loop.run_once(0) == 1
    assert (called, due.left_ms()) == ([4], 0)


def test_a_timer_ends_the_wait_for_descriptors() -> None:
    loop = Loop()
    started_ms = monotonic_ms()
    loop.call_later(20, loop.stop)
    while not loop.stopped:
        loop.run_once(10)
    assert 20 <= monotonic_ms() - started_ms < 5000


def test_hooks_stand_around_the_callbacks_of_a_turn(pipe: tuple[int, int]) -> None:
    loop, order = Loop(), list[str]()
    loop.turn_starts.append(lambda: order.append("start"))
    loop.turn_ends.append(lambda: order.append("end"))
    loop.register(pipe[0], select.EPOLLIN, lambda _: order.append("callback"))
    os.write(pipe[1], b"x")
    loop.run_once(1)
    assert order == ["start", "callback", "end"]


def test_run_turns_until_it_is_stopped() -> None:
    loop, turns = Loop(), [0]

    def turn() -> None:
        turns[0] += 1
        if turns[0] == 3:
            loop.stop()

    loop.turn_ends.append(turn)
    loop.call_later(0, lambda: None)
    loop.run()
    assert turns == [3]


def test_after_a_short_turn_an_event_is_waited_for_awake() -> None:
    spin = Spin()
    assert spin.take_ns() == 0  # Nobody has asked.
    spin.wanted_ns = 50_000
    assert spin.take_ns() == 50_000
    assert spin.take_ns() == 0  # It holds for one turn.


def test_an_event_that_arrives_while_the_loop_spins_is_handled_in_that_turn() -> None:
    loop, seen = Loop(), []
    read, write = os.pipe()
    loop.register(read, select.EPOLLIN, lambda _events: seen.append(os.read(read, 1)))
    loop.spin.wanted_ns = 50_000_000
    os.write(write, b"x")
    loop.run_once(0)
    assert seen == [b"x"]
    os.close(read)
    os.close(write)


def test_a_wait_is_offered_first_until_what_is_due(pipe: tuple[int, int]) -> None:
    loop, offered, seen = Loop(), list[int](), list[int]()

    def sleep(due_ns: int) -> bool:
        offered.append(due_ns)
        os.write(pipe[1], b"x")
        return True

    loop.sleep = sleep
    loop.register(pipe[0], select.EPOLLIN, seen.append)
    started_ns = monotonic_ns()
    loop.call_later(60_000, loop.stop)
    loop.run_once(0)
    assert offered == []  # There was nothing to wait for.
    loop.run_once(100)
    assert seen == [select.EPOLLIN]
    loop.run_once(10)
    for due_ns, seconds in zip(offered, (60, 10), strict=True):
        assert seconds <= (due_ns - started_ns) / 1e9 < seconds + 5


def test_the_end_of_a_peer_is_known_though_nothing_is_read() -> None:
    loop, (ours, theirs) = Loop(), socket.socketpair()
    with ours, theirs:
        theirs.send(b"unread")
        assert not loop.has_ended(ours.fileno())
        theirs.shutdown(socket.SHUT_WR)
        assert loop.has_ended(ours.fileno())
