"""GetUnflushedMessages: the committed records that no sealed segment has, for engines that read the
segments themselves. It ends with those that there were when it was asked: a broker that gives none
for long is UNAVAILABLE, since an end would tell of fewer records than there are.

`start_buffer_offset` is the first offset that is asked for. The hash is SeaweedMQ's of the key.
"""

import hashlib
from functools import partial

import grpc

from smq.agent.proto import mq_broker_pb2 as pb
from smq.agent.proto.filer_pb2 import LogEntry
from smq.agent.read_records import ReadRecord, WrittenAnswer, field_of
from smq.app.agent.apart import COPIED_AT_ONCE_BYTES, done_by_size
from smq.app.agent.broker import BrokerSide
from smq.app.agent.fetch_calls import all_ends_of
from smq.app.agent.methods import Context, Handler
from smq.app.agent.readers import PartitionReaders, Reader
from smq.app.agent.refusals import CallRefused
from smq.app.agent.topics import KnownTopics
from smq.app.agent.translation import range_of, topic_name
from smq.client.kafka.offsets import READ_COMMITTED
from smq.store.manifest import Manifest

WAIT_S, WAITS_MAX = 1.0, 30  # For records that there are.


class UnflushedCalls:
    """Answers GetUnflushedMessages."""

    def __init__(
        self, topics: KnownTopics, broker: BrokerSide, readers: PartitionReaders, manifest: Manifest
    ) -> None:
        self._topics, self._broker = topics, broker
        self._readers, self._manifest = readers, manifest

    def handlers(self) -> dict[str, Handler]:
        """The calls, by name."""
        return {"GetUnflushedMessages": self._stream}

    async def _stream(self, request: pb.GetUnflushedMessagesRequest, context: Context) -> None:
        topic = self._topics.asked(context, topic_name(request.topic))
        partition = topic.partition_of(range_of(request.partition))
        find = partial(all_ends_of, partitions=[partition], isolation_level=READ_COMMITTED)
        earliest, end = (await self._broker.ask(partial(find, topic=topic)))[partition]
        sealed_end = self._manifest.sealed_end(topic.numbers[partition])
        start = max(sealed_end, request.start_buffer_offset, earliest)
        if start < end:
            reader = await self._readers.opened(topic, partition, start)
            try:
                await _write(context, reader, end)
            finally:
                self._readers.drop(reader)
        await context.write(pb.GetUnflushedMessagesResponse(end_of_stream=True))


async def _write(context: Context, reader: Reader, end: int) -> None:
    """The records of a reader below an offset. Raises CallRefused if they do not come."""
    waits = 0
    while (before := reader.position) < end:
        has_come = await reader.wait(WAIT_S) or reader.position > before
        waits = 0 if has_come else waits + 1
        for passed in reader.take_passed():
            await context.write(pb.GetUnflushedMessagesResponse(error=passed.sentence))
        if waits == WAITS_MAX:
            sentence = f"the broker gives no records from offset {before} on; ask again"
            raise CallRefused(grpc.StatusCode.UNAVAILABLE, sentence)
        while (shown := reader.peek()) is not None and shown.offset < end:
            record = await reader.take_plain()
            answer = partial(entry_answer, record)
            await context.write(await done_by_size(answer, record.size_bytes, COPIED_AT_ONCE_BYTES))
        if reader.peek() is not None:
            return


def entry_answer(record: ReadRecord) -> WrittenAnswer:
    """A GetUnflushedMessagesResponse."""
    rest = LogEntry(
        ts_ns=record.ts_ns,
        partition_key_hash=key_hash(record.key),
        key=record.key,
        offset=record.offset,
    )
    data = field_of(LogEntry.DATA_FIELD_NUMBER, [record.value])
    pieces = rest.SerializeToString(), *data
    return WrittenAnswer(*field_of(pb.GetUnflushedMessagesResponse.MESSAGE_FIELD_NUMBER, pieces))


def key_hash(key: bytes) -> int:
    """SeaweedMQ's hash of a key: the first four bytes of its MD5, as a signed number."""
    return int.from_bytes(hashlib.md5(key, usedforsecurity=False).digest()[:4], signed=True)
