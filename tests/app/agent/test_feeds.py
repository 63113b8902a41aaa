"""Feeds: a thousand subscribers, one reader at the end and one behind it, bounded memory."""

import asyncio
import threading
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any
from uuid import UUID

import grpc
import pytest

from smq.agent.layouts import RingLayout
from smq.agent.read_records import ReadRecord
from smq.agent.topic_names import TopicName
from smq.app.agent import feeds
from smq.app.agent.feeds import (
    AHEAD_BYTES,
    AHEAD_RECORDS,
    KEPT_MS,
    FeedBlock,
    FeedCursor,
    FeedName,
    Keep,
    KeptBlocks,
    PartitionFeeds,
)
from smq.app.agent.refusals import CallRefused
from smq.app.agent.topics import KnownTopic
from smq.model.errors import BrokerError, ErrorCode

TOPIC = KnownTopic(TopicName("kafka", "t"), UUID(int=1), {}, (RingLayout(1, 1),))
NAME = FeedName(TOPIC.id, 0)


def row(offset: int, value: bytes = b"v") -> ReadRecord:
    return ReadRecord(b"k", value, 10**6, offset)


class Log:
    """A partition, and the readers that are open on it. A read gives `batch` records at most."""

    def __init__(self, count: int, value: bytes = b"v", batch: int = 100) -> None:
        self.rows = [row(each, value) for each in range(count)]
        self.batch = batch
        self.grown = asyncio.Event()
        self.readers = self.closed = self.reads = 0
        self.failing: BrokerError | None = None
        self.passed: list[CallRefused] = []
        self.unreadable: dict[int, int] = {}  # From where to where.

    def append(self) -> None:
        self.rows.append(row(len(self.rows)))
        self.grown.set()
        self.grown = asyncio.Event()

    async def opened(self, _: KnownTopic, __: int, offset: int) -> Any:
        self.readers += 1
        return LogReader(self, offset)


class LogReader:
    def __init__(self, log: Log, offset: int) -> None:
        self._log, self.position = log, offset
        self._ahead: deque[ReadRecord] = deque()

    async def seek(self, offset: int) -> None:
        if offset != self.position:
            self._ahead.clear()
            self.position = offset

    def peek(self) -> ReadRecord | None:
        return self._ahead[0] if self._ahead else None

    async def take(self) -> ReadRecord:
        self.position += 1
        return self._ahead.popleft()

    async def wait(self, timeout_s: float) -> bool:
        if self._log.failing is not None:
            raise self._log.failing
        self._log.reads += 1
        if not self._ahead and self.position in self._log.unreadable:
            why = CallRefused(grpc.StatusCode.DATA_LOSS, f"not {self.position}")
            self._log.passed.append(why)
            self.position = self._log.unreadable[self.position]
            return False
        if not self._ahead and self.position >= len(self._log.rows):
            try:
                async with asyncio.timeout(timeout_s):
                    await self._log.grown.wait()
            except TimeoutError:
                return False
        if not self._ahead:
            self._ahead.extend(self._log.rows[self.position :][: self._log.batch])
        return True

    def take_passed(self) -> list[CallRefused]:
        passed, self._log.passed = self._log.passed, []
        return passed

    async def close(self) -> None:
        self._log.closed += 1


def wanted_of(wanted: set[int], found: Sequence[ReadRecord]) -> list[ReadRecord]:
    return [each for each in found if each.offset in wanted]


def feeds_of(log: Log) -> PartitionFeeds:
    readers: Any = log
    return PartitionFeeds(readers)


async def some(cursor: FeedCursor, count: int) -> list[int]:
    found: list[int] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            await cursor.wait(5)
            while len(found) < count and cursor.peek() is not None:
                found.append(cursor.take().offset)
    return found


async def closed(log: Log, count: int) -> None:
    """So many readers are closed, which nobody waits for."""
    async with asyncio.timeout(60):
        while log.closed < count:  # noqa: ASYNC110  (as above)
            await asyncio.sleep(0)
    assert log.closed == count


def test_subscribers_at_one_offset_share_one_reader_and_its_reads() -> None:
    async def talk() -> None:
        log = Log(1000)
        shared = feeds_of(log)
        cursors = [shared.cursor(TOPIC, 0, 0) for _ in range(100)]
        found = await asyncio.gather(*(some(each, 1000) for each in cursors))
        assert found == [[*range(1000)]] * 100
        waiting = [asyncio.create_task(some(each, 1)) for each in cursors]
        await asyncio.sleep(0)
        log.append()
        assert await asyncio.gather(*waiting) == [[1000]] * 100
        assert log.readers == 1
        assert log.reads < 20
        for each in cursors:
            each.close()
            each.close()
        await closed(log, 1)

    asyncio.run(talk())


