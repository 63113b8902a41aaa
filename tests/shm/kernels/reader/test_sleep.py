"""A reader sleeps only while there is nothing, and wakes for whatever comes."""

import os
import socket
from collections.abc import Callable, Iterator
from threading import Thread
from time import monotonic, sleep

import numpy as np
import pytest

from shm.kernels.reader.lend import CURSOR_ENTRY, F_FIELDS
from shm.kernels.reader.sleep import BELLS_MAX, POLLED_WORDS, ReaderState, sleep_reader
from shm.kernels.session.shard import tell_event
from shm.kernels.session.words import CLIENT_SLEEP
from shm.session import SessionMemory
from tests.shm.kernels.reader.test_lend import NUMBERS, Reader, Writer

LONG_MS = 60_000
DEADLINE_S = 10.0


class Sleeper:
    """A reader of one partition, its session, and the shard's ends of both."""

    def __init__(self) -> None:
        self.writer = Writer()
        self.reader = Reader(self.writer, NUMBERS[:1])
        self.reader.place()
        self.shard = SessionMemory.create(4096, 4096)
        self.session = SessionMemory.attach(self.shard.fd)
        os.close(self.shard.fd)
        self.bell, self.socket = socket.socketpair()
        self.polled = np.full(POLLED_WORDS, -1, np.int32)
        self.polled[0] = self.socket.fileno()
        self.catalog = np.array([3])

    def state(self) -> ReaderState:
        facts = np.zeros((F_FIELDS, 4), np.int64)
        return ReaderState(
            self.reader.log.memory.memory, self.reader.wanted, self.reader.cursor, facts
        )

    def sleep(self, timeout_ms: int = LONG_MS, version: int = 3) -> bool:
        memory, side = self.session.memory, self.session.side
        bells = np.zeros(BELLS_MAX, np.uint8)
        return bool(
            sleep_reader(
                memory, side, self.polled, bells, *self.state(), self.catalog, version, timeout_ms
            )
        )

    @property
    def is_asleep(self) -> bool:
        return bool(self.session.words[CLIENT_SLEEP] & 1)

    def append(self) -> None:
        """As the shard does it: the log first, then the bell if it must."""
        self.writer.append(0)
        self.writer.show(0)
        if tell_event(self.shard.memory, self.shard.side):
            self.bell.send(b"!")


@pytest.fixture
def sleeper() -> Iterator[Sleeper]:
    made = Sleeper()
    yield made
    made.bell.close()
    made.socket.close()


def woken_by(sleeper: Sleeper, act: Callable[[], object]) -> bool:
    """Sleep, have this done once the shard may see that we do; whether the shard is there."""

    def act_when_asleep() -> None:
        deadline = monotonic() + DEADLINE_S
        while not sleeper.is_asleep and monotonic() < deadline:
            sleep(0)
        act()

    thread = Thread(target=act_when_asleep)
    thread.start()
    found = sleeper.sleep()
    thread.join()
    return found


def test_a_reader_with_an_event_or_records_does_not_sleep(sleeper: Sleeper) -> None:
    sleeper.append()
    entry = sleeper.reader.cursor[CURSOR_ENTRY]
    assert sleeper.sleep()  # The event.
    assert sleeper.sleep()  # The records.
    assert not sleeper.is_asleep
    assert sleeper.reader.cursor[CURSOR_ENTRY] == entry


def test_records_wake_it_each_time_and_bells_are_swallowed(sleeper: Sleeper) -> None:
    for _ in range(3):
        assert woken_by(sleeper, sleeper.append)
        assert sleeper.reader.lend() != []
    assert sleeper.sleep(timeout_ms=1)
    with pytest.raises(BlockingIOError):
        sleeper.socket.recv(1, socket.MSG_DONTWAIT)


def test_another_descriptor_wakes_it_too(sleeper: Sleeper) -> None:
    ours, theirs = os.pipe()
    sleeper.polled[2] = ours
    assert woken_by(sleeper, lambda: os.write(theirs, b"x"))
    os.close(ours)
    os.close(theirs)


def test_sleep_ends_after_its_timeout(sleeper: Sleeper) -> None:
    assert sleeper.sleep(timeout_ms=1)
    assert sleeper.is_asleep  # Until it takes: who rings meanwhile costs nothing.


def test_another_catalog_is_not_slept_over(sleeper: Sleeper) -> None:
    assert sleeper.sleep(version=2)


def test_sleep_ends_when_the_shard_is_gone(sleeper: Sleeper) -> None:
    assert woken_by(sleeper, sleeper.bell.close)
    assert not sleeper.sleep()
