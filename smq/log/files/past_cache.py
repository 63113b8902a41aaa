"""Reads what the page cache has dropped: past it, into a few blocks that are used again.

A block is a piece of a segment's file. Who reads one has the next ones read ahead, so that a
sequential reader seldom waits; several readers that keep together share the blocks. A segment that
many read at different places, twice over in all, comes back into the page cache; it may be dropped
again before all have read it.
"""

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import numpy as np

from smq.log.files.background import Background, JobLane
from smq.log.files.disk import Disk
from smq.log.files.salvage import salvage
from smq.log.files.segment import WalSegment

BLOCK_BYTES = 2 * 1024 * 1024
AHEAD_BLOCKS = 2
BLOCKS_MIN = 2 * (2 + AHEAD_BLOCKS)  # A read may end in the block behind that where it begins.
READS_PER_SEGMENT = 2  # Past the page cache; who reads on brings it back.
REST_LOOKS = 10  # About a second each (Log.tend): then nobody reads any more.

Key = tuple[int, int]
"""Where a segment begins, and where a block begins in its file."""


class PastCache:
    """The blocks of one log.

    Invariants: a block is read, or free to be, but never both; none is used again while it is
    being read.

    count        how many blocks there may be
    find         the segment that covers a position
    comes_back   is called with a segment that is better read through the page cache
    """

    def __init__(
        self,
        disk: Disk,
        background: Background,
        count: int,
        find: Callable[[int], WalSegment | None],
        comes_back: Callable[[WalSegment], None],
    ) -> None:
        self._disk, self._background, self._count = disk, background, max(count, BLOCKS_MIN)
        self._find, self._comes_back = find, comes_back
        self._blocks: OrderedDict[Key, np.ndarray] = OrderedDict()  # The longest unused first.
        self._reading: set[Key] = set()
        self._free: list[np.ndarray] = []
        self._looks = 0

    def invariants(self) -> None:
        """Raise AssertionError when a block has two meanings, or there are too many."""
        assert not self._reading & self._blocks.keys()
        assert len(self._blocks) + len(self._reading) + len(self._free) <= self._count

    def read(
        self, segment: WalSegment, length: int, at: int, out: np.ndarray | None = None
    ) -> np.ndarray | None:
        """Bytes of a segment's file, in `out` (uint8) if that is long enough; None: load() them."""
        keys = _keys(segment, length, at)
        if not all(key in self._blocks for key in keys):
            return None
        if out is None or length > len(out):
            out = np.empty(length, np.uint8)
        for key in keys:
            block, start = self._blocks[key], key[1]
            self._blocks.move_to_end(key)
            first, last = max(at, start), min(at + length, start + BLOCK_BYTES)
            out[first - at : last - at] = block[first - start : last - start]
        self._looks = 0
        self._read_ahead(segment, keys[-1][1] + BLOCK_BYTES, AHEAD_BLOCKS)
        return out[:length]

    def load(
        self, segment: WalSegment, length: int, at: int, done: Callable[[np.ndarray], None]
    ) -> None:
        """As read(), in the background; zeros for what cannot be read."""
        keys = _keys(segment, length, at)
        if len(keys) + AHEAD_BLOCKS <= self._count // 2:
            for key in keys:
                self._want(segment, key)

        def read_plainly() -> np.ndarray:
            data = salvage(self._disk, segment.fd, length, at)[0]
            with suppress(OSError):  # All of it is on the disk. Nobody else would drop its pages.
                self._disk.drop(segment.fd, segment.end - segment.start)
            return data

        def given(data: np.ndarray | OSError) -> None:
            assert not isinstance(data, OSError)  # What cannot be read is zeros.
            segment.past_bytes += length
            self._bring_back(segment)
            done(data)

        def are_there(_: OSError | None) -> None:
            data = self.read(segment, length, at)
            if data is not None:
                done(data)
            else:  # They are too many, or cannot be read: with care, and by the page cache.
                self._background.submit(JobLane.READS, read_plainly, given)

        self._background.submit(JobLane.READS, _nothing, are_there)  # After the blocks' reads.

    def forget(self, segment: WalSegment) -> None:
        """Another file takes the place of a segment's."""
        for key in [key for key in self._blocks if key[0] == segment.start]:
            self._free.append(self._blocks.pop(key))

    def look(self) -> None:
        """Call about once a second: give back the memory when nobody reads any more."""
        self._looks += 1
        if self._looks > REST_LOOKS and not self._reading:
            self._blocks.clear()
            self._free.clear()

    def _read_ahead(self, segment: WalSegment, at: int, count: int) -> None:
        for start in range(at, at + count * BLOCK_BYTES, BLOCK_BYTES):
            if segment.start + start < segment.end:
                self._want(segment, (segment.start, start))
            else:
                following = self._find(segment.end)
                if following is not None and not following.is_cached:
                    self._want(following, (following.start, 0))
                return

    def _want(self, segment: WalSegment, key: Key) -> None:
        """Have a block read, if it is neither there nor being read and one can be used."""
        if key in self._blocks or key in self._reading:
            return
        memory = self._take()
        if memory is None:
            return
        self._reading.add(key)
        segment.pins += 1
        segment.past_bytes += BLOCK_BYTES

        def read() -> int:
            return self._disk.read_past_cache(segment.path, memory, key[1])

        self._background.submit(JobLane.READS, read, partial(self._is_read, segment, key, memory))

    def _take(self) -> np.ndarray | None:
        if self._free:
            return self._free.pop()
        if len(self._blocks) + len(self._reading) < self._count:
            return self._disk.block(BLOCK_BYTES)
        return self._blocks.popitem(last=False)[1] if self._blocks else None

    def _is_read(
        self, segment: WalSegment, key: Key, memory: np.ndarray, got: int | OSError
    ) -> None:
        segment.pins -= 1
        self._reading.remove(key)
        size = min(BLOCK_BYTES, segment.end - segment.start - key[1])
        if isinstance(got, OSError) or got < size:
            self._free.append(memory)
            return
        self._blocks[key] = memory
        self._bring_back(segment)

    def _bring_back(self, segment: WalSegment) -> None:
        """Have a segment read through the page cache from now on, if it was read often."""
        size = segment.end - segment.start
        if not segment.is_cached and segment.past_bytes > READS_PER_SEGMENT * size + BLOCK_BYTES:
            self._comes_back(segment)


def _keys(segment: WalSegment, length: int, at: int) -> list[Key]:
    """The blocks that have these bytes."""
    return [
        (segment.start, start) for start in range(at - at % BLOCK_BYTES, at + length, BLOCK_BYTES)
    ]


def _nothing() -> None:
    return
