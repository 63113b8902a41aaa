"""The fetches that wait in the kernel's table (shm.kernels.turn.parked), as the loop sees them.

A kernel parks a fetch there, and answers it when its records arrive. The loop takes a fetch over
when the kernel cannot continue: the client sends another request, the catalog or rights change, the
shard takes turns itself, or the fetch's deadline passes. Then it waits in the loop, for the same
partitions. After a change all are taken over, some of them a turn; until then a kernel answers one
by the catalog and the rights of now, or leaves it.
"""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import NamedTuple

import numpy as np

from shm.kernels.turn.limited import BARRED
from shm.kernels.turn.parked import (
    NEVER_NS,
    PARKED_AT,
    PARKED_COUNT,
    PARKED_DUE_NS,
    PARKED_WORDS,
    REQUEST_BYTES_MAX,
    W_BYTES,
    W_DUE_NS,
    W_FD,
    W_SLOT_COUNT,
    W_SLOTS,
    new_parked,
    unpark,
)
from shm.kernels.turn.words import LOOPS, PARKED
from smq.app.process.clock import monotonic_ns
from smq.app.process.loop import Loop, Timer
from smq.app.process.steps import Steps

UNPARKED_A_TURN = 50  # Up to 50 microseconds each.


class Parked(NamedTuple):
    """A fetch that was parked: its bytes (uint8), where it waits, its deadline (monotonic).

    is_outdated   its partitions may be elsewhere now, or read no more
    """

    request: np.ndarray
    slots: list[int]
    due_ns: int
    is_outdated: bool = False


class ParkedTable:
    """The table of a shard.

    `arrays` is what kernels take. Invariant: a client has at most one row, since it sends nothing
    while it waits.
    """

    def __init__(self, slots: int) -> None:
        self.arrays = new_parked(slots)
        table, self._requests, awaited = self.arrays
        self._rows = table[PARKED_AT:].reshape(-1, PARKED_WORDS)
        self._words, self._awaited = table.data, awaited.data

    def __len__(self) -> int:
        return int(self._words[PARKED_COUNT])

    @property
    def due_ns(self) -> int:
        """A lower bound of all deadlines (monotonic)."""
        return int(self._words[PARKED_DUE_NS])

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
        self._words[PARKED_DUE_NS] = min(_list(rows[~is_due, W_DUE_NS]), default=NEVER_NS)
        return _list(rows[is_due, W_FD])

    def take(self, fd: int) -> Parked:
        """Remove a client's fetch."""
        [row] = np.flatnonzero(self._taken()[:, W_FD] == fd).tolist()
        words, start = _list(self._rows[row]), row * REQUEST_BYTES_MAX
        request = self._requests[start : start + words[W_BYTES]].copy()
        if request[0] == BARRED:
            request[0] = 0
        unpark(self.arrays, row)
        return Parked(request, words[W_SLOTS:][: words[W_SLOT_COUNT]], words[W_DUE_NS])

    def _taken(self) -> np.ndarray:
        return self._rows[: len(self)]


class ParkedFetches:
    """Takes parked fetches over. `clients` says whose are (shm.kernels.turn.words).

    `take_over(fd, parked)` answers a client's fetch, or has it wait in the loop.
    """

    def __init__(
        self,
        loop: Loop,
        table: ParkedTable,
        clients: np.ndarray,
        take_over: Callable[[int, Parked], None],
    ) -> None:
        self._loop, self._table, self._clients = loop, table, clients
        self._take_over = take_over
        self._expiry: Timer | None = None
        self._outdated: dict[int, None] = {}  # Who had one there when something changed.
        self._steps = Steps(loop)

    def unpark(self, fd: int) -> None:
        """Take over a client's fetch, if it has one there."""
        if fd < len(self._clients) and self._clients[fd] == PARKED:
            self._clients[fd] = LOOPS
            parked = self._table.take(fd)
            self._take_over(fd, parked._replace(is_outdated=fd in self._outdated))
        self._outdated.pop(fd, None)

    def unpark_all(self) -> None:
        """Take over all of them now."""
        for fd in self._table.clients():
            self.unpark(fd)

    def look_again(self) -> None:
        """The catalog or rights have changed: take over all that wait, some now, the others in the
        next turns."""
        is_under_way = bool(self._outdated)
        self._outdated |= dict.fromkeys(self._table.clients())
        if not is_under_way and self._unpark_some():
            self._steps.add(self._unpark_some)

    def _unpark_some(self) -> bool:
        """Take over some that are outdated; returns whether others are left."""
        for fd in list(islice(self._outdated, UNPARKED_A_TURN)):
            self.unpark(fd)
        return bool(self._outdated)

    def moved(self, slots: Iterable[int]) -> None:
        """The loop has published records of these partitions."""
        if len(self._table):
            for fd in self._table.concerned(slots):
                self.unpark(fd)

    def watch(self) -> None:
        """A kernel may have parked some: set a timer for the first deadline of all."""
        due_ns = self._table.due_ns
        if due_ns < (NEVER_NS if self._expiry is None else self._expiry.due_ns):
            if self._expiry is not None:
                self._expiry.cancel()
            self._expiry = self._loop.call_at(due_ns, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        for fd in self._table.due(monotonic_ns()):
            self.unpark(fd)
        self.watch()


def _list(words: np.ndarray) -> list[int]:
    return [int(word) for word in words]
