"""What the atomics promise, with two processes or two threads that really run at the same time."""

import mmap
import os
import threading
from collections.abc import Callable, Iterator
from time import monotonic

import numpy as np
import pytest

from shm.kernels.base.atomics import futex_wait, futex_wake
from tests.shm.forks import forked
from tests.shm.race_kernels import (
    add_many,
    exchange_many,
    one_of_each,
    pause_many,
    race_many,
    raise_flags,
    receive_many,
    send_many,
)

ROUNDS = 300_000
HANDSHAKES = 20_000
HANDSHAKES_AT_ONCE = 200  # A second or two when other programs leave both sides one processor.
HANDSHAKE_SECONDS = 2
RACE_SECONDS_MAX = 60  # Until a race is seen that is there: one in some thousand rounds loses.
SECOND_NS = 1_000_000_000

at_once = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="one processor runs no two at the same time"
)


def attempts(seconds: float) -> Iterator[None]:
    """Attempts until a time is over, one at the least: how much others leave us is unknown."""
    deadline = monotonic() + seconds
    yield
    while monotonic() < deadline:
        yield


def shared_words() -> np.ndarray:
    return np.frombuffer(mmap.mmap(-1, 4096), np.int64)


def two_processes(act: Callable[[np.ndarray, int], None]) -> int:
    """What word 0 is after two processes have done this to it."""
    words = shared_words()
    act(np.full(64, 2, np.int64), 0)  # Compiled before the fork.
    with forked(lambda: act(words, ROUNDS)):
        act(words, ROUNDS)
    return int(words[0])


def test_fetch_add_of_two_processes_loses_nothing() -> None:
    assert two_processes(add_many) == 2 * ROUNDS


def test_compare_exchange_of_two_processes_loses_nothing() -> None:
    assert two_processes(exchange_many) == 2 * ROUNDS


@at_once
def test_the_same_in_two_steps_loses_so_that_these_tests_would_see_it() -> None:
    assert any(two_processes(race_many) < 2 * ROUNDS for _ in attempts(RACE_SECONDS_MAX))


def test_an_acquire_sees_the_writes_before_the_release() -> None:
    words = shared_words()
    send_many(words, 0)
    receive_many(words, 0)
    with forked(lambda: send_many(words, ROUNDS)):
        assert receive_many(words, ROUNDS) == 0


def both_missed(*, fenced: bool) -> int:
    """In how many rounds of Dekker's handshake neither side saw the other."""
    words, rounds = shared_words(), HANDSHAKES_AT_ONCE
    seen = np.zeros((2, rounds), np.bool_)
    raise_flags(words, (0, 8), seen[0], 0, fenced)
    other = threading.Thread(target=raise_flags, args=(words, (8, 0), seen[1], rounds, fenced))
    other.start()
    raise_flags(words, (0, 8), seen[0], rounds, fenced)
    other.join()
    return int((~seen[0] & ~seen[1]).sum())


def test_with_a_fence_one_side_of_a_handshake_always_sees_the_other() -> None:
    counts = zip(attempts(HANDSHAKE_SECONDS), range(HANDSHAKES // HANDSHAKES_AT_ONCE), strict=False)
    assert all(both_missed(fenced=True) == 0 for _ in counts)


@at_once
def test_without_a_fence_both_miss_so_that_this_test_would_see_it() -> None:
    assert any(both_missed(fenced=False) for _ in attempts(RACE_SECONDS_MAX))


def test_operations_return_the_word_as_it_was() -> None:
    assert one_of_each(np.full(8, 2, np.int64)) == (2, 7, 7, -3)


def test_a_futex_that_is_not_as_expected_does_not_wait() -> None:
    words = np.full(8, 1, np.int64)
    assert futex_wait(words, 0, 2, 60 * SECOND_NS) == -1


def test_a_futex_wait_ends_when_its_time_is_over() -> None:
    assert futex_wait(np.zeros(8, np.int64), 0, 0, 1_000_000) == -1


def test_a_futex_looks_at_the_low_half_of_its_word() -> None:
    words = np.array([7 << 32], np.int64)
    assert futex_wait(words, 0, 1, 60 * SECOND_NS) == -1
    assert futex_wait(words, 0, 5 << 32, 1_000_000) == -1


def test_a_wake_ends_the_wait_of_another_process() -> None:
    words = shared_words()
    futex_wait(words, 0, 1, 0)
    futex_wake(words, 0, 1)

    def wait() -> None:
        woken = -1
        while woken != 0 and words[1] == 0:
            woken = futex_wait(words, 0, 0, 30 * SECOND_NS)
        assert woken == 0

    with forked(wait):
        while futex_wake(words, 0, 1) == 0:  # Until it sleeps.
            pass
        words[1] = 1
    assert futex_wake(words, 0, 1) == 0


def test_a_pause_ends() -> None:
    pause_many(1000)
