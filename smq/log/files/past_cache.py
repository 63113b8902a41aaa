"""Reads what the page cache has dropped: past it, into a few blocks that are used again.

A block is a piece of a segment's file. Who reads one has the next ones read ahead, more and more as
it goes on, so that the disk is busy while a client takes its time between two fetches; several
readers that keep together share the blocks:

    unread   nobody has begun a read in it: it was read ahead
    open     its reader has not gone on to the next one
    done     its reader has; who follows soon finds it, else it is used again

Only a done block is used again: readers at different places do not take from each other what they
have yet to read, or each block would be read from the disk many times. So that all find one, each
reads less far ahead the more they are. Who finds none reads just the bytes that it wants. So does
who goes on after a long rest: its blocks would be used again before it comes the next time.

A segment that several read at different places comes back into the page cache, so that the disk is
read twice; it may be dropped again before all have read it.
"""

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from shm.kernels.base.words import SPACE_UNLIMITED
from smq.log.files.background import Background, JobLane
from smq.log.files.bad_pages import pages_of
from smq.log.files.disk import PAGE_BYTES, Disk
from smq.log.files.footprint import Footprint
from smq.log.files.salvage import ReadBytes, Salvaged, is_of_disk, salvage_some
from smq.log.files.segment import WalSegment

BLOCK_BYTES = 2 * 1024 * 1024
AHEAD_BLOCKS = 2  # After a first read.
AHEAD_BLOCKS_MAX = 8  # Of one who reads on: twice what clients mostly ask for at once.
BLOCKS_MIN = 2 * (2 + AHEAD_BLOCKS)  # A read may end in the block behind that where it begins.
SKIPPED_BLOCKS_MAX = 2  # Without a record of its partitions: who skips more is another reader.
READS_PER_SEGMENT = 2  # Past the page cache; who reads on brings it back.
REST_LOOKS = 10  # About a second each (Log.tend): then nobody reads any more.
ENDS_MAX = 4096  # Readers whose last read is known.
HELD_LOOKS = 2  # Then who has a block open, or had it read ahead, is gone, or slow.

Key = tuple[int, int]
"""Where a segment begins, and where a block begins in its file."""


@dataclass(slots=True, eq=False)
class FileBlock:
    """A piece of a file.

    memory   uint8 [BLOCK_BYTES]
    ahead    how many blocks behind it to read ahead when it is read
    used     the look in which it was wanted or read last
    """

    memory: np.ndarray
    ahead: int
    used: int


class _Load(NamedTuple):
    """Bytes that are awaited, and the blocks that have them."""

    segment: WalSegment
    length: int
    at: int
    keys: list[Key]
    done: Callable[[Salvaged], None]


