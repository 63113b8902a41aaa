"""The fetches that wait in the kernel's table (shm.kernels.turn.parked), as the loop sees them.

Only a kernel adds to them. The loop removes those that the kernel can no longer answer alone, and
handles them as if the requests had just arrived.
"""

from collections.abc import Iterable

import numpy as np

from shm.kernels.turn.parked import (
    NEVER_NS,
    REQUEST_BYTES_MAX,
    W_BYTES,
    W_DUE_NS,
    W_FD,
    W_SLOT_COUNT,
    W_SLOTS,
    WAITING_AT,
    WAITING_COUNT,
    WAITING_DUE_NS,
    WAITING_WORDS,
    new_waiting,
    remove_waiting,
)


class WaitingFetches:
    """All waiting fetches of a shard.

    `arrays` is what kernels take. Invariant: a client has at most one row, since it sends nothing
    while it waits.
    """

    def __init__(self, slots: int) -> None:
        self.arrays = new_waiting(slots)
        table, self._requests, awaited = self.arrays
        self._rows = table[WAITING_AT:].reshape(-1, WAITING_WORDS)
        self._words, self._awaited = table.data, awaited.data

    def __len__(self) -> int:
        return int(self._words[WAITING_COUNT])

    @property
    def due_ns(self) -> int:
        """A lower bound of all deadlines (monotonic)."""
        return int(self._words[WAITING_DUE_NS])

    def clients(self) -> list[int]:
        """The descriptors of all waiting clients."""
        return _list(self._taken()[:, W_FD])

    def concerned(self, slots: Iterable[int]) -> list[int]:
        """The descriptors of the clients that wait for any of these partitions."""
        wanted = [slot for slot in slots if self._awaited[slot]]
        if not wanted:
            return []
        rows = self._taken()
        asked = np.isin(rows[:, W_SLOTS:], wanted)
        asked &= np.arange(asked.shape[1]) < rows[:, W_SLOT_COUNT, None]
        return _list(rows[asked.any(axis=1), W_FD])

    def due(self, now_ns: int) -> list[int]:
        """The descriptors of the clients whose deadline has passed; `due_ns` is exact
        afterwards."""
        rows = self._taken()
        is_due = rows[:, W_DUE_NS] <= now_ns
        self._words[WAITING_DUE_NS] = min(_list(rows[~is_due, W_DUE_NS]), default=NEVER_NS)
        return _list(rows[is_due, W_FD])

    def take(self, fd: int) -> tuple[np.ndarray, int]:
        """Remove a client; returns its request (uint8) and deadline."""
        [row] = np.flatnonzero(self._taken()[:, W_FD] == fd).tolist()
        size, due_ns = self._rows[row, [W_BYTES, W_DUE_NS]].tolist()
        start = row * REQUEST_BYTES_MAX
        request = self._requests[start : start + size].copy()
        remove_waiting(self.arrays, row)
        return request, due_ns

    def _taken(self) -> np.ndarray:
        return self._rows[: len(self)]


def _list(words: np.ndarray) -> list[int]:
    return [int(word) for word in words]
