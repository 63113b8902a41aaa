"""A partition for all its subscribers: one reads it, and the others have what that one has read.

    log ──reader at the end──▶ ┌──────── blocks ────────┐ ──▶ cursor of a subscriber
    log ──reader behind it───▶ └────────────────────────┘ ──▶ cursor of another one, further back

A block is what one read gave. Who wants an offset that no kept block has reads it, or waits for who
already reads there. So a thousand subscribers at the end cost one reader, and those further back
take turns with another one. A cursor takes few records out of a block at a time and does not keep
it: a slow subscriber holds neither memory nor the others.

Blocks are kept up to a bound of bytes, and not for long: they serve those who read together.
"""

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import NamedTuple
from uuid import UUID

from smq.agent.read_records import ReadRecord
from smq.app.agent.apart import done_apart
from smq.app.agent.fetch_calls import STEP
from smq.app.agent.readers import Closings, PartitionReaders, Reader
from smq.app.agent.topics import KnownTopic
from smq.app.process.clock import monotonic_ms

MiB = 1024 * 1024
KEPT_BYTES_MAX, KEPT_MS = 64 * MiB, 30_000
RECORD_BYTES = 600  # In memory, beside its contents.
AHEAD_RECORDS, AHEAD_BYTES = 256, 64 * 1024  # What a cursor takes out of a block.
WAIT_AT_END_S = 1.0
WAIT_BEHIND_S = 0.1  # There are records, unless all up to the end were aborted or compacted.
AT_ONCE_BYTES_MAX = 64 * 1024
"""What takes longer for more bytes is done in a thread, where kernels hold nobody up."""
BLOCK_BYTES = 1024 * 1024  # A batch of the log may be much larger.

PLACES_AT_ONCE_MAX = 1024  # That a filter reads, of all records: some tens of microseconds each.


class Keep(NamedTuple):
    """Says which of some records a subscriber wants; `places`: how many of each it reads."""

    wanted: Callable[[Sequence[ReadRecord]], Sequence[ReadRecord]]
    places: int = 1

    def is_quick(self, some: Sequence[ReadRecord]) -> bool:
        """Whether that may be found out in the loop."""
        size_bytes = sum(each.size_bytes for each in some)
        places = len(some) * self.places
        return size_bytes <= AT_ONCE_BYTES_MAX and places <= PLACES_AT_ONCE_MAX


class FeedName(NamedTuple):
    """A partition of a topic, which no other of its name replaces."""

    topic: UUID
    partition: int


class FeedBlock(NamedTuple):
    """All records from `begin` on and below `end`, but for those that were `passed` over: sentences
    say which."""

    begin: int
    end: int
    records: Sequence[ReadRecord]
    size_bytes: int
    passed: Sequence[str] = ()

    def some(self, offset: int) -> tuple[Sequence[ReadRecord], int]:
        """A few records from an offset on, and the offset behind them."""
        start = bisect_left(self.records, offset, key=attrgetter("offset"))
        left_bytes, stop = AHEAD_BYTES, start
        while stop < min(len(self.records), start + AHEAD_RECORDS) and left_bytes > 0:
            left_bytes -= self.records[stop].size_bytes
            stop += 1
        is_all = stop == len(self.records)
        return self.records[start:stop], self.end if is_all else self.records[stop].offset


