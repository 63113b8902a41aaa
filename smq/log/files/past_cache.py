"""Reads what the page cache has dropped: past it, into a few blocks that are used again.

A block is a piece of a segment's file. Who reads one has the next ones read ahead, more and more as
it goes on, so that the disk is busy while a client takes its time between two fetches; several
readers that keep together share the blocks. What is read ahead takes only blocks that somebody has
read: many readers at different places must not take from each other what they have not read yet.

A segment that many read at different places, twice over in all, comes back into the page cache; it
may be dropped again before all have read it.
"""

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import numpy as np

from smq.log.files.background import Background, JobLane
from smq.log.files.disk import Disk
from smq.log.files.salvage import salvage
from smq.log.files.segment import WalSegment

BLOCK_BYTES = 2 * 1024 * 1024
AHEAD_BLOCKS = 2  # After a first read.
AHEAD_BLOCKS_MAX = 8  # Of one who reads on: twice what clients mostly ask for at once.
BLOCKS_MIN = 2 * (2 + AHEAD_BLOCKS)  # A read may end in the block behind that where it begins.
READS_PER_SEGMENT = 2  # Past the page cache; who reads on brings it back.
REST_LOOKS = 10  # About a second each (Log.tend): then nobody reads any more.
UNREAD_LOOKS = 2  # Then who had a block read ahead is gone, or slow.

Key = tuple[int, int]
"""Where a segment begins, and where a block begins in its file."""


class FileBlock(NamedTuple):
    """A piece of a file.

    memory   uint8 [BLOCK_BYTES]
    ahead    how many blocks behind it to read ahead when it is read
    since    the look in which its read was wanted
    """

    memory: np.ndarray
    ahead: int
    since: int


class _Load(NamedTuple):
    """Bytes that are awaited, and the blocks that have them."""

    segment: WalSegment
    length: int
    at: int
    keys: list[Key]
    done: Callable[[np.ndarray], None]


