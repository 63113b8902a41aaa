"""Batches on their way to a socket: kept as places, turned into bytes when they are sent.

A slow socket takes only a part. The rest is never kept as a pointer: when the socket can take more,
its bytes come from the ring if it still has them, otherwise from the WAL, checked. A background
thread reads bytes that are not in the page cache, so that other clients do not wait for the disk.

An answer has one Loan, which keeps the segments and files that its parts need: the answer's slot
(smq.app.shard.connections.connection) owns it, ends each part that is sent, and releases it once
the answer is sent or given up.
It keeps segments only while the log has space without them (smq.log.files.wal). A connection whose
bytes are gone is closed; its client asks again.
"""

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from shm.kernels.base.words import COUNTER_FETCHES_FROM_WAL
from shm.kernels.request.fetch import LEND_FROM_BYTES
from smq.log.files.background import Background, JobLane
from smq.log.files.disk import read_now
from smq.log.log import Log
from smq.log.reading import RUN_BYTES_MAX, WalRange

if TYPE_CHECKING:
    from smq.log.files.segment import WalSegment

GATHER_BYTES = 256 * 1024  # Gathered per call; fits a level-2 cache.
VIEWS_MAX = 64  # Batches lent to one sendmsg; the system takes 1024 at most.
FILE_CHUNK_BYTES = 1024 * 1024
SCRATCH_BYTES = 2 * RUN_BYTES_MAX  # With the frames of others between the batches.
RUN_BYTES_MIN = 64 * 1024  # Read ahead for a socket that takes less: one system call.


class Sendable(Protocol):
    """A part of an answer that can produce its bytes."""

    length: int

    def next_buffers(self) -> Sequence[memoryview]:
        """Some of the unsent bytes; valid until the next append or call.

        An empty list: they are on disk and must be loaded.
        """

    def load(self, ready: Callable[[], None]) -> None:
        """Have the next bytes read in the background; then `ready()` is called, in the loop."""

    def advance(self, sent: int) -> bool:
        """Note that this many bytes were sent; True when nothing is left."""

    def wait(self) -> None:
        """Queue it for sending: its segments stay while there is space. Holds neither memory nor a
        descriptor. This, hold() and release() are called by the answer's Loan."""

    def hold(self) -> None:
        """As wait(), while it is being made or sent in several steps: keeps its open file too."""

    def pause(self) -> None:
        """The socket is slow: give back the memory."""

    def release(self) -> None:
        """Hold nothing. It may be held again."""


class Loan:
    """What the parts of one answer hold. They may hold it by themselves, when they are sent."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: set[Sendable] = set()

    def hold(self, part: Sendable) -> None:
        """See Sendable. Raises OSError."""
        self._parts.add(part)
        part.hold()

    def wait(self, part: Sendable) -> None:
        """See Sendable."""
        self._parts.add(part)
        part.wait()

    def rest(self) -> None:
        """Hold nothing for now: the answer's turn is far off."""
        for part in self._parts:
            part.release()

    def end(self, part: Sendable) -> None:
        """A part is sent."""
        self._parts.discard(part)
        part.release()

    def release(self) -> None:
        """The answer is sent or given up, or its parts are made anew."""
        while self._parts:
            self._parts.pop().release()


class _Scratch:
    """Memory for one read of the WAL: fresh memory for each costs more than the read.

    It holds what `taker` read last, or that is lent until blocks are used again (`uses` of the
    log's PastCache, when it was read). Another taker reads again.
    """

    taker: "LentBatches | None" = None
    uses = 0

    def __init__(self) -> None:
        self.bytes_read = np.empty(SCRATCH_BYTES, np.uint8)
        self.batches = np.empty(RUN_BYTES_MAX, np.uint8)


