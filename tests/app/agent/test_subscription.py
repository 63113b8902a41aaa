"""A partition as a stream gets it, step by step: with a reader and commits of the test's."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from smq.agent.in_flight import DELIVERIES_MAX, InstanceWindows, PartitionWindow, WindowLimits
from smq.agent.layouts import RingLayout, RingRange
from smq.agent.read_records import ReadRecord
from smq.agent.topic_names import TopicName
from smq.app.agent import subscription
from smq.app.agent.live import LiveSubscriber
from smq.app.agent.subscription import (
    HELD_RECORD_BYTES,
    PartitionSubscription,
    SoughtPlace,
    SubscriptionTerms,
)
from smq.app.agent.topics import KnownTopic
from smq.client.errors import NoSuchTopic
from smq.client.names import TopicPartition
from smq.client.producing.delivery.futures import BufferFull

TOPIC = KnownTopic(TopicName("kafka", "t"), UUID(int=1), {}, (RingLayout(1, 1),))
NAME = TopicPartition("t", 0)
SAID = -1, 0  # Of a seek: that it is done.
NOBODY = LiveSubscriber(
    topic=TOPIC.id,
    partition=RingRange(2520, 0, 2520, 0),
    group="g",
    consumer_id="c",
    client_id="",
    connected_ns=0,
    seen_ns=0,
)


def row(offset: int) -> ReadRecord:
    return ReadRecord(key=b"k", value=b"v", ts_ns=10**6, offset=offset)


class Log:
    """A cursor of rows that the test appends; offsets may have gaps."""

    def __init__(self, *offsets: int) -> None:
        self._rows = [*offsets]
        self._ahead = deque(map(row, offsets))
        self.position = 0
        self.closed = self.has_filtered = False
        self.passed: list[str] = []
        self._more = asyncio.Event()
        self._gap_end = 0

    def append_gap(self, end: int) -> None:
        """All up to an offset are no records: of an aborted transaction."""
        self._gap_end = end
        self._more.set()

    def append_unwanted(self, end: int) -> None:
        """The subscriber's filter wants none of the records up to an offset."""
        self.has_filtered = True
        self.append_gap(end)

    def append(self, offset: int) -> None:
        self._rows.append(offset)
        self._ahead.append(row(offset))
        self._more.set()

    def peek(self) -> ReadRecord | None:
        return self._ahead[0] if self._ahead else None

    def take(self) -> ReadRecord:
        message = self._ahead.popleft()
        self.position = message.offset + 1
        return message

    async def wait(self, _: float) -> bool:
        while not self._ahead:
            if self._gap_end > self.position:
                self.position = self._gap_end
                return False
            self._more.clear()
            await self._more.wait()
        return bool(self._ahead)

    def take_passed(self) -> list[str]:
        passed, self.passed = self.passed, []
        return passed

    def seek(self, offset: int) -> None:
        self.position = offset
        self.has_filtered = False
        self._ahead = deque(row(each) for each in self._rows if each >= offset)

    def close(self) -> None:
        self.closed = True


