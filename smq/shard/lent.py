"""Batches on their way to a socket: remembered as places, turned into bytes when they are sent.

A slow socket takes a part. What is left is never a pointer: when the socket can take more, the same
bytes come from the ring if it still has them, and otherwise from the WAL, checked. What is not in
the page cache is read in the background: whoever else is served does not wait for the disk.
"""

import os
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from shm.kernels.fetch_request import LEND_FROM_BYTES
from smq.log.background import Background, Lane
from smq.log.disk import read_now
from smq.log.log import Log

if TYPE_CHECKING:
    from smq.log.reading import Run
    from smq.log.wal import Segment

GATHER_BYTES = 256 * 1024  # Gathered at once; fits a level-2 cache.
VIEWS_MAX = 64  # Batches lent to one sendmsg; the system takes 1024 at most.
FILE_CHUNK_BYTES = 1024 * 1024


class Sendable(Protocol):
    """A part of an answer that knows how to give its bytes."""

    length: int

    def next_buffers(self) -> Sequence[memoryview]:
        """Some of the bytes that are not sent yet; valid until the next append or call.

        None at all: they are on the disk, and must be loaded.
        """

    def load(self, ready: Callable[[], None]) -> None:
        """Have the next bytes read in the background; then `ready()` is called, in the loop."""

    def advance(self, sent: int) -> bool:
        """So many of them were sent; True when nothing is left."""

    def hold(self) -> None:
        """It is not sent at once: until release() nothing of it is recycled."""

    def pause(self) -> None:
        """The socket is slow: no memory is kept for it."""

    def release(self) -> None:
        """Sent, or the connection is gone."""


class LentBatches:
    """Whole batches of one log.

    spans   int64 [n, 2]: (position of the batch, bytes), positions ascending
    """

    _gathered = np.zeros(GATHER_BYTES, np.uint8)  # One for all: filled and sent at once.

    def __init__(self, log: Log, spans: np.ndarray, length: int) -> None:
        self._log, self._spans, self.length = log, spans, length
        self._ends: list[int] = np.cumsum(spans[:, 1]).tolist()
        self._sent = self._index = self._within = 0
        self._small = length < LEND_FROM_BYTES * len(spans)
        self._pinned: list[Segment] = []
        self._loaded: tuple[Run, np.ndarray] | None = None
        self._from_wal: memoryview | None = None  # Read and checked, and not sent yet.

    def next_buffers(self) -> list[memoryview]:
        """See Sendable. Raises DamagedFrame."""
        left = self._spans[self._index :]
        if not self._log.in_ring(int(left[0, 0])):
            return self._read(left)
        if self._small:
            end = self._sent - self._within + GATHER_BYTES
            count = bisect_right(self._ends, end, self._index) - self._index
            if count:
                size = self._log.gather(left[:count], self._gathered)
                return [self._gathered.data[self._within : size]]
        views = self._log.views(left[:VIEWS_MAX])
        if self._within:
            views[0] = views[0][self._within :]
        return views

    def _read(self, left: np.ndarray) -> list[memoryview]:
        """Bytes of the WAL, if they can be had without waiting."""
        if self._from_wal is None:
            if self._loaded is None:
                run = self._log.first_run(left)
                data = self._log.read_cached(run)
                if data is None:
                    return []
            else:
                (run, data), self._loaded = self._loaded, None
            self._from_wal = self._log.batches_of(run, data)[self._within :]
        return [self._from_wal]

    def load(self, ready: Callable[[], None]) -> None:
        """See Sendable."""
        run = self._log.first_run(self._spans[self._index :])

        def loaded(data: np.ndarray) -> None:
            self._loaded = run, data
            ready()

        self._log.load(run, loaded)

    def advance(self, sent: int) -> bool:
        """See Sendable."""
        if self._from_wal is not None:
            self._from_wal = self._from_wal[sent:] or None
        self._sent += sent
        self._index = bisect_right(self._ends, self._sent, self._index)
        self._within = self._sent - (self._ends[self._index - 1] if self._index else 0)
        return self._index == len(self._ends)

    def hold(self) -> None:
        """See Sendable."""
        if not self._pinned:
            self._pinned = self._log.wal.covering(self._spans[self._index :, 0])
            for segment in self._pinned:
                segment.pins += 1

    def pause(self) -> None:
        """See Sendable. What was read of the WAL is read again."""
        self._from_wal = None

    def release(self) -> None:
        """See Sendable."""
        for segment in self._pinned:
            segment.pins -= 1
        self._pinned = []


class FileRange:
    """Bytes of a cache file that the sealer has written for us. The open file outlives its name."""

    def __init__(self, path: str, at: int, length: int, background: Background) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._at, self._end, self.length = at, at + length, length
        self._background = background
        self._loaded: bytes | OSError | None = None

    def next_buffers(self) -> list[memoryview]:
        """See Sendable. Raises OSError."""
        loaded, self._loaded = self._loaded, None
        if loaded is None:
            data = read_now(self._fd, self._chunk_bytes(), self._at)
            return [] if data is None else [data.data]
        if isinstance(loaded, OSError):
            raise loaded
        if len(loaded) < self._chunk_bytes():
            raise OSError("a cache file of the sealer is shorter than it said")
        return [memoryview(loaded)]

    def _chunk_bytes(self) -> int:
        return min(FILE_CHUNK_BYTES, self._end - self._at)

    def load(self, ready: Callable[[], None]) -> None:
        """See Sendable."""
        fd, size, at = os.dup(self._fd), self._chunk_bytes(), self._at

        def read() -> bytes:
            try:
                return os.pread(fd, size, at)
            finally:
                os.close(fd)

        def loaded(data: bytes | OSError) -> None:
            self._loaded = data
            ready()

        self._background.submit(Lane.READS, read, loaded)

    def advance(self, sent: int) -> bool:
        """See Sendable."""
        self._at += sent
        return self._at == self._end

    def hold(self) -> None:
        """See Sendable."""

    def pause(self) -> None:
        """See Sendable."""

    def release(self) -> None:
        """See Sendable."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
