"""Produces records to one topic: batched, idempotent, each acknowledged or an error.

Records of a key go to the partition of Kafka's rule; those without one stay with a partition until
its batch is full. A batch keeps its place in the producer's sequence when it is sent again, so the
broker knows a repetition from something new: no record is lost, doubled or reordered.
"""

from dataclasses import dataclass, field

from smq.client.cluster import Cluster, check
from smq.client.connection import Question
from smq.model.errors import BrokerError, ErrorCode
from smq.model.partitioner import partition_of_key
from smq.wire.compression import Codec
from smq.wire.generated.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    read_init_producer_id_response,
    write_init_producer_id_request,
)
from smq.wire.generated.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    read_produce_response,
    write_produce_request,
)
from smq.wire.records import Headers, Record, write_batch

BATCH_BYTES = 512 * 1024  # Half of what a broker takes by default: headers and varints come on top.
RECORD_OVERHEAD_BYTES = 32  # About what a record takes beside its fields.
PRODUCE_TIMEOUT_MS = 30_000
SEQUENCE_END = 2**31  # Sequences begin again at 0 after 2^31 - 1.

INIT_PRODUCER_ID = Question[InitProducerIdRequest, InitProducerIdResponse](
    "InitProducerId", write_init_producer_id_request, read_init_producer_id_response
)
PRODUCE = Question[ProduceRequest, ProduceResponse](
    "Produce",
    write_produce_request,
    read_produce_response,
    version_max=12,  # Later ones name topics by their ids.
)


@dataclass
class _Pending:
    """Records of a partition that are not sent yet."""

    records: list[Record] = field(default_factory=list)
    bytes: int = 0


class Producer:
    """Invariant: a partition has at most one batch on its way, so sequences arrive in order."""

    def __init__(self, cluster: Cluster, topic: str, compression: int = Codec.NONE) -> None:
        self.acknowledged = 0
        self.next_offsets: dict[int, int] = {}  # After the last acknowledged record.
        self._cluster = cluster
        self._topic = topic
        self._compression = compression
        self._partition_count = len(cluster.retrying(lambda: cluster.topic(topic)).leaders)
        self._keyless_partition = 0
        self._pending: dict[int, _Pending] = {}
        self._sequences: dict[int, int] = {}
        self._producer_id, self._producer_epoch = cluster.retrying(self._new_producer)

    def add(
        self,
        value: bytes | None,
        timestamp_ms: int,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> None:
        """Take a record; when its partition's batch is full all that is pending is sent."""
        if partition is None:
            partition = (
                self._keyless_partition
                if key is None
                else partition_of_key(key, self._partition_count)
            )
        pending = self._pending.setdefault(partition, _Pending())
        pending.records.append(Record(len(pending.records), timestamp_ms, key, value, headers))
        pending.bytes += _record_bytes(pending.records[-1])
        if pending.bytes >= BATCH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send what is pending; all of it is acknowledged on return. Raises BrokerError."""
        batches = {
            partition: write_batch(
                pending.records,
                compression=self._compression,
                producer_id=self._producer_id,
                producer_epoch=self._producer_epoch,
                base_sequence=self._sequences.get(partition, 0),
            )
            for partition, pending in self._pending.items()
        }
        self._cluster.retrying(lambda: self._send(batches))
        self._pending.clear()
        self._keyless_partition = (self._keyless_partition + 1) % self._partition_count

    def _new_producer(self) -> tuple[int, int]:
        request = InitProducerIdRequest(transactional_id=None)
        response = self._cluster.anyone().ask(INIT_PRODUCER_ID, request)
        check(response.error_code)
        return response.producer_id, response.producer_epoch

    def _send(self, batches: dict[int, bytes]) -> None:
        """Send batches to their leaders; those that are acknowledged are removed."""
        requests = {
            leader: self._request({each: batches[each] for each in partitions})
            for leader, partitions in self._cluster.by_leader(self._topic, batches).items()
        }
        failure: BrokerError | None = None
        for response in self._cluster.ask_each(PRODUCE, requests):
            for each in response.responses[0].partition_responses:
                try:
                    self._acknowledge(each)
                    del batches[each.index]
                except BrokerError as error:
                    failure = error
        if failure is not None:
            raise failure

    def _request(self, batches: dict[int, bytes]) -> ProduceRequest:
        data = [PartitionProduceData(index=each, records=batch) for each, batch in batches.items()]
        topic = TopicProduceData(name=self._topic, partition_data=data)
        return ProduceRequest(acks=-1, timeout_ms=PRODUCE_TIMEOUT_MS, topic_data=[topic])

    def _acknowledge(self, answer: PartitionProduceResponse) -> None:
        partition, count = answer.index, len(self._pending[answer.index].records)
        if answer.error_code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:  # Else it is there already.
            check(answer.error_code, answer.error_message)
            self.next_offsets[partition] = answer.base_offset + count
        self.acknowledged += count
        self._sequences[partition] = (self._sequences.get(partition, 0) + count) % SEQUENCE_END


def _record_bytes(record: Record) -> int:
    fields = [record.key, record.value, *(part for header in record.headers for part in header)]
    return RECORD_OVERHEAD_BYTES + sum(len(each) for each in fields if each)