def test_a_subscriber_behind_the_end_holds_no_other_up() -> None:
    async def talk() -> None:
        log = Log(1000)
        shared = feeds_of(log)
        at_end = shared.cursor(TOPIC, 0, 1000)
        waiting = asyncio.create_task(some(at_end, 1))
        await asyncio.sleep(0)
        behind = [shared.cursor(TOPIC, 0, offset) for offset in (0, 350, 990)]
        found = await asyncio.gather(*(some(each, 1000 - each.position) for each in behind))
        assert [each[0] for each in found] == [0, 350, 990]
        assert not waiting.done()
        log.append()
        assert await waiting == [1000]
        assert log.readers == 2
        for each in (at_end, *behind):
            each.close()
        await closed(log, 2)

    asyncio.run(talk())


def test_a_read_goes_on_when_the_subscriber_that_began_it_leaves() -> None:
    async def talk() -> None:
        log = Log(0)
        shared = feeds_of(log)
        first, second = shared.cursor(TOPIC, 0, 0), shared.cursor(TOPIC, 0, 0)
        gone = asyncio.create_task(first.wait(5))
        await asyncio.sleep(0)
        waiting = asyncio.create_task(some(second, 1))
        await asyncio.sleep(0)
        gone.cancel()
        first.close()
        log.append()
        assert await waiting == [0]
        assert log.readers == 1
        second.close()

    asyncio.run(talk())


def test_a_subscriber_that_seeks_often_leaves_no_reads_behind() -> None:
    async def talk() -> None:
        log = Log(100)
        shared = feeds_of(log)
        cursor, at_end = shared.cursor(TOPIC, 0, 0), shared.cursor(TOPIC, 0, 100)
        waiting = asyncio.create_task(some(at_end, 1))
        await asyncio.sleep(0)
        for offset in range(50):
            cursor.seek(offset)
            reading = asyncio.create_task(cursor.wait(5))
            await asyncio.sleep(0)
            reading.cancel()
        assert await some(cursor, 1) == [49]
        assert log.reads <= 4
        log.append()
        assert await waiting == [100]
        cursor.close()
        at_end.close()

    asyncio.run(talk())


def test_a_subscriber_asks_again_for_a_read_that_another_one_gives_up() -> None:
    async def talk() -> None:
        log = Log(100)
        shared = feeds_of(log)
        at_end = shared.cursor(TOPIC, 0, 100)
        holding = asyncio.create_task(some(at_end, 1))  # Those who want what is further on wait.
        await asyncio.sleep(0)
        gone, next_one = shared.cursor(TOPIC, 0, 101), shared.cursor(TOPIC, 0, 101)
        leaving = asyncio.create_task(gone.wait(5))
        await asyncio.sleep(0)
        leaving.cancel()
        staying = asyncio.create_task(some(next_one, 1))
        await asyncio.sleep(0)
        log.append()
        log.append()
        assert await holding == [100]
        assert await staying == [101]
        for each in (at_end, gone, next_one):
            each.close()

    asyncio.run(talk())


def test_all_subscribers_hear_what_is_passed_over_and_get_what_is_behind() -> None:
    async def talk() -> None:
        log = Log(100, batch=10)
        log.unreadable[20] = 30
        shared = feeds_of(log)
        cursors = [shared.cursor(TOPIC, 0, 0) for _ in range(3)]
        found = await asyncio.gather(*(some(each, 90) for each in cursors))
        assert found == [[*range(20), *range(30, 100)]] * 3
        assert [each.take_passed() for each in cursors] == [["not 20"]] * 3
        assert [each.take_passed() for each in cursors] == [[]] * 3
        for each in cursors:
            each.seek(20)
        assert not await cursors[0].wait(5)
        assert cursors[0].position == 30
        assert not await cursors[1].wait(5)
        cursors[1].seek(40)
        assert [each.take_passed() for each in cursors] == [["not 20"], [], []]
        for each in cursors:
            each.close()

    asyncio.run(talk())