class PastCache:
    """The blocks of one log.

    Invariants: a block is being read from the disk, or there, or free, and only one of these; none
    is used again while it is being read. One that is there is unread, open or done. A load that
    waits has a block that is being read.

    count        how many blocks there may be
    find         the segment that covers a position
    footprint    gets a segment that is better read through the page cache
    uses         grows when a block is used again, or given up: what was lent of one ends
    """

    def __init__(
        self,
        disk: Disk,
        background: Background,
        count: int,
        find: Callable[[int], WalSegment | None],
        footprint: Footprint,
    ) -> None:
        self._disk, self._background, self._count = disk, background, max(count, BLOCKS_MIN)
        self._find, self._footprint = find, footprint
        self._unread: OrderedDict[Key, FileBlock] = OrderedDict()  # The oldest first.
        self._open: OrderedDict[Key, FileBlock] = OrderedDict()  # The longest unused first.
        self._done: OrderedDict[Key, FileBlock] = OrderedDict()  # The next one to be used first.
        self._reading: set[Key] = set()
        self._failed: set[Key] = set()  # Not read again for a while: a bad sector takes seconds.
        self._free: list[np.ndarray] = []
        self._loads: list[_Load] = []
        self._looks = self._last_read = self.uses = 0
        self._ends: OrderedDict[Key, int] = OrderedDict()  # Blocks where reads ended, the look.
        self._last_back = SPACE_UNLIMITED  # Where the segment begins that came back last.

    def invariants(self) -> None:
        """Raise AssertionError when a block has two meanings, or there are too many."""
        there = self._unread.keys() | self._open.keys() | self._done.keys()
        assert len(there) == sum(map(len, self._there()))
        assert not self._reading & there
        assert not any(self._reading.isdisjoint(load.keys) for load in self._loads)
        assert len(there) + len(self._reading) + len(self._free) <= self._count

    def _there(self) -> tuple[OrderedDict[Key, FileBlock], ...]:
        return self._unread, self._open, self._done

    def _find_block(self, key: Key) -> FileBlock | None:
        return self._open.get(key) or self._unread.get(key) or self._done.get(key)

    def read(
        self, segment: WalSegment, length: int, at: int, out: np.ndarray | None = None
    ) -> np.ndarray | None:
        """Bytes of a segment's file; None: load() them.

        With `out` (uint8) they are lent until `uses` grows, or are there if that is long enough.
        """
        keys = _keys(segment, length, at)
        blocks = [block for block in map(self._find_block, keys) if block is not None]
        if len(blocks) < len(keys):
            return None
        self._use(segment, keys[0], blocks[0])
        for key in keys[1:]:
            self._hold(key)
        if out is not None and len(blocks) == 1:
            data = blocks[0].memory[at - keys[0][1] :][:length]
        else:
            data = np.empty(length, np.uint8) if out is None or length > len(out) else out[:length]
            for (_, start), block in zip(keys, blocks, strict=True):
                first, last = max(at, start), min(at + length, start + BLOCK_BYTES)
                data[first - at : last - at] = block.memory[first - start : last - start]
        self._last_read = self._looks
        self._note_end(segment, at + length)
        self._read_ahead(segment, keys[-1][1] + BLOCK_BYTES, max(block.ahead for block in blocks))
        return data

    def _note_end(self, segment: WalSegment, end: int) -> None:
        """A reader will go on from here."""
        key = segment.start, end - end % BLOCK_BYTES
        self._ends[key] = self._looks
        self._ends.move_to_end(key)
        if len(self._ends) > ENDS_MAX:
            self._ends.popitem(last=False)

    def _use(self, segment: WalSegment, key: Key, block: FileBlock) -> None:
        """Note that a read begins in a block: the reader has done with the one before."""
        block.used = self._looks
        if key not in self._open:
            self._finish_before(segment, key[1])
            for others in (self._unread, self._done):
                others.pop(key, None)
            self._open[key] = block
        self._open.move_to_end(key)

    def _finish_before(self, segment: WalSegment, at: int) -> None:
        """Of the blocks before a place, the nearest open one is done: its reader has come here. It
        may have skipped a few."""
        for _ in range(1 + SKIPPED_BLOCKS_MAX):
            if at == 0:
                before = self._find(segment.start - 1)
                if before is None:
                    return
                segment = before
                at = -(-(segment.end - segment.start) // BLOCK_BYTES) * BLOCK_BYTES
            at -= BLOCK_BYTES
            key = segment.start, at
            if key in self._open:
                self._done[key] = self._open.pop(key)
                return

    def _hold(self, key: Key) -> None:
        """A block is wanted again: another reader has done with it."""
        block = self._done.pop(key, None)
        if block is not None:
            block.used = self._looks
            self._unread[key] = block

    def load(
        self, segment: WalSegment, length: int, at: int, done: Callable[[Salvaged], None]
    ) -> None:
        """As read(), in the background; zeros for what cannot be read, or fails as is known."""
        keys = _keys(segment, length, at)
        is_rare = self._looks > self._ends.get(keys[0], self._looks) + REST_LOOKS
        if not is_rare and len(keys) + AHEAD_BLOCKS <= self._count // 2:
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
            load.done(Salvaged(data, 0, None))
            return

        there = self._parts_there(load)
        unread = segment.bad_pages.unread(at, length)

        def read_carefully() -> Salvaged:
            return _salvage_rest(partial(self.read_bytes, segment), length, at, unread, there)

        def given(found: Salvaged | OSError) -> None:
            assert not isinstance(found, OSError)  # What cannot be read is zeros.
            segment.past_bytes += length - sum(map(len, there.values()))
            self._note_end(segment, at + length)
            self._bring_back(segment)
            load.done(found)

        # There are no blocks for all of them: the others alone. What cannot be read, with care.
        self._background.submit(JobLane.READS, read_carefully, given)

    def _parts_there(self, load: _Load) -> dict[int, np.ndarray]:
        """What blocks have of a load's bytes, by their place in the file: the disk may not be able
        to read it any more. Copied, since a block may be used again."""
        there, end = dict[int, np.ndarray](), load.at + load.length
        for key in load.keys:
            block, start = self._find_block(key), key[1]
            if block is not None:
                first, last = max(load.at, start), min(end, start + BLOCK_BYTES)
                there[first] = block.memory[first - start : last - start].copy()
        return there

    def has(self, segment: WalSegment, at: int) -> bool:
        """Whether a block has what a segment's file has from a place on, to the end of a page."""
        return self._find_block((segment.start, at - at % BLOCK_BYTES)) is not None

    def read_bytes(self, segment: WalSegment, length: int, at: int) -> np.ndarray:
        """Bytes of a segment's file, past the page cache. Not in the loop. Raises OSError.

        What the disk cannot read the page cache may have: another program has read it before. It
        is asked for just that, as the disk may take seconds for each failure. Other errors of such
        a read say nothing of the bytes, such as that no more files can be opened.
        """
        try:
            past = self._read_past(segment, length, at)
            if past is not None:
                return past
        except OSError as error:
            if is_of_disk(error):
                return self._last_copy(segment, length, at, error)
        data = self._disk.read(segment.fd, length, at)
        self._drop(segment)
        return data

    def _last_copy(self, segment: WalSegment, length: int, at: int, failure: OSError) -> np.ndarray:
        """What the page cache has of what the disk cannot read. Raises the failure."""
        data = None
        with suppress(OSError):
            data = self._disk.read_cached(segment.fd, length, at)
        if data is None:
            raise failure
        segment.has_last_copy = True
        return data

    def _read_past(self, segment: WalSegment, length: int, at: int) -> np.ndarray | None:
        """Bytes of a segment, which is not cached; None: fewer came. Raises OSError."""
        first = at - at % PAGE_BYTES
        memory = self._disk.block(-(-(at + length - first) // PAGE_BYTES) * PAGE_BYTES)
        got = self._disk.read_past_cache(segment.path, memory, first)
        return memory[at - first :][:length] if got >= at + length - first else None

    def _drop(self, segment: WalSegment) -> None:
        """All of it is on the disk. Nobody else would drop the pages that a read has left."""
        if segment.has_last_copy:
            return
        with suppress(OSError):
            self._disk.drop(segment.fd, segment.end - segment.start)

    def forget(self, segment: WalSegment) -> None:
        """Another file takes the place of a segment's."""
        for blocks in self._there():
            for key in [key for key in blocks if key[0] == segment.start]:
                self._free.append(blocks.pop(key).memory)
        self._failed = {key for key in self._failed if key[0] != segment.start}
        self.uses += 1

    def look(self) -> None:
        """Call about once a second: give back the memory when nobody reads any more."""
        self._looks += 1
        if self._looks % REST_LOOKS == 0:
            self._failed.clear()
        for held in (self._unread, self._open):
            while held and next(iter(held.values())).used + HELD_LOOKS < self._looks:
                self._release(held, next(iter(held)))
        if self._looks > self._last_read + REST_LOOKS and not self._reading:
            for each in self._there():
                each.clear()
            self._free.clear()
            self.uses += 1

    def _release(self, held: OrderedDict[Key, FileBlock], key: Key) -> None:
        """Nobody will read a block: it is the next one to be used again."""
        self._done[key] = held.pop(key)
        self._done.move_to_end(key, last=False)

    def _read_ahead(self, segment: WalSegment, at: int, count: int) -> None:
        """Have `count` blocks read from a place on, also in the segments behind; fewer if not all
        who have a block open would find as many, and one be left."""
        ahead = min(2 * count, AHEAD_BLOCKS_MAX)
        for _ in range(min(count, (self._count - 1) // len(self._open) - 1)):
            if segment.start + at >= segment.end:
                following = self._find(segment.end)
                if following is None or following.is_cached:
                    return
                segment, at = following, 0
            self._want(segment, (segment.start, at), ahead, is_ahead=True)
            at += BLOCK_BYTES

    def _want(self, segment: WalSegment, key: Key, ahead: int, *, is_ahead: bool = False) -> None:
        """Have a block read, if one can be used; what is there is kept for who will read it."""
        self._hold(key)
        if key in self._reading or key in self._failed or self._find_block(key) is not None:
            return
        if len(segment.bad_pages.unread(key[1], BLOCK_BYTES)):
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
        """Memory for a block; None: none is done. The last one that is done is for a reader that
        has none: reading ahead does not take it. What is lent is open, or that one."""
        if self._free:
            return self._free.pop()
        if sum(map(len, self._there())) + len(self._reading) < self._count:
            return self._disk.block(BLOCK_BYTES)
        if len(self._done) <= is_ahead:
            return None
        self.uses += 1
        return self._done.popitem(last=False)[1].memory

    def _is_read(self, segment: WalSegment, key: Key, block: FileBlock, got: int | OSError) -> None:
        segment.pins -= 1
        self._reading.remove(key)
        size = min(BLOCK_BYTES, segment.end - segment.start - key[1])
        if isinstance(got, OSError) or got < size:
            self._free.append(block.memory)
            self._failed.add(key)
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
        size, reads = segment.end - segment.start, READS_PER_SEGMENT
        if 0 <= segment.start - self._last_back <= self._footprint.bytes_max:
            reads -= 1  # Who brought back one before it will come here.
        if segment.is_cached or segment.past_bytes <= reads * size + BLOCK_BYTES:
            return
        if len({start for start, _ in self._open}) * size >= self._footprint.bytes_max:
            return  # Each would be dropped before the others have read it.
        self._last_back = segment.start
        self._footprint.enter(segment)
        for key in [key for key in self._unread if key[0] == segment.start]:
            self._release(self._unread, key)
        for key in [key for key in self._open if key[0] == segment.start]:
            self._done[key] = self._open.pop(key)  # What was read last may be lent: it stays last.


def _salvage_rest(
    read: ReadBytes, length: int, at: int, unread: np.ndarray, there: dict[int, np.ndarray]
) -> Salvaged:
    """As salvage_some(), but for what is there."""
    pages = [page for first, part in there.items() for page in pages_of(first, len(part))]
    found = salvage_some(read, length, at, {*unread.tolist(), *pages})
    for first, part in there.items():
        found.data[first - at :][: len(part)] = part
    lost_bytes = found.lost_bytes - sum(map(len, there.values()))
    left_out = sorted({*unread.tolist()}.difference(pages))
    return found._replace(lost_bytes=lost_bytes, left_out=left_out)


def _keys(segment: WalSegment, length: int, at: int) -> list[Key]:
    """The blocks that have these bytes."""
    return [
        (segment.start, start) for start in range(at - at % BLOCK_BYTES, at + length, BLOCK_BYTES)
    ]
