"""Reads batches that inflate too far for the loop: piece by piece, in threads, a few at a time.

    a batch that inflates to    is read
    INFLATED_BYTES_MAX          in the loop, whole: a millisecond or two
    the SDK's bound             in a thread, which gives some of its records and lets go of the rest
    more, or is malformed       not at all: who reads passes over it, and says so

So it is with a record of more than RECORD_BYTES_MAX that was compressed.

A hundred kilobytes of zeros inflate to a hundred megabytes. No more than LARGE_AT_ONCE of these are
in memory, however many readers there are: each piece is inflated anew. Who could not pass over a
batch that he cannot read would never get further: SeaweedMQ's clients have no other way.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from smq.agent.read_records import ReadRecord
from smq.app.agent.broker import BrokerSide
from smq.app.agent.consumed import headers_of, read_record, size_of
from smq.app.agent.refusals import CallRefused, refused_by
from smq.app.agent.topics import KnownTopic
from smq.client.client import Client
from smq.client.consuming.batch.chunk import Chunk, Record
from smq.client.errors import Overrun, UnreadableBatch
from smq.client.names import TopicPartition
from smq.model.errors import ErrorCode

MiB = 1024 * 1024
INFLATED_BYTES_MAX = 2 * MiB  # Of a batch, or of its columns.
RECORD_BYTES_MAX = 16 * MiB
"""Of a record, unless its topic takes larger ones as they are sent: each stream may have one."""
PIECE_BYTES = 4 * MiB
PIECE_RECORD_BYTES = 600  # In memory, beside its contents.
LARGE_AT_ONCE = 2
ROWS = 256  # That are looked at together.
WAIT_S = 1.0  # It is there: somebody has just met it.
SAID_MAX = 1024  # Batches that are remembered as said: a client may ask for one again and again.
_THREADS = ThreadPoolExecutor(LARGE_AT_ONCE, "large")


class Piece(NamedTuple):
    """Some records, and the offset behind them."""

    records: list[ReadRecord]
    end: int


class LargeBatches:
    """What is read apart, and what is passed over.

    record_bytes_max   how large the batches of a topic may be, as they are sent
    say                writes a line of the log
    count              counts a batch that is passed over
    """

    def __init__(
        self,
        broker: BrokerSide,
        record_bytes_max: Callable[[KnownTopic], int],
        say: Callable[[str], object],
        count: Callable[[], object],
    ) -> None:
        self._broker, self._record_bytes_max = broker, record_bytes_max
        self._say, self._count = say, count
        self._said: OrderedDict[tuple[object, ...], None] = OrderedDict()

    async def read(
        self, topic: KnownTopic, partition: int, offset: int, options: dict[str, Any]
    ) -> Piece:
        """Some records from an offset on, by a consumer with these options; none if they are
        overwritten meanwhile. Raises UnreadableBatch, BrokerError."""
        client, name = await self._broker.client(), TopicPartition(topic.kafka_name, partition)
        bytes_max = max(RECORD_BYTES_MAX, self._record_bytes_max(topic))
        work = partial(_read, client, name, offset, options, bytes_max)
        return await asyncio.get_running_loop().run_in_executor(_THREADS, work)

    def pass_over(self, topic: KnownTopic, batch: UnreadableBatch) -> CallRefused:
        """Somebody passes over a batch; what his caller is told."""
        refused = refused_by(batch)
        sentence = f"{batch.fact}; it is passed over"
        self._count()
        key = topic.id, batch.partition, batch.start
        if key not in self._said:
            self._say(f"agent: {sentence} by readers of gRPC")
            self._said[key] = None
            if len(self._said) > SAID_MAX:
                self._said.popitem(last=False)
        return CallRefused(refused.status, sentence, refused.code)


def _read(
    client: Client, name: TopicPartition, offset: int, options: dict[str, Any], bytes_max: int
) -> Piece:
    # One batch at a time: what a poll gives beside it would be inflated for nothing.
    with client.consumer(start=offset, batch_bytes_max=1, **options) as consumer:
        consumer.assign([name])
        try:
            with consumer.poll(WAIT_S) as batch:
                chunks = [each.copy() if each.batches.is_lent else each for each in batch.chunks()]
        except Overrun:
            return Piece([], offset)
        end = consumer.position(*name)
    records, left_bytes = list[ReadRecord](), PIECE_BYTES
    for record in _records_of(chunks):
        size_bytes = size_of(record)
        if records and size_bytes > left_bytes:
            return Piece(records, record.offset)
        if size_bytes > bytes_max:
            fault = f"has a record of {size_bytes} bytes, and {bytes_max} are the most"
            place = record.offset, record.offset + 1
            raise UnreadableBatch(name, place, fault, ErrorCode.MESSAGE_TOO_LARGE)
        found = read_record(record)
        found.headers = headers_of(record)
        records.append(found)
        left_bytes -= size_bytes + PIECE_RECORD_BYTES
    return Piece(records, end)


def _records_of(chunks: Sequence[Chunk]) -> Iterator[Record]:
    """The records of some chunks. There may be a million, of which few objects are made at once."""
    for chunk in chunks:
        for at in range(0, len(chunk), ROWS):
            columns = chunk.columns[:, at : at + ROWS]
            yield from Chunk(chunk.batches, columns, np.array([columns.shape[1]])).records()
