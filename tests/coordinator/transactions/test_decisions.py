"""Every request in every state, by Kafka's rules."""

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from smq.coordinator.transactions.decisions import (
    EPOCH_LAST,
    End,
    ProducerEpoch,
    afterwards,
    begun,
    check_beginning,
    completed,
    created,
    ended,
    fenced,
    widened,
)
from smq.coordinator.transactions.states import TransactionState
from smq.model.errors import BrokerError, ErrorCode
from smq.store.rows import StoredTransaction

S, E = TransactionState, ErrorCode
NOW = 1_700_000_000_000
OLD, NEW = 7, 100


def new_ids() -> Callable[[], int]:
    ids = count(NEW)
    return lambda: next(ids)


def fresh(epoch: int = 0, **changes: object) -> StoredTransaction:
    return replace(created("t", OLD, 60_000, NOW), epoch=epoch, **changes)  # type: ignore[arg-type]


def begin(txn: StoredTransaction, brought: ProducerEpoch | None = None) -> StoredTransaction:
    check_beginning(txn, brought)
    return begun(txn, brought, 60_000, new_ids(), NOW)


def opened(txn: StoredTransaction, producer: ProducerEpoch | None = None) -> StoredTransaction:
    return widened(txn, producer or me(txn), frozenset({1}), frozenset(), NOW)


def me(txn: StoredTransaction) -> ProducerEpoch:
    return ProducerEpoch(txn.producer_id, txn.epoch)


def end(
    txn: StoredTransaction,
    producer: ProducerEpoch | None = None,
    *,
    commits: bool = True,
    bumps: bool = True,
) -> StoredTransaction:
    return ended(txn, End(producer or me(txn), commits, bumps), new_ids(), NOW)


def refused(error: ErrorCode, call: Callable[..., object], *args: Any, **kwargs: Any) -> bool:
    with pytest.raises(BrokerError) as refusal:
        call(*args, **kwargs)
    assert refusal.value.code is error
    return True


# InitProducerId


def test_the_first_producer_has_epoch_0_and_each_next_one_more() -> None:
    first = begin(created("t", OLD, 60_000, NOW))
    assert me(first) == (OLD, 0)
    assert me(begin(first)) == (OLD, 1)


def test_a_producer_that_names_itself_gets_the_next_epoch_and_again_the_same() -> None:
    """KIP-360: the answer may be lost."""
    first = fresh(3)
    second = begin(first, ProducerEpoch(OLD, 3))
    assert me(second) == (OLD, 4)
    assert me(begin(second, ProducerEpoch(OLD, 3))) == (OLD, 4)
    assert refused(E.PRODUCER_FENCED, begin, second, ProducerEpoch(OLD, 2))


def test_a_producer_that_names_another_id_is_fenced() -> None:
    assert refused(E.PRODUCER_FENCED, begin, fresh(3), ProducerEpoch(OLD + 1, 3))


def test_after_the_last_epoch_comes_another_id() -> None:
    assert me(begin(fresh(EPOCH_LAST))) == (NEW, 0)
    rotated = begin(fresh(EPOCH_LAST), ProducerEpoch(OLD, EPOCH_LAST))
    assert me(rotated) == (NEW, 0)
    for _ in range(2):  # The answer was lost, twice.
        rotated = begin(rotated, ProducerEpoch(OLD, EPOCH_LAST))
        assert me(rotated) == (NEW, 0)


@pytest.mark.parametrize("commits", [True, False])
def test_init_producer_id_is_refused_while_a_decision_is_being_written(commits: bool) -> None:
    decided = end(opened(fresh()), commits=commits)
    assert refused(E.CONCURRENT_TRANSACTIONS, begin, decided)


def test_a_fenced_producer_may_not_end_what_was_its_own() -> None:
    txn = opened(fresh(3))
    aborted = fenced(txn, NOW)
    assert (aborted.state, aborted.epoch) == (S.PREPARE_ABORT, 4)
    assert refused(E.PRODUCER_FENCED, end, aborted, me(txn), bumps=False)
    done = completed(aborted, NOW)
    assert refused(E.PRODUCER_FENCED, end, done, me(txn), bumps=False)
    assert me(begin(done)) == (OLD, 5)


def test_a_fenced_producer_may_begin_again_until_another_has_begun() -> None:
    """The producer of a transaction that timed out was told PRODUCER_FENCED, which ends Java's
    producer for ever. Apache Kafka lets it begin with the epoch that the abort has raised."""
    txn = opened(fresh(3))
    done = completed(fenced(txn, NOW), NOW)
    again = begin(done, me(txn))
    assert (me(again), again.state) == ((OLD, 4), S.EMPTY)
    assert me(begin(again, me(txn))) == (OLD, 4), "the answer was lost"
    another = begin(done)
    assert me(another) == (OLD, 5)
    assert refused(E.PRODUCER_FENCED, begin, another, me(txn))


def test_a_fenced_producer_of_the_last_epoch_gets_another_id() -> None:
    txn = opened(fresh(EPOCH_LAST))
    rotated = completed(fenced(txn, NOW), NOW)
    for _ in range(2):  # Its answer was lost.
        rotated = begin(rotated, me(txn))
        assert me(rotated) == (NEW, 0)


# AddPartitionsToTxn, AddOffsetsToTxn


def test_partitions_and_groups_join() -> None:
    txn = opened(fresh())
    wider = widened(txn, me(txn), frozenset({2}), frozenset({"g"}), NOW + 5)
    assert (set(wider.partitions), set(wider.groups)) == ({1, 2}, {"g"})
    assert wider.started_ms == NOW
    assert widened(wider, me(txn), frozenset({2}), frozenset({"g"}), NOW + 9) is wider


