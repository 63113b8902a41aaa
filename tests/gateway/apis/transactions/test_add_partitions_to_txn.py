"""AddPartitionsToTxn: all of a request or nothing; from 4 on several transactions at once."""

from typing import Any

import pytest

from smq.coordinator.transactions.decisions import ProducerEpoch
from smq.model.errors import ErrorCode
from smq.wire.generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tests.gateway.apis.transactions.producers import adding, begin
from tests.gateway.coordinator_bench import CoordinatorBench

E = ErrorCode


def codes(topics: Any) -> list[ErrorCode]:
    return [each.partition_error_code for topic in topics for each in topic.results_by_partition]


def ask(bench: CoordinatorBench, request: Any, version: int = 3) -> list[ErrorCode]:
    answer = bench.ask("AddPartitionsToTxn", version, request)
    [result] = answer.results_by_transaction
    return codes(result.topic_results)


def inside(bench: CoordinatorBench, name: str = "mine") -> int:
    found = bench.coordinator.transactions.get(name)
    assert found is not None
    return len(found.partitions)


@pytest.mark.parametrize("version", range(4))
def test_partitions_join(bench: CoordinatorBench, version: int) -> None:
    producer = begin(bench)
    assert ask(bench, adding(producer, "t", 0, 2), version) == [E.NONE, E.NONE]
    assert ask(bench, adding(producer, "t", 2), version) == [E.NONE]
    assert inside(bench) == 2


def test_all_or_nothing(bench: CoordinatorBench) -> None:
    producer = begin(bench)
    not_tried, unknown = E.OPERATION_NOT_ATTEMPTED, E.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(bench, adding(producer, "t", 0, 3, -1)) == [not_tried, unknown, unknown]
    assert ask(bench, adding(producer, "other", 0)) == [unknown]
    assert inside(bench) == 0


@pytest.mark.parametrize(
    ("version", "fenced"), [(1, E.INVALID_PRODUCER_EPOCH), (2, E.PRODUCER_FENCED)]
)
def test_a_wrong_producer_cannot_add_partitions(
    bench: CoordinatorBench, version: int, fenced: ErrorCode
) -> None:
    producer = begin(bench)
    later, other = producer._replace(epoch=9), producer._replace(id=producer.id + 1)
    assert ask(bench, adding(later, "t", 0), version) == [fenced]
    assert ask(bench, adding(other, "t", 0), version) == [E.INVALID_PRODUCER_ID_MAPPING]
    unknown = adding(producer, "t", 0, name="unknown")
    assert ask(bench, unknown, version) == [E.INVALID_PRODUCER_ID_MAPPING]
    assert ask(bench, adding(producer, "t", 0, name=""), version) == [E.INVALID_REQUEST]


@pytest.mark.parametrize("version", [4, 5])
def test_several_transactions(bench: CoordinatorBench, version: int) -> None:
    def one(name: str, producer: ProducerEpoch, *, verify: bool) -> AddPartitionsToTxnTransaction:
        return AddPartitionsToTxnTransaction(
            transactional_id=name,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            verify_only=verify,
            topics=[AddPartitionsToTxnTopic(name="t", partitions=[0, 1])],
        )

    a, b = begin(bench, "a"), begin(bench, "b")
    for verify_b, error in ((True, E.TRANSACTION_ABORTABLE), (False, E.NONE), (True, E.NONE)):
        request = AddPartitionsToTxnRequest(
            transactions=[one("a", a, verify=False), one("b", b, verify=verify_b)]
        )
        answer = bench.ask("AddPartitionsToTxn", version, request)
        of_a, of_b = answer.results_by_transaction
        assert (of_a.transactional_id, of_b.transactional_id) == ("a", "b")
        assert codes(of_a.topic_results) == [E.NONE, E.NONE]
        assert codes(of_b.topic_results) == [error, error]


def test_a_transaction_of_very_many_partitions_is_taken_in_portions(
    bench: CoordinatorBench,
) -> None:
    producer = begin(bench)
    assert ask(bench, adding(producer, "t", *([0, 1, 2] * 1000))) == [E.NONE] * 3000
    assert inside(bench) == 3