class PastCache:
    """The blocks of one log.

    Invariants: a block is being read from the disk, or there, or free, and only one of these; none
    is used again while it is being read. A load that waits has a block that is being read.

    count        how many blocks there may be
    find         the segment that covers a position
    comes_back   is called with a segment that is better read through the page cache
    uses         grows when a block is used again, or given up: what was lent of one ends
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
        self._unread: OrderedDict[Key, FileBlock] = OrderedDict()  # Read ahead; the oldest first.
        self._blocks: OrderedDict[Key, FileBlock] = OrderedDict()  # The longest unused first.
        self._reading: set[Key] = set()
        self._free: list[np.ndarray] = []
        self._loads: list[_Load] = []
        self._looks = self._last_read = self.uses = 0

    def invariants(self) -> None:
        """Raise AssertionError when a block has two meanings, or there are too many."""
        there = self._unread.keys() | self._blocks.keys()
        assert len(there) == len(self._unread) + len(self._blocks)
        assert not self._reading & there
        assert not any(self._reading.isdisjoint(load.keys) for load in self._loads)
        assert len(there) + len(self._reading) + len(self._free) <= self._count

    def read(
        self, segment: WalSegment, length: int, at: int, out: np.ndarray | None = None
    ) -> np.ndarray | None:
        """Bytes of a segment's file; None: load() them.

        With `out` (uint8) they are lent until `uses` grows, or are there if that is long enough.
        """
        keys = _keys(segment, length, at)
        if not all(key in self._blocks or key in self._unread for key in keys):
            return None
        blocks = [self._use(key) for key in keys]
        if out is not None and len(blocks) == 1:
            data = blocks[0].memory[at - keys[0][1] :][:length]
        else:
            data = np.empty(length, np.uint8) if out is None or length > len(out) else out[:length]
            for (_, start), block in zip(keys, blocks, strict=True):
                first, last = max(at, start), min(at + length, start + BLOCK_BYTES)
                data[first - at : last - at] = block.memory[first - start : last - start]
        self._last_read = self._looks
        self._read_ahead(segment, keys[-1][1] + BLOCK_BYTES, max(block.ahead for block in blocks))
        return data

    def _use(self, key: Key) -> FileBlock:
        """The block, from now on the last one to be used again."""
        block = self._unread.pop(key, None) or self._blocks[key]
        self._blocks[key] = block
        self._blocks.move_to_end(key)
        return block

    def load(
        self, segment: WalSegment, length: int, at: int, done: Callable[[np.ndarray], None]
    ) -> None:
        """As read(), in the background; zeros for what cannot be read."""
        keys = _keys(segment, length, at)
        if len(keys) + AHEAD_BLOCKS <= self._count // 2:
            for key in keys:
                self._want(segment, key, AHEAD_BLOCKS)
        load = _Load(segment, length, at, keys, done)
        if self._reading.isdisjoint(keys):
            self._answer(load)
        else:
            self._loads.append(load)

    def _answer(self, load: _Load) -> None:
        segment, length, at = load.segment, load.length, load.at
        data = self.read(segment, length, at)
        if data is not None:
            load.done(data)
            return

        def read_plainly() -> np.ndarray:
            data = salvage(self._disk, segment.fd, length, at)[0]
            with suppress(OSError):  # All of it is on the disk. Nobody else would drop its pages.
                self._disk.drop(segment.fd, segment.end - segment.start)
            return data

        def given(data: np.ndarray | OSError) -> None:
            assert not isinstance(data, OSError)  # What cannot be read is zeros.
            segment.past_bytes += length
            self._bring_back(segment)
            load.done(data)

        # They are too many, or cannot be read: with care, and by the page cache.
        self._background.submit(JobLane.READS, read_plainly, given)

    def forget(self, segment: WalSegment) -> None:
        """Another file takes the place of a segment's."""
        for blocks in (self._unread, self._blocks):
            for key in [key for key in blocks if key[0] == segment.start]:
                self._free.append(blocks.pop(key).memory)
        self.uses += 1

    def look(self) -> None:
        """Call about once a second: give back the memory when nobody reads any more."""
        self._looks += 1
        while self._unread and self._oldest_unread().since + UNREAD_LOOKS < self._looks:
            key, block = self._unread.popitem(last=False)
            self._blocks[key] = block
            self._blocks.move_to_end(key, last=False)
        if self._looks > self._last_read + REST_LOOKS and not self._reading:
            for each in (self._unread, self._blocks, self._free):
                each.clear()
            self.uses += 1

    def _oldest_unread(self) -> FileBlock:
        return next(iter(self._unread.values()))

    def _read_ahead(self, segment: WalSegment, at: int, count: int) -> None:
        """Have `count` blocks read from a place on, also in the segments behind."""
        ahead = min(2 * count, AHEAD_BLOCKS_MAX)
        for _ in range(count):
            if segment.start + at >= segment.end:
                following = self._find(segment.end)
                if following is None or following.is_cached:
                    return
                segment, at = following, 0
            self._want(segment, (segment.start, at), ahead, is_ahead=True)
            at += BLOCK_BYTES

    def _want(self, segment: WalSegment, key: Key, ahead: int, *, is_ahead: bool = False) -> None:
        """Have a block read, if it is neither there nor being read and one can be used."""
        if key in self._blocks or key in self._unread or key in self._reading:
            return
        memory = self._take(is_ahead=is_ahead)
        if memory is None:
            return
        self._reading.add(key)
        segment.pins += 1
        segment.past_bytes += BLOCK_BYTES
        block = FileBlock(memory, ahead, self._looks)

        def read() -> int:
            return self._disk.read_past_cache(segment.path, memory, key[1])

        self._background.submit(JobLane.READS, read, partial(self._is_read, segment, key, block))

    def _take(self, *, is_ahead: bool) -> np.ndarray | None:
        """Memory for a block. What is read ahead takes none of an unread one, nor that of the last
        one which was read: it may be lent."""
        if self._free:
            return self._free.pop()
        if len(self._unread) + len(self._blocks) + len(self._reading) < self._count:
            return self._disk.block(BLOCK_BYTES)
        self.uses += 1
        if len(self._blocks) > is_ahead:
            return self._blocks.popitem(last=False)[1].memory
        return self._unread.popitem(last=False)[1].memory if self._unread and not is_ahead else None

    def _is_read(self, segment: WalSegment, key: Key, block: FileBlock, got: int | OSError) -> None:
        segment.pins -= 1
        self._reading.remove(key)
        size = min(BLOCK_BYTES, segment.end - segment.start - key[1])
        if isinstance(got, OSError) or got < size:
            self._free.append(block.memory)
        else:
            self._unread[key] = block
            self._bring_back(segment)
        waiting, self._loads = self._loads, []
        for load in waiting:
            if self._reading.isdisjoint(load.keys):
                self._answer(load)
            else:
                self._loads.append(load)

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