class LentBatches:
    """Whole batches of one log.

    spans   int64 [n, 2]: (position of the batch, bytes), positions ascending
    """

    _scratch = _Scratch()
    _gathered = np.zeros(GATHER_BYTES, np.uint8)  # One for all: filled and sent at once.

    def __init__(self, log: Log, spans: np.ndarray, length: int) -> None:
        self._log, self._spans, self.length = log, spans, length
        self._ends = np.cumsum(spans[:, 1])
        self._sent = self._index = self._within = 0
        self._small = length < LEND_FROM_BYTES * len(spans)
        self._lent: list[WalSegment] = []
        self._loaded: tuple[WalRange, np.ndarray] | None = None
        self._from_wal: memoryview | None = None  # Read and checked, not sent yet.
        self._read_bytes = self._checked_count = 0  # The last read; those checked.
        self._run_bytes = RUN_BYTES_MAX

    def invariants(self) -> None:
        """Raise AssertionError when bytes to send are not where they should be."""
        assert 0 <= self._sent <= self.length == int(self._ends[-1])
        assert self._index == int(np.searchsorted(self._ends, self._sent, "right"))
        assert RUN_BYTES_MIN <= self._run_bytes <= RUN_BYTES_MAX
        assert all(segment.loans > 0 for segment in self._lent)

    def next_buffers(self) -> list[memoryview]:
        """See Sendable. Raises DamagedFrame."""
        left = self._spans[self._index :]
        if not self._log.in_ring(int(left[0, 0])):
            return self._read(left)
        if self._small:
            end = self._sent - self._within + GATHER_BYTES
            count = int(np.searchsorted(self._ends, end, "right")) - self._index
            if count:
                size = self._log.gather(left[:count], self._gathered)
                return [self._gathered.data[self._within : size]]
        views = self._log.views(left[:VIEWS_MAX])
        if self._within:
            views[0] = views[0][self._within :]
        return views

    def _read(self, left: np.ndarray) -> list[memoryview]:
        """Bytes of the WAL, if they can be had without waiting."""
        scratch, blocks = self._scratch, self._log.wal.past_cache
        if scratch.taker is not self or scratch.uses != blocks.uses:
            self._from_wal = None
            scratch.taker = self
        if self._from_wal is None and (self._loaded is not None or not self._read_on(left)):
            if self._loaded is None:
                found = self._log.read_runs(
                    left, self._run_bytes, scratch.bytes_read, scratch.batches
                )
                if found is None:
                    return []
                batches, count = found
            else:
                (run, data), self._loaded = self._loaded, None
                batches = self._log.batches_of(run, data, scratch.batches)
                count = len(run.spans)
            if not self._checked_count:  # Once, however often a slow socket has it read again.
                self._log.words[COUNTER_FETCHES_FROM_WAL] += 1
            self._from_wal = batches[self._within :]
            self._checked_count = self._index + count
            self._read_bytes = len(self._from_wal)
        assert self._from_wal
        scratch.uses = blocks.uses
        return [self._from_wal]

    def _read_on(self, left: np.ndarray) -> bool:
        """Read more of a batch that was already checked whole; whether it was.

        Otherwise a large batch would be read and checked again for every few bytes that a socket
        takes.
        """
        if not self._within or self._index >= self._checked_count:
            return False
        position, size = left[0].tolist()
        length = min(size - self._within, self._run_bytes)
        run = WalRange(position + self._within, length, left[:0])
        data = self._log.read_cached(run, self._scratch.bytes_read)
        if data is None or len(data) < length:
            return False
        self._from_wal, self._read_bytes = data.data, length
        return True

    def load(self, ready: Callable[[], None]) -> None:
        """See Sendable."""
        run = self._log.first_run(self._spans[self._index :], self._run_bytes)

        def loaded(data: np.ndarray) -> None:
            self._loaded = run, data
            ready()

        self._log.load(run, loaded)

    def advance(self, sent: int) -> bool:
        """See Sendable."""
        if self._from_wal is not None:
            self._from_wal = self._from_wal[sent:] or None
            if self._from_wal is None:
                self._run_bytes = min(RUN_BYTES_MAX, 2 * self._run_bytes)
        self._sent += sent
        assert self._sent <= self.length
        self._index = int(np.searchsorted(self._ends, self._sent, "right"))
        self._within = self._sent - (int(self._ends[self._index - 1]) if self._index else 0)
        return self._index == len(self._ends)

    def wait(self) -> None:
        """See Sendable."""
        self.hold()

    def hold(self) -> None:
        """See Sendable."""
        if not self._lent:
            self._lent = self._log.wal.covering(self._spans[self._index :, 0])
            for segment in self._lent:
                segment.loans += 1

    def pause(self) -> None:
        """See Sendable. Later calls read little more from the WAL than the socket takes."""
        if self._from_wal is not None:
            taken = self._read_bytes - len(self._from_wal)
            self._run_bytes = min(RUN_BYTES_MAX, max(RUN_BYTES_MIN, 2 * taken))
            self._from_wal = None

    def release(self) -> None:
        """See Sendable."""
        for segment in self._lent:
            segment.loans -= 1
            assert segment.loans >= 0
        self._lent = []
        self._from_wal = self._loaded = None
        if self._scratch.taker is self:
            self._scratch.taker = None


class FileRange:
    """Bytes of a cache file that the sealer has written for us.

    While held, the open file outlives its name. Waiting ranges keep no file open: otherwise a
    client that asks for much and reads nothing would use up all descriptors. So a file is opened
    again by its name, which no other file ever has; one that is not the first is refused.
    """

    def __init__(self, path: str, at: int, length: int, background: Background) -> None:
        self._path, self._fd = path, -1
        self._at, self._end, self.length = at, at + length, length
        self._background = background
        self._loaded: bytes | OSError | None = None
        self._file: tuple[int, ...] | None = None
        self._open()

    def _open(self) -> int:
        """The open file. Raises OSError, also if its name has come to another one."""
        if self._fd < 0:
            self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            status = os.fstat(self._fd)
            file = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
            if file != (self._file or file):
                self.release()
                raise OSError("a cache file of the sealer is another one than before")
            self._file = file
        return self._fd

    def head(self, count: int) -> bytes:
        """So many of the first bytes, which have just been written. Raises OSError."""
        return os.pread(self._open(), count, self._at)

    def next_buffers(self) -> list[memoryview]:
        """See Sendable. Raises OSError."""
        loaded, self._loaded = self._loaded, None
        if loaded is None:
            data = read_now(self._open(), self._chunk_bytes(), self._at)
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
        fd, size, at = os.dup(self._open()), self._chunk_bytes(), self._at

        def read() -> bytes:
            try:
                return os.pread(fd, size, at)
            finally:
                os.close(fd)

        def loaded(data: bytes | OSError) -> None:
            self._loaded = data
            ready()

        self._background.submit(JobLane.READS, read, loaded)

    def advance(self, sent: int) -> bool:
        """See Sendable."""
        self._at += sent
        return self._at == self._end

    def wait(self) -> None:
        """See Sendable."""
        self.release()

    def hold(self) -> None:
        """See Sendable. Raises OSError."""
        self._open()

    def pause(self) -> None:
        """See Sendable."""

    def release(self) -> None:
        """See Sendable."""
        self._loaded = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