class Noted:
    """The commits of a group."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.has_topic = True

    def check(self, _: str) -> None:
        pass

    def is_there(self, topic: KnownTopic) -> bool:
        assert topic is TOPIC
        return self.has_topic

    def note(self, _: str, topic: KnownTopic, partition: int, offset: int) -> None:
        assert (topic, partition) == (TOPIC, 0)
        self.offsets.append(offset)

    async def flush(self, _: str) -> bool:
        return True


class Running:
    """A subscription, and what it has written."""

    def __init__(
        self, log: Log, *, tracks: bool = True, window: int = 8, keeps_commit: bool = False
    ) -> None:
        self.commits, self.log = Noted(), log
        self.written: asyncio.Queue[tuple[int, int]] = asyncio.Queue()
        self.said: list[str] = []
        limits = WindowLimits(window, ack_timeout_ms=10**6)
        means: Any = {"broker": None, "commits": self.commits, "reader": log}
        self.subscription = PartitionSubscription(
            topic=TOPIC,
            name=NAME,
            terms=SubscriptionTerms(
                group="g",
                instance=InstanceWindows(),
                tracks=lambda _: tracks,
                new_window=lambda begin: PartitionWindow(begin, limits),
            ),
            subscriber=NOBODY,
            keeps_commit=keeps_commit,
            **means,
        )

    async def write(self, message: ReadRecord, deliveries: int) -> None:
        await self.written.put((message.offset, deliveries))

    async def seek(self, offset: int, *, resets: bool = False) -> None:
        said = partial(self.written.put, SAID)
        await self.subscription.seek(SoughtPlace(offset, resets, said))

    async def say(self, sentence: str) -> None:
        self.said.append(sentence)

    async def read(self, count: int) -> list[tuple[int, int]]:
        async with asyncio.timeout(10):
            return [await self.written.get() for _ in range(count)]


@asynccontextmanager
async def running(log: Log, **options: Any) -> AsyncIterator[Running]:
    found = Running(log, **options)
    task = asyncio.create_task(found.subscription.run(found.write, found.say))
    yield found
    found.subscription.end()
    async with asyncio.timeout(10):
        await task
        await found.subscription.close()
    assert log.closed


def test_a_gap_is_committed_with_what_is_before_it() -> None:
    async def talk() -> None:
        async with running(Log(0, 5)) as found:
            assert await found.read(2) == [(0, 1), (5, 1)]
            found.subscription.acknowledge(0)
            assert found.commits.offsets == [5]
            found.subscription.acknowledge(5)
            assert found.commits.offsets == [5, 6]

    asyncio.run(talk())


def test_a_stream_says_which_batches_are_passed_over_and_goes_on() -> None:
    async def talk() -> None:
        log = Log(0)
        async with running(log) as found:
            await found.read(1)
            log.passed.append("1 to 4 cannot be read")
            log.append(5)
            assert await found.read(1) == [(5, 1)]
            assert found.said == ["1 to 4 cannot be read"]
            found.subscription.acknowledge(0)
            assert found.commits.offsets == [5]

    asyncio.run(talk())


async def gap_seen(found: Running, offset: int) -> None:
    async with asyncio.timeout(10):
        while found.subscription.window.commit < offset:  # noqa: ASYNC110  (it has no event)
            await asyncio.sleep(0)


def test_a_gap_is_committed_from_where_the_group_resumes() -> None:
    async def talk() -> None:
        log = Log()
        async with running(log) as found:
            log.append_gap(12)
            await gap_seen(found, 12)
            assert found.commits.offsets == [12]

    asyncio.run(talk())


@pytest.mark.parametrize("tracks", [True, False])
def test_a_gap_behind_an_exact_start_is_committed_with_the_first_record_done(tracks: bool) -> None:
    async def talk() -> None:
        log = Log()
        async with running(log, tracks=tracks, keeps_commit=True) as found:
            log.append_gap(12)
            await gap_seen(found, 12)
            assert found.commits.offsets == []
            log.append(12)
            await found.read(1)
            found.subscription.acknowledge(12)
            log.append_gap(15)
            await gap_seen(found, 15)
            assert found.commits.offsets == [13, 15]

    asyncio.run(talk())


def test_a_gap_behind_an_exact_seek_is_not_committed_and_one_behind_a_reset_is() -> None:
    async def talk() -> None:
        log = Log(0)
        async with running(log) as found:
            await found.read(1)
            found.subscription.acknowledge(0)
            await found.seek(5)
            log.append_gap(12)
            await gap_seen(found, 12)
            assert found.commits.offsets == [1]
            await found.seek(5, resets=True)
            await gap_seen(found, 12)
            assert found.commits.offsets == [1, 5, 12]

    asyncio.run(talk())


def test_records_behind_an_exact_place_that_a_filter_does_not_want_are_committed() -> None:
    async def talk() -> None:
        log = Log()
        async with running(log, keeps_commit=True) as found:
            log.append_unwanted(12)
            await gap_seen(found, 12)
            assert found.commits.offsets == [12]
            await found.seek(5)
            await gap_seen(found, 12)
            assert found.commits.offsets == [12]
            log.append_unwanted(20)
            await gap_seen(found, 20)
            assert found.commits.offsets == [12, 20]

    asyncio.run(talk())


class Full:
    """A broker's side whose producer has no room at first."""

    def __init__(self) -> None:
        self.tries = 0

    async def ask(self, *_: object) -> None:
        pass

    async def producer(self) -> "Full":
        return self

    def must_wait(self, *_: object) -> bool:
        return self.tries < 2

    def wait_for_room(self, *_: object) -> None:
        self.tries += 1
        if self.tries == 1:
            raise BufferFull("32 MiB linger")

    def send(self, *_: object, **fields: object) -> "asyncio.Future[None]":
        sent = asyncio.get_running_loop().create_future()
        sent.set_result(None)
        return sent


def test_a_dead_letter_without_room_is_written_again_and_ends_no_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subscription, "DEAD_LETTER_AGAIN_MS", 10)

    async def talk() -> None:
        async with running(Log(0)) as found:
            full: Any = Full()
            found.subscription.broker = full
            for delivery in range(1, DELIVERIES_MAX + 1):
                assert await found.read(1) == [(0, delivery)]
                found.subscription.release(0)
            await gap_seen(found, 1)
            assert full.tries == 2
            assert found.commits.offsets == [1]

    asyncio.run(talk())


