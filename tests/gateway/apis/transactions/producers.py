"""Producers with transactional ids, for the tests of the APIs of transactions."""

from typing import Any

from smq.coordinator.transactions.decisions import ProducerEpoch
from smq.wire.generated.add_offsets_to_txn import AddOffsetsToTxnRequest
from smq.wire.generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from smq.wire.generated.end_txn import EndTxnRequest
from smq.wire.generated.init_producer_id import InitProducerIdRequest
from tests.gateway.coordinator_bench import CoordinatorBench


def begin(bench: CoordinatorBench, name: str = "mine") -> ProducerEpoch:
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
    answer = bench.ask("InitProducerId", 4, request)
    assert answer.error_code == 0
    return ProducerEpoch(answer.producer_id, answer.producer_epoch)


def adding(
    producer: ProducerEpoch, topic: str, *indexes: int, name: str = "mine"
) -> AddPartitionsToTxnRequest:
    added = AddPartitionsToTxnTransaction(
        transactional_id=name,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(indexes))],
    )
    return AddPartitionsToTxnRequest(transactions=[added])


def open_(bench: CoordinatorBench, producer: ProducerEpoch, topic: str, *indexes: int) -> None:
    answer = bench.ask("AddPartitionsToTxn", 3, adding(producer, topic, *indexes))
    [result] = answer.results_by_transaction[0].topic_results
    assert {each.partition_error_code for each in result.results_by_partition} == {0}


def add_group(
    bench: CoordinatorBench, producer: ProducerEpoch, group: str = "g", version: int = 3
) -> int:
    request = AddOffsetsToTxnRequest(
        transactional_id="mine",
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        group_id=group,
    )
    return int(bench.ask("AddOffsetsToTxn", version, request).error_code)


def end(
    bench: CoordinatorBench, producer: ProducerEpoch, version: int = 5, *, committed: bool = True
) -> Any:
    """The answer; or a number, while a shard is deaf."""
    request = EndTxnRequest(
        transactional_id="mine",
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        committed=committed,
    )
    return bench.ask("EndTxn", version, request)
