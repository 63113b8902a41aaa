"""EndTxn: answered when the decision is stored; from 5 on with the producer's new epoch."""

import pytest

from smq.coordinator.commands import execute
from smq.model.errors import ErrorCode
from smq.wire.internal.form import encode_question
from smq.wire.internal.frames import InternalReader
from smq.wire.internal.transactions import AddPartitions
from tests.gateway.apis.transactions.producers import adding, begin, end, open_
from tests.gateway.coordinator_bench import CoordinatorBench
from tests.gateway.groups import make_topic

E = ErrorCode


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_ends(bench: CoordinatorBench, version: int, committed: bool) -> None:
    producer = begin(bench)
    open_(bench, producer, "t", 0, 1)
    bumped = version >= 5
    for _ in range(2):  # The second is the first, sent again.
        answer = end(bench, producer, version, committed=committed)
        now = (producer.id, 1) if bumped else (-1, -1)
        assert answer.error_code == E.NONE
        assert (answer.producer_id, answer.producer_epoch) == now
    opposite = end(bench, producer, version, committed=not committed)
    assert opposite.error_code == E.INVALID_TXN_STATE


@pytest.mark.parametrize("version", [4, 5])
def test_the_answer_does_not_wait_for_the_markers(bench: CoordinatorBench, version: int) -> None:
    producer = begin(bench)
    open_(bench, producer, "t", 0)
    bench.is_deaf = True
    for _ in range(2):  # The second is the first, sent again.
        answer = end(bench, producer, version)
        assert answer.error_code == E.NONE
        assert answer.producer_epoch == (1 if version == 5 else -1)
    following = producer._replace(epoch=producer.epoch + (version == 5))
    adding_next = adding(following, "t", 0)
    [told] = bench.ask("AddPartitionsToTxn", 3, adding_next).results_by_transaction[0].topic_results
    assert told.results_by_partition[0].partition_error_code == E.CONCURRENT_TRANSACTIONS
    bench.is_deaf = False
    bench.answers()
    open_(bench, following, "t", 0)


def test_end_txn_below_5_waits_for_markers_if_produce_added_partitions(
    bench: CoordinatorBench,
) -> None:
    """If Produce adds the partitions: the next transaction's batches would join this one."""
    producer = begin(bench)
    numbers = [*bench.coordinator.topics.catalog.by_name["t"].partition_numbers]
    question = AddPartitions("mine", *producer, numbers, 0)
    [frame] = InternalReader().receive(encode_question(1, question))
    assert execute(frame.body, bench.coordinator, bench.now) == [0] * len(numbers)
    bench.is_deaf = True
    waiting = end(bench, producer, 4)
    assert isinstance(waiting, int)
    assert end(bench, producer, 4).error_code == E.CONCURRENT_TRANSACTIONS
    bench.is_deaf = False
    assert bench.answers()[waiting].error_code == E.NONE


@pytest.mark.parametrize("version", [1, 2])
def test_a_fenced_producer_ends_nothing(bench: CoordinatorBench, version: int) -> None:
    zombie = begin(bench)
    begin(bench)
    answer = end(bench, zombie, version)
    assert answer.error_code == (E.INVALID_PRODUCER_EPOCH if version < 2 else E.PRODUCER_FENCED)


@pytest.mark.parametrize("version", range(6))
def test_a_commit_that_lost_records_is_aborted_with_an_error_that_the_version_knows(
    bench: CoordinatorBench, version: int
) -> None:
    """Data fault 21: half of a transaction over a `disk` and an `os` topic was committed."""
    make_topic(bench, "d", smq_durability="disk")
    producer = begin(bench)
    open_(bench, producer, "t", 0)
    open_(bench, producer, "d", 0)
    bench.lost = set(bench.coordinator.topics.catalog.by_name["t"].partition_numbers)
    answer = end(bench, producer, version)
    assert answer.error_code == (E.TRANSACTION_ABORTABLE if version >= 4 else E.INVALID_TXN_STATE)
    assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
    assert end(bench, producer, version, committed=False).error_code == E.NONE