def test_a_wrong_producer_cannot_add_partitions() -> None:
    txn = fresh(3)
    for producer, error in (
        (ProducerEpoch(OLD + 1, 3), E.INVALID_PRODUCER_ID_MAPPING),
        (ProducerEpoch(OLD, 2), E.PRODUCER_FENCED),
        (ProducerEpoch(OLD, 4), E.PRODUCER_FENCED),
    ):
        assert refused(error, widened, txn, producer, frozenset({1}), frozenset(), NOW)


@pytest.mark.parametrize("epoch", [0, EPOCH_LAST])
@pytest.mark.parametrize("bumps", [True, False])
def test_nothing_is_added_while_a_decision_is_written(epoch: int, *, bumps: bool) -> None:
    """By a producer with the id and epoch that it has been told, after the last epoch too."""
    former = opened(fresh(epoch))
    decided = end(former, bumps=bumps)
    producer = afterwards(decided)
    assert producer == me(completed(decided, NOW))
    assert refused(E.CONCURRENT_TRANSACTIONS, opened, decided, producer)
    if bumps:
        assert refused(E.CONCURRENT_TRANSACTIONS, end, decided, producer, commits=False)
        assert refused(E.PRODUCER_FENCED, opened, decided, me(former))


# EndTxn, version 2


@pytest.mark.parametrize("commits", [True, False])
def test_each_end_bumps_the_epoch_and_again_is_answered_the_same(commits: bool) -> None:
    txn = opened(fresh(3))
    decided = end(txn, commits=commits)
    assert decided.epoch == 4
    assert end(decided, me(txn), commits=commits) is decided
    assert refused(E.INVALID_TXN_STATE, end, decided, me(txn), commits=not commits)
    done = completed(decided, NOW)
    assert me(done) == (OLD, 4)
    assert end(done, me(txn), commits=commits) is done
    assert refused(E.INVALID_TXN_STATE, end, done, me(txn), commits=not commits)


def test_a_late_request_never_changes_the_next_transaction() -> None:
    """KAFKA-17754: a doubled EndTxn, and a doubled AddPartitionsToTxn."""
    first = opened(fresh(3))
    second = opened(completed(end(first), NOW))
    for commits in (True, False):
        assert refused(E.PRODUCER_FENCED, end, second, me(first), commits=commits)
    assert refused(E.PRODUCER_FENCED, widened, second, me(first), frozenset({9}), frozenset(), NOW)


def test_an_abort_of_nothing_bumps_and_a_commit_of_nothing_is_refused() -> None:
    txn = fresh(3)
    assert refused(E.INVALID_TXN_STATE, end, txn)
    done = completed(end(txn, commits=False), NOW)
    assert (done.state, me(done)) == (S.COMPLETE_ABORT, (OLD, 4))
    assert me(completed(end(done, commits=False), NOW)) == (OLD, 5)
    assert refused(E.INVALID_TXN_STATE, end, done)


def test_the_end_after_the_last_epoch_gives_another_id_and_again_too() -> None:
    txn = opened(fresh(EPOCH_LAST))
    decided = end(txn)
    assert (decided.producer_id, decided.epoch) == (OLD, EPOCH_LAST + 1)  # Its markers'.
    assert end(decided, me(txn)) is decided
    done = completed(decided, NOW)
    assert me(done) == (NEW, 0)
    assert end(done, me(txn)) is done
    assert refused(E.INVALID_TXN_STATE, end, done, me(txn), commits=False)


def test_a_producer_with_the_epoch_that_an_abort_has_used_up_is_fenced() -> None:
    """Markers have it in 16 bits: shards ended at those of the next abort, each time."""
    done = completed(fenced(opened(fresh(EPOCH_LAST)), NOW), NOW)
    assert (done.state, done.epoch) == (S.COMPLETE_ABORT, EPOCH_LAST + 1)
    assert refused(E.PRODUCER_FENCED, opened, done)
    assert refused(E.PRODUCER_FENCED, end, done, commits=False)
    assert me(begin(done)) == (NEW, 0)


def test_a_producer_that_knows_its_next_id_is_not_fenced_by_its_own_end() -> None:
    """EndTxn tells it before the markers are written: the producer was told to be fenced."""
    decided = end(opened(fresh(EPOCH_LAST)))
    told = afterwards(decided)
    assert refused(E.CONCURRENT_TRANSACTIONS, begin, decided, told)
    assert me(begin(completed(decided, NOW), told)) == (NEW, 1)


def test_another_id_is_no_producer_of_this_transactional_id() -> None:
    txn = opened(fresh())
    stranger = ProducerEpoch(OLD + 1, 0)
    for bumps in (True, False):
        assert refused(E.INVALID_PRODUCER_ID_MAPPING, end, txn, stranger, bumps=bumps)


# EndTxn, version 1


@pytest.mark.parametrize("commits", [True, False])
def test_version_1_keeps_the_epoch(commits: bool) -> None:
    txn = opened(fresh(3))
    decided = end(txn, commits=commits, bumps=False)
    assert end(decided, commits=commits, bumps=False) is decided
    assert refused(E.INVALID_TXN_STATE, end, decided, commits=not commits, bumps=False)
    done = completed(decided, NOW)
    assert me(done) == (OLD, 3)
    assert end(done, commits=commits, bumps=False) is done
    assert refused(E.INVALID_TXN_STATE, end, done, commits=not commits, bumps=False)


def test_version_1_ends_nothing_that_is_not_open() -> None:
    for commits in (True, False):
        assert refused(E.INVALID_TXN_STATE, end, fresh(), commits=commits, bumps=False)
