"""Produce 0-2 and the answers of Fetch 0-3: read, converted in steps, written.

A Produce becomes one of version 3 with the convertible partitions; its answer gets the errors of
the others.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from struct import Struct

from smq.model.errors import ErrorCode
from smq.wire.codec import Buffer, Writer, write_count, write_string
from smq.wire.generated.fetch import FetchResponse, read_fetch_request, read_fetch_response
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
from smq.wire.legacy.versions import FETCH, PRODUCE

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

    def answer(self, answered: bytes) -> bytes:
        """The old answer, with its size, from the newer one; b"": no request was made."""
        rows, throttle_ms = self._rows(answered)
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
    def _rows(answered: bytes) -> tuple[Iterator[PartitionProduceResponse], int]:
        if not answered:
            return iter(()), 0
        _, at = read_response_header(answered, _SIZE_BYTES, PRODUCE, PRODUCE_AS)
        response = read_produce_response(answered, at, PRODUCE_AS)
        topics: Sequence[TopicProduceResponse] = response.responses
        rows = (row for topic in topics for row in topic.partition_responses)
        return rows, response.throttle_time_ms

    def _row(self, i: int, j: int, asked: PartitionProduceData) -> PartitionProduceResponse | None:
        error = self.errors.get((i, j))
        if error is None:
            return None
        return PartitionProduceResponse(index=asked.index, error_code=error, base_offset=-1)


def fetched_answer(header: RequestHeader, newer: Buffer) -> Callable[[bytes], Steps]:
    """A converter from the newer Fetch's answer to the old one's; both with size."""
    _, at = read_request_header(newer, 0)
    request = read_fetch_request(newer, at, FETCH_AS)
    starts = {
        (topic.topic, each.partition): each.fetch_offset
        for topic in request.topics
        for each in topic.partitions
    }

    def convert(answered: bytes) -> Steps:
        _, at = read_response_header(answered, _SIZE_BYTES, FETCH, FETCH_AS)
        return _fetched(header, starts, read_fetch_response(answered, at, FETCH_AS))

    return convert


def _fetched(
    header: RequestHeader, starts: dict[tuple[str, int], int], response: FetchResponse
) -> Steps:
    version, writer, left = header.api_version, Writer(), BYTES_MAX
    magic = int(version >= MAGIC_1_FROM)
    append = writer.append
    write_response_header(header.correlation_id, FETCH, FETCH_AS, writer)
    if version >= THROTTLED_FROM:
        append(_INT32.pack(response.throttle_time_ms))
    write_count(append, response.responses)
    for topic in response.responses:
        write_string(append, topic.topic)
        write_count(append, topic.partitions)
        for each in topic.partitions:
            batches = each.records if isinstance(each.records, memoryview) else b""
            start = starts.get((topic.topic, each.partition_index), 0)
            made = yield from to_messages(batches, magic, start, left)
            left -= made.inflated
            error = each.error_code or made.error
            append(_FETCHED.pack(each.partition_index, error, each.high_watermark))
            append(_INT32.pack(len(made.data)))
            append(made.data)
            yield
    return sized(writer)


def sized(writer: Writer) -> bytes:
    """What was written, with its size."""
    body = writer.to_bytes()
    return _INT32.pack(len(body)) + body
