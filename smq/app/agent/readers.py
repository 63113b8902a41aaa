"""Readers of partitions: each has a consumer of the SDK, and gives records one after the other.

A consumer lends its records; a reader copies a batch at once, so that a slow client holds nothing
back, and keeps what its last caller had no room for. It sees committed records only.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine
from functools import partial
from typing import Any

import numpy as np

from shm.kernels.reader.messages import (
    MESSAGE_REST_BYTES,
    MS_NS,
    TIME_MS_MAX,
    headers_bytes,
    write_headers,
    write_messages,
)
from shm.kernels.record.records import (
    C_HEADER_COUNT,
    C_HEADERS_AT,
    C_KEY_LENGTH,
    C_VALUE_LENGTH,
)
from smq.agent.read_records import ReadRecord
from smq.app.agent.apart import COPIED_AT_ONCE_BYTES, done_apart, done_by_size
from smq.app.agent.broker import BrokerSide
from smq.app.agent.topics import KnownTopic
from smq.client.client import Client
from smq.client.consuming.aio_consumer import AsyncConsumer
from smq.client.consuming.batch.batch import Batch
from smq.client.consuming.batch.chunk import Chunk, Record
from smq.client.errors import Overrun

BATCH_BYTES = 256 * 1024  # Copied at a time.
PIECE_BYTES = 1024 * 1024
IDLE_MAX = 64  # Readers that wait for another FetchMessage.
HEADERS_AT_ONCE, HEADERS_AT_ONCE_BYTES = 1024, 1024 * 1024
"""More headers, or those of a record among so many bytes, are written apart: a batch of a kilobyte
may have millions. Others take a millisecond or two."""


class Reader:
    """Reads one partition. `position` is the offset of the next record, or below it in a gap."""

    def __init__(self, topic: KnownTopic, partition: int) -> None:
        self._topic, self._partition = topic, partition
        self._ahead: deque[Record] = deque()
        self._consumer: AsyncConsumer
        self._read_to = -1
        self.position = -1

    async def open(self, client: Client, offset: int) -> None:
        """Begin at an offset. Raises BrokerError."""
        name, partition = self._topic.kafka_name, self._partition
        self._consumer = await AsyncConsumer(
            partial(
                client.consumer,
                start=offset,
                batch_bytes_max=BATCH_BYTES,
                isolation_level="read_committed",
                topic_ids={name: self._topic.id},
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
            await self._consumer.seek(self._topic.kafka_name, self._partition, offset)
            self._read_to = offset
        self.position = offset

    def peek(self) -> Record | None:
        """The next record, if it was read already."""
        return self._ahead[0] if self._ahead else None

    async def read(self) -> ReadRecord:
        """The record that `peek` shows."""
        record = self._ahead[0]
        found = await self._without_headers()
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
        record = await self._without_headers()
        self.skip()
        return record

    async def _without_headers(self) -> ReadRecord:
        record = self._ahead[0]
        row, columns = record.row, record.chunk.columns
        size_bytes = columns.item(C_KEY_LENGTH, row) + columns.item(C_VALUE_LENGTH, row)
        return await done_by_size(partial(read_record, record), size_bytes, COPIED_AT_ONCE_BYTES)

    def skip(self) -> None:
        """Pass over the record that `peek` shows."""
        record = self._ahead.popleft()
        self.position = record.offset + 1 if self._ahead else self._read_to

    async def take_messages(self, count_max: int, bytes_max: int) -> tuple[bytes, int]:
        """Take records whose offsets follow one another, from the one that `peek` shows, written as
        the messages of a FetchMessageResponse; how many. None if it has headers or no room."""
        _, _, chunk, row = self._ahead[0]
        if chunk.columns.item(C_HEADER_COUNT, row):
            return b"", 0
        work = partial(self._take_messages, count_max, bytes_max)
        return await done_by_size(work, chunk.memory.nbytes, COPIED_AT_ONCE_BYTES)

    def _take_messages(self, count_max: int, bytes_max: int) -> tuple[bytes, int]:
        _, _, chunk, row = self._ahead[0]
        end = min(len(chunk), row + count_max)
        data = _memory_of(chunk)
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
        try:
            async with await self._consumer.poll(timeout_s) as batch:
                if batch:
                    copy = partial(_records_of, batch)
                    found = await done_by_size(copy, batch.size_bytes, COPIED_AT_ONCE_BYTES)
                    self._ahead.extend(found)
        except Overrun:  # It is read again.
            self._ahead.clear()
            return False
        self._read_to = self._consumer.position(self._topic.kafka_name, self._partition)
        if not self._ahead:
            self.position = self._read_to
        return bool(self._ahead)

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

    def __init__(self, broker: BrokerSide) -> None:
        self._broker = broker
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
        reader = Reader(topic, partition)
        await reader.open(await self._broker.client(), offset)
        return reader

    def give_back(self, topic: KnownTopic, partition: int, reader: Reader) -> None:
        """The caller has read what it wanted."""
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


def read_record(record: Record) -> ReadRecord:
    """A record as SeaweedMQ's clients get it, with its offset, which they skip; without headers."""
    value = record.value
    return ReadRecord(
        record.key or b"",
        b"" if value is None else copied(value),
        time_ns(record.timestamp_ms),
        record.offset,
    )


def copied(data: memoryview) -> bytes:
    """A copy. One of much is made piece by piece, as no other thread runs during one of `bytes`; to
    join the pieces lets others run."""
    if len(data) <= COPIED_AT_ONCE_BYTES:
        return bytes(data)
    places = range(0, len(data), PIECE_BYTES)
    return b"".join([bytes(data[at : at + PIECE_BYTES]) for at in places])


def time_ns(time_ms: int) -> int:
    """A record's time, which may be any: at most what 64 bits hold in nanoseconds."""
    return max(-TIME_MS_MAX, min(time_ms, TIME_MS_MAX)) * MS_NS


def headers_of(record: Record) -> bytes:
    """The headers of a record, written."""
    _, _, chunk, row = record
    count = chunk.columns.item(C_HEADER_COUNT, row)
    if not count:
        return b""
    data, at = _memory_of(chunk), chunk.columns.item(C_HEADERS_AT, row)
    out = np.empty(headers_bytes(data, at, count), np.uint8)
    write_headers(data, at, count, out)
    return out.tobytes()


def _memory_of(chunk: Chunk) -> np.ndarray:
    """As kernels are compiled for it."""
    data = chunk.memory.view()
    data.flags.writeable = False
    return data
