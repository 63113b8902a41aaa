"""Produce 0-2 and the answers of Fetch 0-3: read, converted in steps, written.

A Produce becomes one of version 3 with the convertible partitions; its answer gets the errors of
the others. A Fetch becomes one of version 4, and further ones while they find no record.
"""

from collections.abc import Generator, Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from smq.model.errors import ErrorCode
from smq.wire.codec import Buffer, Writer, write_count, write_string
from smq.wire.generated.fetch import (
    FetchPartition,
    FetchResponse,
    FetchTopic,
    PartitionData,
    read_fetch_request,
    read_fetch_response,
    write_fetch_request,
)
from smq.wire.generated.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
    TopicProduceResponse,
    read_produce_request,
    read_produce_response,
    write_produce_request,
)
from smq.wire.headers import (
    RequestHeader,
    read_request_header,
    read_response_header,
    write_request_header,
    write_response_header,
)
from smq.wire.legacy.conversion import BYTES_MAX, to_batch, to_messages
from smq.wire.legacy.versions import FETCH, FETCH_BYTES_MAX, PRODUCE

PRODUCE_AS, FETCH_AS = 3, 4  # The versions that they become.
MAGIC_1_FROM, THROTTLED_FROM, APPEND_TIME_FROM = 2, 1, 2
_SIZE_BYTES = 4
_NO_TRANSACTION = b"\xff\xff"
_INT32, _ROW, _TIME, _FETCHED = Struct(">i"), Struct(">ihq"), Struct(">q"), Struct(">ihq")
Steps = Generator[None, None, bytes]


class OldProduce:
    """A Produce request of an old version in progress; `errors` of what cannot be converted."""

    def __init__(self, request: bytes) -> None:
        """`request` is without its size. Raises Malformed."""
        self._header, at = read_request_header(request, 0)
        body = _NO_TRANSACTION + request[at:]
        self._asked = read_produce_request(body, 0, PRODUCE_AS)
        self.acks = self._asked.acks
        self.errors: dict[tuple[int, int], ErrorCode] = {}  # By place in the request.
        self.is_empty = False

    @property
    def has_errors(self) -> bool:
        """Whether some partition could not be converted."""
        return bool(self.errors)

    def convert(self) -> Steps:
        """The request in the newer version, with its size; `is_empty` if nothing is left in it."""
        left, topics = BYTES_MAX, []
        for i, topic in enumerate(self._asked.topic_data):
            partitions = []
            for j, each in enumerate(topic.partition_data):
                records = each.records if isinstance(each.records, memoryview) else b""
                made = yield from to_batch(records, left)
                left -= made.inflated
                if made.error == ErrorCode.NONE:
                    partitions.append(PartitionProduceData(index=each.index, records=made.data))
                else:
                    self.errors[i, j] = made.error
                yield
            if partitions or not topic.partition_data:
                topics.append(TopicProduceData(name=topic.name, partition_data=partitions))
        self.is_empty = not topics and self.has_errors
        newer = ProduceRequest(acks=self.acks, timeout_ms=self._asked.timeout_ms, topic_data=topics)
        writer = Writer()
        write_request_header(self._header._replace(api_version=PRODUCE_AS), writer)
        write_produce_request(newer, PRODUCE_AS, writer)
        return sized(writer)

    def answer(self, answered: bytes, throttle_ms: int) -> bytes:
        """The old answer, with its size, from the newer one; b"": no request was made."""
        rows = self._rows(answered)
        version, writer = self._header.api_version, Writer()
        append = writer.append
        write_response_header(self._header.correlation_id, PRODUCE, PRODUCE_AS, writer)
        write_count(append, self._asked.topic_data)
        for i, topic in enumerate(self._asked.topic_data):
            write_string(append, topic.name)
            write_count(append, topic.partition_data)
            for j, asked in enumerate(topic.partition_data):
                row = self._row(i, j, asked) or next(rows)
                append(_ROW.pack(row.index, row.error_code, row.base_offset))
                if version >= APPEND_TIME_FROM:
                    append(_TIME.pack(row.log_append_time_ms))
        if version >= THROTTLED_FROM:
            append(_INT32.pack(throttle_ms))
        return sized(writer)

    @staticmethod
    def _rows(answered: bytes) -> Iterator[PartitionProduceResponse]:
        if not answered:
            return iter(())
        _, at = read_response_header(answered, _SIZE_BYTES, PRODUCE, PRODUCE_AS)
        response = read_produce_response(answered, at, PRODUCE_AS)
        topics: Sequence[TopicProduceResponse] = response.responses
        return (row for topic in topics for row in topic.partition_responses)

    def _row(self, i: int, j: int, asked: PartitionProduceData) -> PartitionProduceResponse | None:
        error = self.errors.get((i, j))
        if error is None:
            return None
        return PartitionProduceResponse(index=asked.index, error_code=error, base_offset=-1)


