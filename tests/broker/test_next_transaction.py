"""A commit is answered while a shard cannot write its markers: the producer's next transaction
waits, and none of its records comes before them, whether the epoch rises or stays."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from smq.app.process.clock import monotonic_ms
from smq.client.errors import BrokerUnavailable
from smq.client.kafka.admin import create_topic
from smq.client.kafka.cluster import Cluster
from smq.client.kafka.questions import Question
from smq.coordinator.transactions.waiting import WAIT_MS
from smq.model.errors import ErrorCode
from smq.testing.smq_broker import SmqBroker
from smq.wire.generated import apis
from smq.wire.generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from smq.wire.generated.end_txn import EndTxnRequest
from smq.wire.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from smq.wire.generated.init_producer_id import InitProducerIdRequest
from smq.wire.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from smq.wire.records import read_batches
from tests.app.fake_broker import eventually
from tests.broker.questions import FETCH, INIT_PRODUCER_ID
from tests.broker.test_deaths import COORDINATOR, stopped
from tests.shard.transactional_bench import transactional_batch

E = ErrorCode
PARTITIONS = 2  # One on each of two nodes.
ADDS_FROM, BUMPS_FROM = 12, 5  # The versions of Produce and EndTxn.
COMMITTED = 1


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmqBroker]:
    with SmqBroker(tmp_path_factory.mktemp("broker"), {"shards": str(PARTITIONS)}) as broker:
        yield broker


class Producer:
    """One transactional id, with these versions of Produce and EndTxn. Nothing is tried again."""

    def __init__(self, cluster: Cluster, produce: int, end: int) -> None:
        self.cluster, self.topic, self.name = cluster, f"t-{uuid4().hex}", uuid4().hex
        self._produce, self._end = Question(apis.PRODUCE, produce), Question(apis.END_TXN, end)
        create_topic(cluster, self.topic, PARTITIONS)
        self.nodes = [cluster.topic(self.topic).leaders[each] for each in range(PARTITIONS)]
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000)
        begun = cluster.broker(self.nodes[0]).ask(INIT_PRODUCER_ID, request)
        assert begun.error_code == 0
        self.id, self.epoch = begun.producer_id, begun.producer_epoch
        self.adds, self.bumps = produce < ADDS_FROM, end >= BUMPS_FROM
        self.sequences = [0] * PARTITIONS

    def add(self, partition: int) -> ErrorCode:
        added = AddPartitionsToTxnTransaction(
            transactional_id=self.name,
            producer_id=self.id,
            producer_epoch=self.epoch,
            topics=[AddPartitionsToTxnTopic(name=self.topic, partitions=[partition])],
        )
        request = AddPartitionsToTxnRequest(transactions=[added])
        answer = self.cluster.broker(self.nodes[0]).ask(
            Question(apis.ADD_PARTITIONS_TO_TXN, 3), request
        )
        [topic] = answer.results_by_transaction[0].topic_results
        return ErrorCode(topic.results_by_partition[0].partition_error_code)

    def write(self, partition: int, value: bytes) -> ErrorCode:
        """Write a record as the first of a transaction in its partition."""
        if self.adds and (refusal := self.add(partition)):
            return refusal
        sequence = self.sequences[partition]
        records = transactional_batch(value, producer=(self.id, self.epoch), sequence=sequence)
        data = PartitionProduceData(index=partition, records=records)
        request = ProduceRequest(
            transactional_id=self.name,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name=self.topic, partition_data=[data])],
        )
        answer = self.cluster.broker(self.nodes[partition]).ask(self._produce, request)
        error = ErrorCode(answer.responses[0].partition_responses[0].error_code)
        self.sequences[partition] += error == E.NONE
        return error

    def commit(self, wait_s: float | None = None) -> ErrorCode:
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.id,
            producer_epoch=self.epoch,
            committed=True,
        )
        node = self.cluster.broker(self.nodes[0])
        if wait_s is not None:
            node.wait_at_most(wait_s)
        answer = node.ask(self._end, request)
        if self.bumps:
            self.told = answer.producer_epoch
        return ErrorCode(answer.error_code)

    def go_on(self) -> None:
        """Use the epoch that the end has told."""
        if self.bumps:
            self.epoch, self.sequences = self.told, [0] * PARTITIONS

    def read(self, partition: int, isolation: int = 0) -> Any:
        asked = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_bytes=1 << 20,
            isolation_level=isolation,
            topics=[FetchTopic(topic=self.topic, partitions=[asked])],
        )
        return (
            self.cluster.broker(self.nodes[partition])
            .ask(FETCH, request)
            .responses[0]
            .partitions[0]
        )

    def values(self, partition: int, isolation: int = 0) -> list[bytes]:
        """The records and markers of a partition."""
        batches = list(read_batches(bytes(self.read(partition, isolation).records or b"")))
        return [
            b"marker" if batch.is_control else record.value or b""
            for batch in batches
            for record in batch.records()
        ]


@pytest.mark.parametrize(("produce", "end"), [(11, 4), (11, 5), (12, 5)])
def test_the_next_transaction_waits_for_a_shard_that_hangs(
    broker: SmqBroker, cluster: Cluster, produce: int, end: int
) -> None:
    producer = Producer(cluster, produce, end)
    hung = f"shard-{producer.nodes[1]}"
    for number in range(3):
        for partition in range(PARTITIONS):
            assert producer.write(partition, b"%d" % number) == E.NONE
        with stopped(broker, hung):
            assert producer.commit() == E.NONE
            assert producer.values(0, COMMITTED)[-2:] == [b"%d" % number, b"marker"], "at once"
            assert producer.commit() == E.NONE, "the same, again"
            producer.go_on()
            began_ms = monotonic_ms()
            assert producer.write(0, b"too early") == E.CONCURRENT_TRANSACTIONS
            assert monotonic_ms() - began_ms >= WAIT_MS * 0.9
    assert producer.write(0, b"3") == E.NONE, "it has waited for the shard that goes on"
    assert producer.write(1, b"3") == E.NONE
    assert producer.commit() == E.NONE
    expected = [each for number in range(4) for each in (b"%d" % number, b"marker")]
    for partition in range(PARTITIONS):
        eventually(
            lambda partition=partition: producer.values(partition, COMMITTED) == expected,
            "all is committed",
        )


def test_end_txn_that_keeps_the_epoch_waits_for_markers_if_produce_added_partitions(
    broker: SmqBroker, cluster: Cluster
) -> None:
    """The shard would take the next transaction's batch for one of the former."""
    producer = Producer(cluster, 12, 4)
    for partition in range(PARTITIONS):
        assert producer.write(partition, b"0") == E.NONE
    with stopped(broker, f"shard-{producer.nodes[1]}"), pytest.raises(BrokerUnavailable):
        producer.commit(wait_s=0.3)
    eventually(lambda: producer.commit() == E.NONE, "the end is complete")
    assert producer.write(1, b"1") == E.NONE
    assert producer.values(1) == [b"0", b"marker", b"1"]


@pytest.mark.parametrize(("produce", "end"), [(11, 4), (12, 5)])
def test_a_coordinator_that_dies_after_the_answer_has_the_markers_written(
    broker: SmqBroker, cluster: Cluster, produce: int, end: int
) -> None:
    producer = Producer(cluster, produce, end)
    for partition in range(PARTITIONS):
        assert producer.write(partition, b"0") == E.NONE
    with stopped(broker, f"shard-{producer.nodes[1]}"):
        assert producer.commit() == E.NONE
        broker.kill(COORDINATOR)
    producer.go_on()

    def goes_on() -> bool:
        try:
            return producer.write(1, b"1") == E.NONE
        except BrokerUnavailable:  # The coordinator was not there yet.
            return False

    eventually(goes_on, "the next transaction goes on")
    assert producer.values(1) == [b"0", b"marker", b"1"]
    assert producer.values(1, COMMITTED) == [b"0", b"marker"]