def test_a_failed_read_raises_for_all_subscribers_and_the_next_read_opens_a_reader() -> None:
    async def talk() -> None:
        log = Log(1)
        log.failing = BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, "it is gone")
        shared = feeds_of(log)
        cursors = [shared.cursor(TOPIC, 0, 0) for _ in range(2)]
        found = await asyncio.gather(*(each.wait(5) for each in cursors), return_exceptions=True)
        assert found == [log.failing] * 2
        log.failing = None
        assert await some(cursors[0], 1) == [0]
        assert (log.readers, log.closed) == (2, 1)

    asyncio.run(talk())


@pytest.mark.parametrize(
    ("value", "places", "is_apart"),
    [(b"v", 1, False), (b"v", 99, True), (b"v" * (AHEAD_BYTES // 2), 1, True)],
)
def test_a_filter_that_reads_much_of_some_records_leaves_the_loop_to_others(
    value: bytes, places: int, is_apart: bool
) -> None:
    names = set[str]()

    def wanted(some: Sequence[ReadRecord]) -> Sequence[ReadRecord]:
        names.add(threading.current_thread().name.partition("_")[0])
        return some

    async def talk() -> None:
        cursor = feeds_of(Log(20, value)).cursor(TOPIC, 0, 0, Keep(wanted, places))
        assert await some(cursor, 3) == [0, 1, 2]
        cursor.close()

    asyncio.run(talk())
    assert names == {"apart" if is_apart else threading.current_thread().name}


def test_a_cursor_passes_over_records_that_its_filter_refuses() -> None:
    async def talk() -> None:
        wanted = {3, 5}
        keep = Keep(partial(wanted_of, wanted))
        cursor = feeds_of(Log(10)).cursor(TOPIC, 0, 0, keep)
        assert await cursor.wait(5)
        assert (cursor.take().offset, cursor.position) == (3, 4)
        assert (cursor.take().offset, cursor.position) == (5, 10)
        filtered = [cursor.has_filtered]
        wanted.clear()
        cursor.seek(2)
        filtered.append(cursor.has_filtered)
        assert not await cursor.wait(5)
        assert cursor.position == 10
        assert [*filtered, cursor.has_filtered] == [True, False, True]
        cursor.close()

    asyncio.run(talk())


def test_a_cursor_takes_few_records_and_a_large_read_becomes_many_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feeds, "BLOCK_BYTES", 100_000)

    async def talk() -> None:
        log = Log(1000, b"v" * 10_000, batch=1000)
        cursor = feeds_of(log).cursor(TOPIC, 0, 0)
        assert await cursor.wait(5)
        assert 10_000 * len(cursor._ahead) <= AHEAD_BYTES + 10_000
        assert await some(cursor, 1000) == [*range(1000)]
        assert log.reads == 100
        cursor.close()

    asyncio.run(talk())


def block(begin: int, end: int, size_bytes: int = 1) -> FeedBlock:
    return FeedBlock(
        begin, end, [ReadRecord(offset=each) for each in range(begin, end)], size_bytes
    )


def test_a_block_gives_some_records_and_the_offset_behind_them() -> None:
    messages, after = block(0, 1000).some(10)
    assert [each.offset for each in messages] == [*range(10, 10 + AHEAD_RECORDS)]
    assert after == 10 + AHEAD_RECORDS
    gap = FeedBlock(0, 50, [ReadRecord(offset=7)], 1)
    assert gap.some(8) == ([], 50)
    assert gap.some(3) == ([ReadRecord(offset=7)], 50)


def test_blocks_are_kept_up_to_a_bound_and_not_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "KEPT_BYTES_MAX", 10)
    now = [0]
    kept = KeptBlocks(lambda: now[0])
    other = FeedName(TOPIC.id, 1)
    for begin in range(0, 50, 10):
        kept.add(NAME, block(begin, begin + 10, 3))
        kept.add(other, block(5, 5))
        kept.invariants()
    assert [kept.find(NAME, each) is not None for each in (0, 19, 20, 29, 49, 50)] == [
        *(False, False, True, True, True, False)
    ]
    assert kept.find(other, 20) is None
    kept.add(NAME, block(20, 25, 1))
    kept.invariants()
    assert kept.size_bytes == 7
    now[0] = KEPT_MS
    assert kept.find(NAME, 22) is None
    assert kept.size_bytes == 0
    kept.add(NAME, block(0, 1))
    kept.forget(NAME)
    kept.invariants()
    assert kept.find(NAME, 0) is None