class Deaf(Full):
    """A broker's side whose producer never has room."""

    def must_wait(self, *_: object) -> bool:
        return True

    def wait_for_room(self, *_: object) -> None:
        self.tries += 1
        raise BufferFull("32 MiB linger")


def test_a_seek_forgets_a_dead_letter_that_waits() -> None:
    async def talk() -> None:
        async with running(Log(0, 1)) as found:
            deaf: Any = Deaf()
            found.subscription.broker = deaf
            for delivery in range(1, DELIVERIES_MAX + 1):
                assert (0, delivery) in await found.read(2 if delivery == 1 else 1)
                found.subscription.release(0)
            async with asyncio.timeout(10):
                while not deaf.tries:  # noqa: ASYNC110  (it has no event)
                    await asyncio.sleep(0)
            await found.seek(1)
            assert await found.read(2) == [SAID, (1, 1)]
            found.subscription.acknowledge(1)
            await gap_seen(found, 2)

    asyncio.run(talk())


def test_a_full_window_holds_the_reader_back_until_an_ack() -> None:
    async def talk() -> None:
        async with running(Log(0, 1, 2), window=2) as found:
            await found.read(2)
            assert found.log.position == 2
            found.subscription.acknowledge(0)
            assert await found.read(1) == [(2, 1)]

    asyncio.run(talk())


def test_acknowledgements_on_their_way_are_waited_for_and_others_not_for_long() -> None:
    async def talk() -> None:
        found = Running(Log(0, 1))
        task = asyncio.create_task(found.subscription.run(found.write, found.say))
        await found.read(2)
        found.subscription.end()
        await task
        waiting = asyncio.create_task(found.subscription.acknowledged(60))
        for offset in (0, 1):
            await asyncio.sleep(0)
            assert not waiting.done()
            found.subscription.acknowledge(offset)
        await waiting
        assert found.commits.offsets == [1, 2]

        other = Running(Log(0))
        task = asyncio.create_task(other.subscription.run(other.write, other.say))
        await other.read(1)
        other.subscription.end()
        await task
        await other.subscription.acknowledged(0.01)
        assert other.commits.offsets == []

    asyncio.run(talk())


def test_a_refused_record_is_delivered_again_before_new_ones() -> None:
    async def talk() -> None:
        async with running(Log(0)) as found:
            await found.read(1)
            assert found.subscription.release(0)
            assert not found.subscription.release(7)
            assert await found.read(1) == [(0, 2)]

    asyncio.run(talk())


def test_records_that_are_not_tracked_are_committed_as_they_are_written() -> None:
    async def talk() -> None:
        async with running(Log(0, 1), tracks=False) as found:
            await found.read(2)
            found.log.append(2)
            await found.read(1)
            assert found.commits.offsets == [1, 2, 3]
            assert not found.subscription.acknowledge(1)

    asyncio.run(talk())


def test_a_seek_forgets_what_is_in_flight_and_a_reset_commits() -> None:
    async def talk() -> None:
        async with running(Log(0, 1, 2)) as found:
            await found.read(3)
            await found.seek(1, resets=True)
            assert found.commits.offsets == [1]
            assert await found.read(3) == [SAID, (1, 1), (2, 1)]
            assert not found.subscription.acknowledge(0)
            assert found.subscription.acknowledge(1)
            assert found.commits.offsets == [1, 2]

    asyncio.run(talk())


def test_a_seek_of_a_partition_that_is_released_is_refused() -> None:
    async def talk() -> None:
        async with running(Log()) as found:
            seeking = asyncio.create_task(found.seek(1))
            found.subscription.end()
            for seek in (seeking, found.seek(0)):
                with pytest.raises(ValueError, match="delivers the partition no more"):
                    async with asyncio.timeout(10):
                        await seek

    asyncio.run(talk())


def test_a_subscriber_learns_of_a_deletion_when_its_window_is_full() -> None:
    async def talk() -> None:
        found = Running(Log(0, 1), window=1)
        task = asyncio.create_task(found.subscription.run(found.write, found.say))
        await found.read(1)
        found.commits.has_topic = False
        async with asyncio.timeout(60):
            with pytest.raises(NoSuchTopic):
                await task

    asyncio.run(talk())


def test_small_records_in_flight_count_for_more_than_their_bytes() -> None:
    async def talk() -> None:
        async with running(Log(0, 1)) as found:
            await found.read(2)
            held = found.subscription.all_held
            assert held.total > 2 * HELD_RECORD_BYTES
            assert found.subscription._held_bytes < HELD_RECORD_BYTES
            found.subscription.acknowledge(0)
            found.subscription.acknowledge(1)
            assert held.total == 0

    asyncio.run(talk())