class Row(NamedTuple):
    """What a partition is answered."""

    error: int
    high_watermark: int
    data: bytes


class OldFetch:
    """A Fetch of an old version in progress: one newer request after another.

    Old clients know neither markers nor that a batch may cover offsets behind its last record: an
    answer without a record at the offset they ask for would have them ask for it for ever. Such a
    partition is asked for again from behind what was read, until it has a record, an error, or
    nothing more.
    """

    def __init__(self, header: RequestHeader, newer: Buffer) -> None:
        """`newer` is the first request, in the newer version. Raises Malformed."""
        _, at = read_request_header(newer, 0)
        self._header, self._left = header, BYTES_MAX
        self._request = read_fetch_request(newer, at, FETCH_AS)
        self.wait_ms = self._request.max_wait_ms
        self._offsets = {
            (topic.topic, each.partition): each.fetch_offset
            for topic in self._request.topics
            for each in topic.partitions
        }
        self._answer: FetchResponse | None = None
        self._rows: dict[tuple[str, int], Row] = {}

    def convert(self, answered: bytes) -> Steps:
        """The old answer to what the newer requests have got; b"": there is another request."""
        _, at = read_response_header(answered, _SIZE_BYTES, FETCH, FETCH_AS)
        response = read_fetch_response(answered, at, FETCH_AS)
        self._answer, passed = self._answer or response, []
        for topic in response.responses:
            for each in topic.partitions:
                key = topic.topic, each.partition_index
                if (yield from self._convert(key, each)):
                    passed.append(key)
                yield
        self._request.topics = [
            FetchTopic(
                topic=name,
                partitions=[
                    FetchPartition(
                        partition=index,
                        fetch_offset=self._offsets[name, index],
                        partition_max_bytes=FETCH_BYTES_MAX,
                    )
                ],
            )
            for name, index in passed
        ]
        return b"" if passed else self._written()

    def _convert(
        self, key: tuple[str, int], answered: PartitionData
    ) -> Generator[None, None, bool]:
        """Convert a partition's row; returns whether to go on behind it."""
        batches = answered.records if isinstance(answered.records, memoryview) else b""
        made = yield from to_messages(batches, self._magic, self._offsets.get(key, 0), self._left)
        self._left -= made.inflated
        error = answered.error_code or made.error
        self._rows[key] = Row(error, answered.high_watermark, made.data)
        if made.data or error or made.end_offset <= self._offsets.get(key, made.end_offset):
            return False
        self._offsets[key] = made.end_offset
        return True

    def again(self, left_ms: int) -> bytes:
        """The next newer request, without its size. It waits only while there is no record."""
        has_any = any(row.data or row.error for row in self._rows.values())
        self._request.max_wait_ms = 0 if has_any else left_ms
        writer = Writer()
        write_request_header(self._header._replace(api_version=FETCH_AS), writer)
        write_fetch_request(self._request, FETCH_AS, writer)
        return writer.to_bytes()

    @property
    def _magic(self) -> int:
        return int(self._header.api_version >= MAGIC_1_FROM)

    def _written(self) -> bytes:
        assert self._answer is not None
        writer = Writer()
        append = writer.append
        write_response_header(self._header.correlation_id, FETCH, FETCH_AS, writer)
        if self._header.api_version >= THROTTLED_FROM:
            append(_INT32.pack(self._answer.throttle_time_ms))
        write_count(append, self._answer.responses)
        for topic in self._answer.responses:
            write_string(append, topic.topic)
            write_count(append, topic.partitions)
            for each in topic.partitions:
                row = self._rows[topic.topic, each.partition_index]
                append(_FETCHED.pack(each.partition_index, row.error, row.high_watermark))
                append(_INT32.pack(len(row.data)))
                append(row.data)
        return sized(writer)


def sized(writer: Writer) -> bytes:
    """What was written, with its size."""
    body = writer.to_bytes()
    return _INT32.pack(len(body)) + body
