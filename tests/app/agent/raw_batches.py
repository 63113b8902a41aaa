"""Batches as any Kafka client may send them: few bytes, of very many records, headers or zeros."""

from smq.client.kafka.cluster import Cluster
from smq.model.errors import ErrorCode
from smq.wire.compression import Codec, compress
from smq.wire.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from smq.wire.records import Record, with_payload, write_batch
from tests.broker.questions import PRODUCE

TIME_MS = 1_790_000_000_000


def batch_of(payload: bytes, count: int = 1) -> bytes:
    """A batch whose records are said to be so many, and are these bytes, compressed."""
    records = [Record(number, TIME_MS, None, b"", ()) for number in range(count)]
    return bytes(with_payload(write_batch(records), Codec.ZSTD, compress(Codec.ZSTD, payload)))


def record_of(value: bytes, headers: int = 0, at: int = 0) -> bytes:
    """A record with so many empty headers, at a place in its batch."""
    head = b"\0\0" + _varint(at) + _varint(-1) + _varint(len(value))
    body = head + value + _varint(headers) + b"\0\1" * headers
    return _varint(len(body)) + body


def _varint(number: int) -> bytes:
    bits, written = (number << 1) ^ (number >> 63), bytearray()
    while bits > 0x7F:
        written.append(bits & 0x7F | 0x80)
        bits >>= 7
    return bytes([*written, bits])


def append(cluster: Cluster, topic: str, *batches: bytes, partition: int = 0) -> None:
    """Produce batches, one after the other."""
    for batch in batches:
        data = PartitionProduceData(index=partition, records=batch)
        named = TopicProduceData(name=topic, partition_data=[data])
        request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[named])
        leader = cluster.broker(cluster.topic(topic).leaders[partition])
        answer = leader.ask(PRODUCE, request).responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.NONE, answer
