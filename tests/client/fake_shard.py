"""A broker for Produce requests in a page of Python: Kafka's rules of sequences, faults on demand.

Requests wait in `sent` until the test delivers them, answers until it takes them, so that a channel
may be lost at any point between.
"""

import select
from collections import defaultdict, deque

import numpy as np

from shm.kernels.record.records_encode import One, encode_one
from smq.client.errors import ChannelGone
from smq.client.producing.channel.produce_request import PRODUCE_VERSION, put_head
from smq.client.producing.encode.batch_writer import Stamp
from smq.model.errors import ErrorCode
from smq.wire.codec import Writer
from smq.wire.generated.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
    read_produce_request,
    write_produce_response,
)
from smq.wire.headers import read_request_header
from smq.wire.records import BatchView, Record, read_batches

BATCHES_KNOWN = 5


class FakePartition:
    """Records with their offsets, and what is known of producers."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.epochs: dict[int, int] = {}
        self.known: dict[int, deque[tuple[int, int, int]]] = {}

    def append(self, batch: BatchView) -> tuple[ErrorCode, int]:
        """Kafka's ProducerAppendInfo, then the log."""
        producer, first = batch.producer_id, batch.base_sequence
        last = (first + batch.record_count - 1) % 2**31
        epoch = self.epochs.get(producer)
        if epoch is not None and batch.producer_epoch < epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        if epoch == batch.producer_epoch:
            for known_first, known_last, offset in self.known[producer]:
                if (known_first, known_last) == (first, last):
                    return ErrorCode.NONE, offset
            if first != (self.known[producer][-1][1] + 1) % 2**31:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        elif epoch is not None and first != 0:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        if epoch != batch.producer_epoch:
            self.epochs[producer] = batch.producer_epoch
            self.known[producer] = deque(maxlen=BATCHES_KNOWN)
        offset = len(self.records)
        self.known[producer].append((first, last, offset))
        self.records += [each._replace(offset=offset + i) for i, each in enumerate(batch.records())]
        return ErrorCode.NONE, offset

    def has(self, batch: BatchView) -> bool:
        """Whether it is one of the last, sent again."""
        first = batch.base_sequence
        known = self.known.get(batch.producer_id, ())
        is_current = self.epochs.get(batch.producer_id) == batch.producer_epoch
        return is_current and any(each[0] == first for each in known)

    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records]

    def forget_last_batch(self, producer: int) -> None:
        """What a broker that lost power may do, beyond its durability."""
        _, _, offset = self.known[producer].pop()
        del self.records[offset:]


class FakeShard:
    """Partitions by topic and number. An append limit makes MESSAGE_TOO_LARGE."""

    def __init__(self, batch_bytes_max: int = 10_000) -> None:
        self.partitions: defaultdict[tuple[str, int], FakePartition] = defaultdict(FakePartition)
        self.batch_bytes_max = batch_bytes_max

    def answer(self, request: bytes, fault: ErrorCode = ErrorCode.NONE, *, append: bool) -> bytes:
        """The response to one request: appended or not, acknowledged or with a fault."""
        assert len(request) == 4 + int.from_bytes(request[:4])
        header, at = read_request_header(request, 4)
        assert header.api_version == PRODUCE_VERSION
        message = read_produce_request(request, at, header.api_version)
        ((topic, (data,)),) = ((each.name, each.partition_data) for each in message.topic_data)
        assert isinstance(data.records, memoryview | bytes)
        (batch,) = read_batches(data.records)
        assert batch.base_offset == 0
        code, offset = fault, -1
        if append or self.partitions[topic, data.index].has(batch):
            found, offset = self._append(topic, data.index, batch)
            code = fault if append and fault else found
        answer = PartitionProduceResponse(index=data.index, error_code=code, base_offset=offset)
        answers = [TopicProduceResponse(name=topic, partition_responses=[answer])]
        writer = Writer()
        write_produce_response(ProduceResponse(responses=answers), PRODUCE_VERSION, writer)
        return header.correlation_id.to_bytes(4) + writer.to_bytes()

    def _append(self, topic: str, partition: int, batch: BatchView) -> tuple[ErrorCode, int]:
        if len(batch.data) > self.batch_bytes_max:
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        return self.partitions[topic, partition].append(batch)


class FakeChannel:
    """See smq.client.producing.channel.channel. `room_bytes` is what may wait undelivered."""

    is_quiet = True
    request_bytes_max = 1_000_000

    def __init__(self, room_bytes: int = 1_000_000) -> None:
        self.sent: deque[bytes] = deque()
        self.received: list[bytes] = []
        self.is_gone = False
        self._room_bytes = room_bytes
        self._room = np.zeros(0, np.uint8)

    def reserve(self, size_bytes: int) -> np.ndarray | None:
        self._check()
        if size_bytes > self.request_bytes_max:
            raise ValueError(f"size is {size_bytes}")
        if self.sent and sum(map(len, self.sent)) + size_bytes > self._room_bytes:
            return None
        self._room = np.full(size_bytes, 0xAA, np.uint8)
        return self._room

    def send_one(
        self, size_bytes: int, head: np.ndarray, correlation_id: int, one: One, stamp: Stamp
    ) -> bool:
        if (out := self.reserve(size_bytes)) is None:
            return False
        end: int = encode_one(*one, 0, *stamp, out, len(head))
        put_head(out, head.tobytes(), end, correlation_id)
        self.commit(end)
        return True

    def commit(self, used_bytes: int) -> None:
        self._check()
        self.sent.append(self._room[:used_bytes].tobytes())

    def answers(self) -> list[bytes]:
        self._check()
        answers, self.received = self.received, []
        return answers

    def _check(self) -> None:
        if self.is_gone:
            raise ChannelGone("it is gone")

    def push(self) -> None:
        pass

    def fileno(self) -> int:
        return -1

    def arm(self) -> bool:
        return not self.received

    def disarm(self) -> bool:
        return bool(self.received)

    def events(self) -> int:
        return select.POLLIN

    def close(self) -> None:
        self.is_gone = True

    def forget(self) -> None:
        self.is_gone = True