class KeptBlocks:
    """The blocks of all partitions, the oldest first."""

    def __init__(self, now_ms: Callable[[], int] = monotonic_ms) -> None:
        self._now_ms = now_ms
        self._blocks: OrderedDict[tuple[FeedName, int], tuple[FeedBlock, int]] = OrderedDict()
        self._begins: dict[FeedName, list[int]] = {}
        self.size_bytes = 0

    def find(self, name: FeedName, offset: int) -> FeedBlock | None:
        """The block that has an offset, if one is kept."""
        self._drop_old()
        begins = self._begins.get(name, ())
        place = bisect_right(begins, offset)
        if not place:
            return None
        block = self._blocks[name, begins[place - 1]][0]
        return block if offset < block.end else None

    def add(self, name: FeedName, block: FeedBlock) -> None:
        """Keep a block, instead of others if there are too many."""
        if block.begin == block.end:
            return
        self._drop(name, block.begin)
        self._blocks[name, block.begin] = block, self._now_ms() + KEPT_MS
        insort(self._begins.setdefault(name, []), block.begin)
        self.size_bytes += block.size_bytes
        self._drop_old()

    def forget(self, name: FeedName) -> None:
        """Nobody reads a partition any more."""
        for begin in [*self._begins.get(name, ())]:
            self._drop(name, begin)

    def _drop_old(self) -> None:
        while self._blocks:
            (name, begin), (_, due_ms) = next(iter(self._blocks.items()))
            if self.size_bytes <= KEPT_BYTES_MAX and self._now_ms() < due_ms:
                return
            self._drop(name, begin)

    def _drop(self, name: FeedName, begin: int) -> None:
        found = self._blocks.pop((name, begin), None)
        if found is None:
            return
        self.size_bytes -= found[0].size_bytes
        begins = self._begins[name]
        del begins[bisect_left(begins, begin)]
        if not begins:
            del self._begins[name]

    def invariants(self) -> None:
        assert self.size_bytes == sum(block.size_bytes for block, _ in self._blocks.values())
        pairs = {(name, begin) for name, begins in self._begins.items() for begin in begins}
        assert pairs == self._blocks.keys()
        assert all(begins == sorted(begins) for begins in self._begins.values())


class _ReaderLane:
    """A reader, and who has it. `position`: it has read, or reads, what is below."""

    def __init__(self, wait_s: float) -> None:
        self.lock, self.position, self.wait_s = asyncio.Lock(), -1, wait_s
        self.reader: Reader | None = None

    async def close(self) -> None:
        reader, self.reader = self.reader, None
        if reader is not None:
            await reader.close()


class _SharedRead:
    """A read that is asked for, and how many wait for it."""

    def __init__(self, task: asyncio.Task[FeedBlock]) -> None:
        self.task, self.waiting, self.has_begun = task, 0, False


class PartitionFeed:
    """What the subscribers of one partition share."""

    def __init__(
        self, topic: KnownTopic, partition: int, readers: PartitionReaders, kept: KeptBlocks
    ) -> None:
        self._topic, self._partition, self._readers, self._kept = topic, partition, readers, kept
        self.name = FeedName(topic.id, partition)
        self.cursors = 0
        self._at_end, self._behind = _ReaderLane(WAIT_AT_END_S), _ReaderLane(WAIT_BEHIND_S)
        self._reads: dict[int, _SharedRead] = {}

    async def block(self, offset: int, timeout_s: float) -> FeedBlock | None:
        """The block that has an offset; it may be empty. None: it did not come in time.

        Raises BrokerError.
        """
        kept = self._kept.find(self.name, offset)
        if kept is not None:
            return kept
        read = self._reads.get(offset)
        if read is None:
            read = self._reads[offset] = _SharedRead(asyncio.create_task(self._read(offset)))
            read.task.add_done_callback(partial(self._ended, offset, read))
        read.waiting += 1
        try:
            await asyncio.wait([read.task], timeout=timeout_s)
        except asyncio.CancelledError:
            if read.waiting == 1 and not read.has_begun:  # Who seeks often leaves no queue behind.
                read.task.cancel()
                self._forget(offset, read)  # Whoever asks from now on waits for another one.
            raise
        finally:
            read.waiting -= 1
        return read.task.result() if read.task.done() else None

    def _ended(self, offset: int, read: _SharedRead, task: asyncio.Task[FeedBlock]) -> None:
        self._forget(offset, read)
        if not task.cancelled():
            task.exception()  # Retrieved, or asyncio logs it: there may be nobody left to tell.

    def _forget(self, offset: int, read: _SharedRead) -> None:
        if self._reads.get(offset) is read:
            del self._reads[offset]

    async def _read(self, offset: int) -> FeedBlock:
        lane = self._behind if offset < self._at_end.position else self._at_end
        lane.position = max(lane.position, offset)
        async with lane.lock:
            self._reads[offset].has_begun = True
            kept = self._kept.find(self.name, offset)
            if kept is not None:
                return kept
            try:
                block = await self._read_by(lane, offset)
            except BaseException:
                await lane.close()
                raise
        self._kept.add(self.name, block)
        return block

    async def _read_by(self, lane: _ReaderLane, offset: int) -> FeedBlock:
        if lane.reader is None:
            lane.reader = await self._readers.opened(self._topic, self._partition, offset)
        else:
            await lane.reader.seek(offset)
        reader, records, size_bytes = lane.reader, list[ReadRecord](), 0
        await reader.wait(lane.wait_s)
        while reader.peek() is not None and size_bytes < BLOCK_BYTES:
            record = await reader.take()
            records.append(record)
            size_bytes += record.size_bytes + RECORD_BYTES
            if len(records) % STEP == 0:
                await asyncio.sleep(0)
        end = max(offset, reader.position)
        lane.position = max(lane.position, end)
        passed = [each.sentence for each in reader.take_passed()]
        return FeedBlock(offset, end, records, size_bytes, passed)

    async def close(self) -> None:
        """Read no more."""
        self._kept.forget(self.name)
        tasks = [each.task for each in self._reads.values()]
        for each in tasks:
            each.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._at_end.close()
        await self._behind.close()


