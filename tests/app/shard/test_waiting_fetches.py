"""The loop's questions about fetches that wait in the kernel's table."""

import pytest

from shm.kernels.turn.parked import NEVER_NS
from smq.app.shard.waiting_fetches import WaitingFetches
from tests.shm.kernels.turn.test_parked import SLOTS, add

MS = 1_000_000


@pytest.fixture
def waiting() -> WaitingFetches:
    """Three clients, of whom 5 and 7 wait for slot 2."""
    waiting = WaitingFetches(SLOTS)
    add(waiting.arrays, 5, b"five", [2, 4], wait_ms=30)
    add(waiting.arrays, 6, b"six", [0], wait_ms=10)
    add(waiting.arrays, 7, b"seven", [1, 2, 3], wait_ms=20)
    return waiting


def test_those_whom_a_partition_concerns_are_found(waiting: WaitingFetches) -> None:
    assert sorted(waiting.clients()) == [5, 6, 7]
    assert sorted(waiting.concerned([2])) == [5, 7]
    assert waiting.concerned([5]) == []  # Nobody: and no row has it by accident …
    assert waiting.concerned([0]) == [6]  # … as an empty place has 0.
    assert sorted(waiting.concerned([4, 3, 0])) == [5, 6, 7]


def test_who_is_taken_out_waits_no_longer(waiting: WaitingFetches) -> None:
    request, due_ns = waiting.take(5)
    assert (bytes(request), due_ns) == (b"five", 30 * MS)
    assert len(waiting) == 2
    assert waiting.concerned([4]) == []
    request, _ = waiting.take(7)
    assert bytes(request) == b"seven"
    assert waiting.clients() == [6]


def test_those_who_are_due_are_named_and_then_when_the_next_one_is(waiting: WaitingFetches) -> None:
    assert waiting.due_ns == 10 * MS
    assert waiting.due(9 * MS) == []
    assert waiting.due(20 * MS) == [6, 7]
    assert waiting.due_ns == 30 * MS
    for fd in (5, 6, 7):
        waiting.take(fd)
    assert waiting.due(40 * MS) == []
    assert waiting.due_ns == NEVER_NS
