"""Waiting for descriptors: select, as Windows has it, finds what poll finds."""

import fcntl
import os
import select
import socket
from collections.abc import Callable, Iterator, Mapping
from time import monotonic

import pytest

from smq.client.wait import READABLE, WRITABLE, ready, select_ready, wait_readable

Ready = Callable[[Mapping[int, int], float | None], list[int]]

# select takes descriptors below 1024, and what other tests of this process have open may be more:
# these are taken before any test runs.
LOW = [os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC) for _ in range(2)]

both = pytest.mark.parametrize("find", [ready, select_ready])


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    made = socket.socketpair()
    one, other = (
        socket.socket(fileno=os.dup2(each.fileno(), low, inheritable=False))
        for each, low in zip(made, LOW, strict=True)
    )
    for each in made:
        each.close()
    with one, other:
        yield one, other
    LOW[:] = (os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC) for _ in LOW)  # The lowest, again.


def test_the_events_are_those_of_poll() -> None:
    assert (READABLE, WRITABLE) == (select.POLLIN, select.POLLOUT)


@both
def test_those_that_are_ready_are_found(
    find: Ready, pair: tuple[socket.socket, socket.socket]
) -> None:
    one, other = (each.fileno() for each in pair)
    assert find({one: READABLE, other: READABLE}, 0) == []
    assert find({one: READABLE, other: READABLE | WRITABLE}, 0) == [other]
    pair[1].send(b"x")
    assert find({one: READABLE, other: READABLE}, None) == [one]
    assert sorted(find({one: READABLE, other: WRITABLE}, None)) == sorted([one, other])
    assert find({one: READABLE | WRITABLE}, 0) == [one]


@both
def test_a_hung_up_one_is_ready(find: Ready, pair: tuple[socket.socket, socket.socket]) -> None:
    pair[1].close()
    assert find({pair[0].fileno(): READABLE}, None) == [pair[0].fileno()]


@both
def test_one_that_another_thread_has_closed_is_ready(
    find: Ready, pair: tuple[socket.socket, socket.socket]
) -> None:
    closed = fcntl.fcntl(pair[0], fcntl.F_DUPFD_CLOEXEC, 1000)  # No other thread gets it at once.
    os.close(closed)
    assert find({closed: READABLE}, None) == [closed]


@both
def test_waiting_for_nothing_takes_its_time(find: Ready) -> None:
    begun_s = monotonic()
    assert find({}, 0.05) == []
    assert monotonic() - begun_s >= 0.04


def test_wait_readable_waits_for_reading_only(pair: tuple[socket.socket, socket.socket]) -> None:
    filenos = [each.fileno() for each in pair]
    assert wait_readable(filenos, 0.01) == []
    pair[0].send(b"x")
    assert wait_readable(filenos, None) == [filenos[1]]
