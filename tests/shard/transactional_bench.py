"""Transactional producers of a shard without processes; the test is the coordinator."""

import numpy as np

from smq.shard.markers import Ending, end_transaction
from smq.shard.produce import Produced, Producing
from smq.shard.shard import Shard
from smq.shard.transactional import TransactionalProduce
from smq.wire.codec import Writer
from smq.wire.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
    read_produce_response,
    write_produce_request,
)
from smq.wire.headers import RequestHeader, read_response_header, write_request_header
from smq.wire.internal.form import Failed
from smq.wire.internal.transactions import AddPartitions
from smq.wire.markers import Marker
from smq.wire.records import MAGIC, Record, crc_of, write_batch
from tests.shard.shard_bench import NOW, NOW_MS, PRODUCE, Appender

VERSION = 12


def transactional_batch(*values: bytes, producer: tuple[int, int], sequence: int = 0) -> bytes:
    """A batch of a producer's transaction: `producer` is its id and epoch."""
    records = [Record(i, NOW_MS, None, value) for i, value in enumerate(values)]
    plain = write_batch(
        records, producer_id=producer[0], producer_epoch=producer[1], base_sequence=sequence
    )
    batch = bytearray(plain)
    assert batch[16] == MAGIC
    batch[22] |= 16
    batch[17:21] = crc_of(batch).to_bytes(4)
    return bytes(batch)


def transactional_request(
    data: dict[str, dict[int, bytes]],
    *,
    version: int = VERSION,
    acks: int = -1,
    transactional_id: str | None = "t",
    correlation: int = 1,
) -> bytes:
    """A Produce request with its size."""
    writer = Writer()
    write_request_header(RequestHeader(PRODUCE, version, correlation, "test"), writer)
    topics = [
        TopicProduceData(
            name=name,
            partition_data=[PartitionProduceData(index=i, records=r) for i, r in rows.items()],
        )
        for name, rows in data.items()
    ]
    request = ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=1000, topic_data=topics
    )
    write_produce_request(request, version, writer)
    body = writer.to_bytes()
    return len(body).to_bytes(4) + body


def errors_of(answers: bytes, version: int = VERSION) -> list[tuple[int, int]]:
    """(error, base offset) of each partition of one response with its size."""
    _, at = read_response_header(answers[4:], 0, PRODUCE, version)
    response = read_produce_response(answers[4:], at, version)
    rows = [row for topic in response.responses for row in topic.partition_responses]
    return [(row.error_code, row.base_offset) for row in rows]


class Producers(Appender):
    """Produces into a shard with transactional ids too."""

    def __init__(self, shard: Shard) -> None:
        super().__init__(shard)
        self.transactional = Producing(shard.logs, shard.config, shard.drain, in_steps=True)

    def begin(self, request: bytes) -> TransactionalProduce:
        data = np.frombuffer(bytearray(request), np.uint8)
        return TransactionalProduce(self.shard, self.transactional, data)

    def send(
        self, request: bytes, said: list[int] | Failed | None = None, version: int = VERSION
    ) -> list[tuple[int, int]]:
        """Send a request; the coordinator says `said`, or that all is well."""
        produce = self.begin(request)
        outcome = produce.step(NOW)
        while not isinstance(outcome, Produced):
            if isinstance(outcome, AddPartitions):
                produce.take([0] * len(outcome.numbers) if said is None else said)
            outcome = produce.step(NOW)
        found = errors_of(bytes(outcome.answers), version)
        self.end_turn()
        return found

    def write(
        self, values: list[bytes], producer: tuple[int, int], sequence: int = 0, name: str = "one"
    ) -> int:
        """Write a batch of a transaction to partition 0; its base offset."""
        batch = transactional_batch(*values, producer=producer, sequence=sequence)
        [(error, offset)] = self.send(transactional_request({name: {0: batch}}))
        assert error == 0
        return offset

    def end(self, number: int, marker: Marker, version: int = 1) -> Ending:
        """End a transaction in a partition."""
        ending = end_transaction(self.shard, number, marker, version, NOW)
        self.end_turn()
        return ending