class FeedCursor:
    """A subscriber's place. `position` is the offset of its next record, or below it in a gap.

    Records that `keep` does not want are passed over; `has_filtered`: there were some since it
    began, or since it was sought elsewhere.
    """

    def __init__(
        self, feeds: "PartitionFeeds", feed: PartitionFeed, offset: int, keep: Keep | None
    ) -> None:
        self._feeds, self._feed, self._keep = feeds, feed, keep
        self._ahead: deque[ReadRecord] = deque()
        self._passed: list[str] = []
        self._read_to = self.position = offset
        self.has_filtered = False
        self._is_open = True

    def seek(self, offset: int) -> None:
        """Continue at another offset."""
        self._ahead.clear()
        self._passed.clear()
        self._read_to = self.position = offset
        self.has_filtered = False

    def peek(self) -> ReadRecord | None:
        """The next record, if it was read already."""
        return self._ahead[0] if self._ahead else None

    def take(self) -> ReadRecord:
        """Take the record that `peek` shows."""
        record = self._ahead.popleft()
        self.position = record.offset + 1 if self._ahead else self._read_to
        return record

    async def wait(self, timeout_s: float) -> bool:
        """Have records that are there, or come in time; whether there is one now.

        Raises BrokerError.
        """
        if self._ahead:
            return True
        block = await self._feed.block(self._read_to, timeout_s)
        if block is None:
            return False
        some, read_to = block.some(self._read_to)
        kept = await self._kept(some)
        self._read_to = read_to
        self.has_filtered |= len(kept) < len(some)
        self._passed += block.passed
        self._ahead.extend(kept)
        if not self._ahead:
            self.position = self._read_to
        return bool(self._ahead)

    def take_passed(self) -> list[str]:
        """Sentences about the batches that were passed over since the last call."""
        passed, self._passed = self._passed, []
        return passed

    async def _kept(self, some: Sequence[ReadRecord]) -> Sequence[ReadRecord]:
        if self._keep is None:
            return some
        if self._keep.is_quick(some):
            return self._keep.wanted(some)
        return await done_apart(partial(self._keep.wanted, some))

    def close(self) -> None:
        """The subscriber has gone."""
        if self._is_open:
            self._is_open = False
            self._feeds.left(self._feed)


class PartitionFeeds:
    """The partitions that have subscribers."""

    def __init__(self, readers: PartitionReaders) -> None:
        self._readers, self._kept = readers, KeptBlocks()
        self._feeds: dict[FeedName, PartitionFeed] = {}
        self._closings = Closings()

    def cursor(
        self, topic: KnownTopic, partition: int, offset: int, keep: Keep | None = None
    ) -> FeedCursor:
        """A place in a partition."""
        name = FeedName(topic.id, partition)
        feed = self._feeds.get(name)
        if feed is None:
            feed = PartitionFeed(topic, partition, self._readers, self._kept)
            self._feeds[name] = feed
        feed.cursors += 1
        return FeedCursor(self, feed, offset, keep)

    def left(self, feed: PartitionFeed) -> None:
        """One of a partition's subscribers has gone."""
        feed.cursors -= 1
        if not feed.cursors:
            del self._feeds[feed.name]
            self._closings.begin(feed.close())
