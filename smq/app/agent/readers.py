"""Readers of partitions: each has a consumer of the SDK, and gives records one after the other.

A consumer lends its records; a reader copies a batch at once, so that a slow client holds nothing
back, and keeps what its last caller had no room for. It sees committed records only. A batch that
inflates far is read apart, in pieces; one that cannot be read is passed over, and said.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine
from functools import partial
from typing import Any

import numpy as np

from shm.kernels.reader.messages import MESSAGE_REST_BYTES, write_messages
from shm.kernels.record.records import C_HEADER_COUNT, C_KEY_LENGTH, C_VALUE_LENGTH
from smq.agent.read_records import ReadRecord
from smq.app.agent.apart import COPIED_AT_ONCE_BYTES, done_apart, done_by_size
from smq.app.agent.broker import BrokerSide
from smq.app.agent.consumed import copied, headers_of, memory_of, read_record
from smq.app.agent.large_batches import INFLATED_BYTES_MAX, LargeBatches
from smq.app.agent.refusals import CallRefused
from smq.app.agent.topics import KnownTopic
from smq.client.client import Client
from smq.client.consuming.aio_consumer import AsyncConsumer
from smq.client.consuming.batch.batch import Batch
from smq.client.consuming.batch.chunk import Record
from smq.client.errors import Overrun, UnreadableBatch

BATCH_BYTES = 256 * 1024  # Copied at a time.
IDLE_MAX = 64  # Readers that wait for another FetchMessage.
HEADERS_AT_ONCE, HEADERS_AT_ONCE_BYTES = 1024, 1024 * 1024
"""More headers, or those of a record among so many bytes, are written apart: a batch of a kilobyte
may have millions. Others take a millisecond or two."""


class Reader:
    """Reads one partition. `position` is the offset of the next record, or below it in a gap."""

    def __init__(self, topic: KnownTopic, partition: int, large: LargeBatches) -> None:
        self._topic, self._partition, self._large = topic, partition, large
        self._ahead: deque[Record | ReadRecord] = deque()
        self._consumer: AsyncConsumer
        self._options: dict[str, Any] = {
            "isolation_level": "read_committed",
            "topic_ids": {topic.kafka_name: topic.id},
        }
        self._read_to = self._large_end = -1
        self._passed: list[CallRefused] = []
        self.position = -1

    async def open(self, client: Client, offset: int) -> None:
        """Begin at an offset. Raises BrokerError."""
        name, partition = self._topic.kafka_name, self._partition
        self._consumer = await AsyncConsumer(
            partial(
                client.consumer,
                start=offset,
                batch_bytes_max=BATCH_BYTES,
                inflated_bytes_max=INFLATED_BYTES_MAX,
                **self._options,
            )
        )
        await self._consumer.assign([(name, partition)])
        self.position = self._read_to = offset

    async def seek(self, offset: int) -> None:
        """Continue at another offset."""
        if self.position <= offset < self._read_to:
            while self._ahead and self._ahead[0].offset < offset:
                self._ahead.popleft()
        elif offset != self._read_to or self._ahead:
            self._ahead.clear()
            self._large_end = -1
            await self._consumer.seek(self._topic.kafka_name, self._partition, offset)
            self._read_to = offset
        self.position = offset

    def peek(self) -> Record | ReadRecord | None:
        """The next record, if it was read already."""
        return self._ahead[0] if self._ahead else None

    async def read(self) -> ReadRecord:
        """The record that `peek` shows."""
        record = self._ahead[0]
        if isinstance(record, ReadRecord):
            return record
        found = await _without_headers(record)
        chunk, count = record.chunk, record.chunk.columns.item(C_HEADER_COUNT, record.row)
        if count > HEADERS_AT_ONCE or (count and chunk.memory.nbytes > HEADERS_AT_ONCE_BYTES):
            found.headers = await done_apart(partial(headers_of, record))
        else:
            found.headers = headers_of(record)
        return found

    async def take(self) -> ReadRecord:
        """Take the record that `peek` shows."""
        record = await self.read()
        self.skip()
        return record

    async def take_plain(self) -> ReadRecord:
        """Take the record that `peek` shows, without its headers."""
        record = self._ahead[0]
        found = record if isinstance(record, ReadRecord) else await _without_headers(record)
        found.headers = b""
        self.skip()
        return found

    def skip(self) -> None:
        """Pass over the record that `peek` shows."""
        record = self._ahead.popleft()
        self.position = record.offset + 1 if self._ahead else self._read_to

    async def take_messages(self, count_max: int, bytes_max: int) -> tuple[bytes, int]:
        """Take records whose offsets follow one another, from the one that `peek` shows, written as
        the messages of a FetchMessageResponse; how many. None if it has headers or no room, or was
        read apart."""
        record = self._ahead[0]
        if isinstance(record, ReadRecord):
            return b"", 0
        chunk = record.chunk
        if chunk.columns.item(C_HEADER_COUNT, record.row):
            return b"", 0
        work = partial(self._take_messages, record, count_max, bytes_max)
        return await done_by_size(work, chunk.memory.nbytes, COPIED_AT_ONCE_BYTES)

    def _take_messages(self, record: Record, count_max: int, bytes_max: int) -> tuple[bytes, int]:
        _, _, chunk, row = record
        end = min(len(chunk), row + count_max)
        data = memory_of(chunk)
        room = min(bytes_max, data.nbytes + (end - row) * MESSAGE_REST_BYTES)
        out = np.empty(room, np.uint8)
        stop, size = write_messages(data, chunk.columns, row, end, out)
        for _ in range(stop - row):
            self.skip()
        return copied(out[:size].data), stop - row

    async def wait(self, timeout_s: float) -> bool:
        """Read what is there, or arrives in time; whether there is a record now.

        Raises BrokerError.
        """
        if self._ahead:
            return True
        if self._read_to >= self._large_end:
            await self._poll(timeout_s)
        if self._read_to < self._large_end:
            await self._read_large()
        if not self._ahead:
            self.position = self._read_to
        return bool(self._ahead)

    async def _poll(self, timeout_s: float) -> None:
        try:
            async with await self._consumer.poll(timeout_s) as batch:
                if batch:
                    copy = partial(_records_of, batch)
                    found = await done_by_size(copy, batch.size_bytes, COPIED_AT_ONCE_BYTES)
                    self._ahead.extend(found)
        except Overrun:  # It is read again.
            self._ahead.clear()
        except UnreadableBatch as error:  # For this consumer: another one may inflate it.
            self._large_end = error.end
        else:
            self._read_to = self._consumer.position(self._topic.kafka_name, self._partition)

    async def _read_large(self) -> None:
        """Read a piece of a large batch, or pass over one that cannot be read."""
        topic, partition, records = self._topic, self._partition, list[ReadRecord]()
        try:
            records, end = await self._large.read(topic, partition, self._read_to, self._options)
        except UnreadableBatch as error:
            self._passed.append(self._large.pass_over(topic, error))
            end = error.end
        if end >= self._large_end:  # First: if this is cancelled, all is as before.
            await self._consumer.seek(topic.kafka_name, partition, end)
        self._ahead.extend(records)
        self._read_to = end

    @property
    def has_passed(self) -> bool:
        """Whether `take_passed` has any."""
        return bool(self._passed)

    def take_passed(self) -> list[CallRefused]:
        """Why batches were passed over since the last call."""
        passed, self._passed = self._passed, []
        return passed

    def rest(self) -> None:
        """Keep nothing of a large batch until the next seek, which may be long in coming."""
        if self._ahead and isinstance(self._ahead[0], ReadRecord):
            self._ahead.clear()
            self._read_to = -1

    async def close(self) -> None:
        """Close the consumer."""
        await self._consumer.close()


class Closings:
    """What is being closed. Nobody waits for it: a reader may still ask a shard that is gone, for
    half a minute, and holds up no stream's end and no stop of the broker."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, closing: Coroutine[Any, Any, None]) -> None:
        """Close something from now on."""
        task = asyncio.create_task(closing)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class PartitionReaders:
    """Readers that are open and idle, for callers who name an offset each time."""

    def __init__(self, broker: BrokerSide, large: LargeBatches) -> None:
        self._broker, self._large = broker, large
        self._idle: deque[tuple[tuple[object, int], Reader]] = deque()
        self._closings = Closings()

    async def at(self, topic: KnownTopic, partition: int, offset: int) -> Reader:
        """A reader at an offset, for the caller alone until it is given back.

        Raises BrokerError.
        """
        key = topic.id, partition
        found = next((each for each in self._idle if each[0] == key), None)
        if found is None:
            return await self.opened(topic, partition, offset)
        self._idle.remove(found)
        reader = found[1]
        await reader.seek(offset)
        return reader

    async def opened(self, topic: KnownTopic, partition: int, offset: int) -> Reader:
        """A new reader. Raises BrokerError."""
        reader = Reader(topic, partition, self._large)
        await reader.open(await self._broker.client(), offset)
        return reader

    def give_back(self, topic: KnownTopic, partition: int, reader: Reader) -> None:
        """The caller has read what it wanted."""
        reader.rest()
        self._idle.append(((topic.id, partition), reader))
        if len(self._idle) > IDLE_MAX:
            self.drop(self._idle.popleft()[1])

    def drop(self, reader: Reader) -> None:
        """The caller does not know what it has read, or nobody reads there any more."""
        self._closings.begin(reader.close())


def _records_of(batch: Batch) -> list[Record]:
    """Its records in memory of their own, with the places of their keys and values. Raises
    Overrun."""
    found = [*batch.copy()]
    for each in found[:1]:
        each.chunk.keys = each.chunk.keys or each.chunk.find_keys()
        each.chunk.values = each.chunk.values or each.chunk.find_values()
    return found


async def _without_headers(record: Record) -> ReadRecord:
    row, columns = record.row, record.chunk.columns
    size_bytes = columns.item(C_KEY_LENGTH, row) + columns.item(C_VALUE_LENGTH, row)
    return await done_by_size(partial(read_record, record), size_bytes, COPIED_AT_ONCE_BYTES)
