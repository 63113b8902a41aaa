"""The consumer for asyncio: waits on the event loop, and never blocks it.

    async with client.consumer("clicks", group="readers") as consumer:
        async with await consumer.poll() as batch: ...
        async for record in consumer: ...

Records in the rings are taken on the loop itself, which takes microseconds. Calls that may ask a
broker (joining a group, fetches over the wire, commits) run in asyncio's threads. Only one task may
use a consumer at a time. A call may be cancelled: its thread ends before the next call begins, and
the records that it took are given again.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping
from datetime import datetime
from typing import Any, ParamSpec, Self, TypeVar

from smq.client.arguments import duration
from smq.client.consuming.batch.batch import Batch
from smq.client.consuming.batch.chunk import Record
from smq.client.consuming.consumer import SLEEP_SECONDS_MAX, Consumer
from smq.client.consuming.statistics import ConsumerStatistics
from smq.client.kafka.offsets import Start
from smq.client.names import GroupOffsets, OffsetsIn, TopicPartition
from smq.client.wait import wait_readable

P = ParamSpec("P")
R = TypeVar("R")


class AsyncConsumer:
    """The methods of Consumer, with its arguments and errors."""

    def __init__(self, open_consumer: Callable[[], Consumer]) -> None:
        self._open_consumer = open_consumer
        self._consumer: Consumer
        self._running: asyncio.Future[Any] | None = None  # In a thread.

    async def poll(self, timeout_s: float = 1.0) -> Batch:
        """The available records, or those that arrive in time; else an empty batch."""
        deadline = self._consumer.clock.monotonic_s() + duration("timeout_s", timeout_s)
        await self._settle()
        self._consumer.give_back()
        while True:
            batch = await self._take()
            if batch is not None:
                self._consumer.given()
                return batch
            left_s = deadline - self._consumer.clock.monotonic_s()
            if left_s <= 0:
                self._consumer.given()  # Nothing was taken.
                return Batch([])
            await self._sleep(left_s)

    async def _take(self) -> Batch | None:
        if not self._consumer.may_wait():
            batch = self._consumer.take(may_ask=False)
            if batch is not None or not self._consumer.may_wait():  # A shard may have ended.
                return batch
        return await self._in_thread(self._consumer.take)

    async def _in_thread(
        self, function: Callable[P, R], /, *args: P.args, **keywords: P.kwargs
    ) -> R:
        await self._settle()
        running = asyncio.ensure_future(asyncio.to_thread(function, *args, **keywords))
        self._running = running
        await asyncio.wait([running])  # Cancelling this leaves the thread running.
        self._running = None
        return running.result()

    async def _settle(self) -> None:
        """Wait for the thread of a cancelled call; return its records again."""
        running = self._running
        if running is not None:
            await asyncio.wait([running])
            running.exception()  # Retrieved, or asyncio logs it.
            if self._running is running:
                self._running = None

    async def _sleep(self, seconds: float) -> None:
        """Return when there may be records, or after the timeout."""
        loop, rung = asyncio.get_running_loop(), asyncio.Event()
        filenos = self._consumer.fall_asleep()
        if filenos is None:
            return
        try:
            for fileno in filenos:
                loop.add_reader(fileno, rung.set)
        except NotImplementedError:  # Windows' usual loop watches no descriptors.
            nap_s = self._consumer.nap_seconds(seconds)
            await self._in_thread(wait_readable, filenos, nap_s)
            return
        try:
            async with asyncio.timeout(self._consumer.nap_seconds(seconds)):
                await rung.wait()
        except TimeoutError:
            pass
        finally:
            for fileno in filenos:
                loop.remove_reader(fileno)

    async def __aiter__(self) -> AsyncIterator[Record]:
        """Records as they arrive, without end: copies, as in Consumer."""
        while True:
            for record in self._consumer.walk(await self.poll(SLEEP_SECONDS_MAX)):
                yield record

    async def follow(self, timeout_s: float | None = None) -> AsyncIterator[Record]:
        """Records from the end on; stops when none has arrived for `timeout_s`."""
        await self._in_thread(self._consumer.seek_to_end)
        while True:
            batch = await self.poll(SLEEP_SECONDS_MAX if timeout_s is None else timeout_s)
            if not batch and timeout_s is not None:
                return
            for record in self._consumer.walk(batch):
                yield record

    async def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read these partitions and no others."""
        await self._in_thread(self._consumer.assign, partitions)

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read now."""
        return self._consumer.assignment()

    def position(self, topic: str, partition: int) -> int:
        """The offset of the next record."""
        return self._consumer.position(topic, partition)

    async def seek(self, topic: str, partition: int, place: Start) -> None:
        """Continue at another place."""
        await self._in_thread(self._consumer.seek, topic, partition, place)

    async def pause(self, topic: str, partition: int) -> None:
        """Give no records of a partition until `resume`."""
        await self._in_thread(self._consumer.pause, topic, partition)

    async def resume(self, topic: str, partition: int) -> None:
        """Continue a paused partition."""
        await self._in_thread(self._consumer.resume, topic, partition)

    async def offsets_for_times(
        self, times: Mapping[tuple[str, int], datetime | int]
    ) -> dict[TopicPartition, int | None]:
        """The first offset at or after a time, by partition; None if there is none."""
        return await self._in_thread(self._consumer.offsets_for_times, times)

    async def find(self, place: Start) -> dict[TopicPartition, int]:
        """The offset of a place in each partition."""
        return await self._in_thread(self._consumer.find, place)

    async def lag(self) -> dict[TopicPartition, int]:
        """How many offsets each partition's position is behind its end."""
        return await self._in_thread(self._consumer.lag)

    async def commit(self, offsets: OffsetsIn | None = None) -> None:
        """Commit the positions, or these offsets."""
        await self._settle()
        await asyncio.wrap_future(self._consumer.commit_async(offsets))

    async def group_offsets(self, offsets: OffsetsIn | None = None) -> GroupOffsets:
        """The offsets that a transaction commits for our group."""
        await self._settle()
        return self._consumer.group_offsets(offsets)

    async def committed(self) -> dict[TopicPartition, int]:
        """The group's committed offsets of the assigned partitions."""
        return await self._in_thread(self._consumer.committed)

    @property
    def transport(self) -> str:
        """How records are read now."""
        return self._consumer.transport

    def statistics(self) -> ConsumerStatistics:
        """Counters of the records read so far."""
        return self._consumer.statistics()

    async def close(self, *, commit: bool = True) -> None:
        """Commit if commits are automatic, leave the group, and close everything."""
        consumer = self._consumer
        await self._in_thread(lambda: consumer.close(commit=commit))

    async def _open(self) -> Self:
        self._consumer = await asyncio.to_thread(self._open_consumer)
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        return self._open().__await__()

    async def __aenter__(self) -> Self:
        return await self._open()

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.close(commit=kind is None)
