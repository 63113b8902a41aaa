"""The answers in the kernel's table (shm.kernels.turn.held), as the loop sees them.

A kernel holds the answers to Produce requests of `disk` topics there, and sends them when their
records are on disk. The loop takes answers over when the kernel cannot continue: their client asks
for something else, its socket is full, they are slow, the log has failed, or the shard takes turns
itself when they are due. Then they wait in the loop, for the same positions.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from shm.kernels.base.words import DURABILITY_DISK, WORD_SYNCED
from shm.kernels.turn.held import (
    H_BEGAN_NS,
    H_BYTES,
    H_FD,
    H_POSITION,
    H_SENT,
    HELD_AT,
    HELD_BYTES_MAX,
    HELD_COUNT,
    HELD_FIRST,
    HELD_MAX,
    HELD_SLOW_NS,
    HELD_WANTED,
    HELD_WORDS,
    new_held,
)
from shm.kernels.turn.words import HELD, LIMITED_HELD, LOOPS
from smq.log.log import Log
from smq.shard.produce import Mark, Marks

TAKEN = -1  # Instead of a descriptor.
_HELD = {HELD, LIMITED_HELD}


class HeldAnswer(NamedTuple):
    """An answer that a kernel held: its rest, what it waits for, when it began (monotonic)."""

    rest: bytes
    marks: Marks
    began_ns: int


class HeldAnswers:
    """The table of a shard. `clients` says whose answers are in it (shm.kernels.turn.words).

    arrays      what kernels take
    take_over   gets a client's descriptor and an answer that is the loop's now
    """

    def __init__(
        self,
        log: Log | None,
        clients: np.ndarray,
        slow_ns: int,
        take_over: Callable[[int, HeldAnswer], None],
    ) -> None:
        self._log, self._clients = log, clients
        box = log.syncs.syncer.box if log is not None else None
        self.arrays = new_held(box)
        table, self._answers, _ = self.arrays
        self._words = table.data
        self._rows = table[HELD_AT:].reshape(HELD_MAX, HELD_WORDS)
        self._words[HELD_SLOW_NS] = slow_ns
        self.take_over = take_over

    def __len__(self) -> int:
        return int(self._words[HELD_COUNT])

    def invariants(self) -> None:
        """Raise AssertionError if an answer waits for a sync that nobody wants, or is out of
        order."""
        rows = self._live()
        positions = [int(self._rows[row, H_POSITION]) for row in rows]
        assert positions == sorted(positions)
        assert not positions or self._log is not None
        if self._log is not None and positions:
            assert self._log.syncs.wanted >= positions[-1]
        assert all(self._clients[self._rows[row, H_FD]] in _HELD for row in rows)

    def begin(self) -> None:
        """A kernel is about to run."""
        if self._log is not None:
            self._words[HELD_WANTED] = self._log.syncs.wanted

    def end(self) -> None:
        """It has run: it may have had more synced."""
        if self._log is not None:
            self._log.syncs.wanted = self._words[HELD_WANTED]

    def release(self, fd: int) -> None:
        """Take over a client's answers, if it has some here."""
        if fd < len(self._clients) and self._clients[fd] in _HELD:
            self._clients[fd] = LOOPS
            self._take([row for row in self._live() if self._rows[row, H_FD] == fd])

    def release_all(self) -> None:
        """Take over all of them."""
        for row in self._live():
            self._clients[self._rows[row, H_FD]] = LOOPS
        self._take(self._live())

    def release_due(self, *, is_shown: bool) -> None:
        """Take over those of clients with an answer whose records are on disk; all if the log has
        failed, or if the loop does not look at its syncs (`is_shown`)."""
        if self._log is None or not len(self):
            return
        if self._log.failed is not None or not is_shown:
            self.release_all()
        synced = self._log.words[WORD_SYNCED]
        for row in self._live():
            fd = int(self._rows[row, H_FD])
            if fd != TAKEN and self._rows[row, H_POSITION] <= synced:
                self.release(fd)

    def forget(self, fd: int) -> None:
        """Forget the answers to a closed client."""
        self._rows[[row for row in self._live() if self._rows[row, H_FD] == fd], H_FD] = TAKEN

    def _live(self) -> list[int]:
        """The rows that the loop has not taken, the oldest first."""
        first, words = self._words[HELD_FIRST], self._words
        rows = ((first + i) % HELD_MAX for i in range(words[HELD_COUNT]))
        return [row for row in rows if self._rows[row, H_FD] != TAKEN]

    def _take(self, rows: list[int]) -> None:
        for row in rows:
            assert self._log is not None
            words = [int(word) for word in self._rows[row]]
            self._rows[row, H_FD] = TAKEN
            start = row * HELD_BYTES_MAX
            rest = bytes(self._answers[start + words[H_SENT] : start + words[H_BYTES]])
            marks = (Mark(self._log.number, words[H_POSITION], DURABILITY_DISK),)
            self.take_over(words[H_FD], HeldAnswer(rest, marks, words[H_BEGAN_NS]))
        if not self._live():
            self._words[HELD_COUNT] = 0
