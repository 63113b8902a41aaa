"""Pure functions from a request and a transactional id's state to its next state.

Each returns the new state, or raises BrokerError and changes nothing. The rules are Kafka's
(TransactionCoordinator, TransactionMetadata of 4.3; KIP-98, KIP-360, KIP-890):

- A request names a producer id and epoch. Another id is INVALID_PRODUCER_ID_MAPPING, another epoch
  PRODUCER_FENCED.
- While the markers of a decision are being written, every request is CONCURRENT_TRANSACTIONS, but
  for a repeated EndTxn.
- Version 2 (KIP-890): each end of a transaction bumps the epoch, so that late or repeated requests
  never reach the next transaction (KAFKA-17754). A repeated EndTxn, with the former epoch, is
  answered as the first was.
- The last epoch is never given out: the producer gets another id with epoch 0 instead. An abort may
  leave the last one: whoever names it is fenced, as the next abort would need one more.
"""

from collections.abc import Callable, Set as AbstractSet
from dataclasses import replace
from typing import Any, NamedTuple

from smq.coordinator.transactions.states import COMPLETE, DECIDED, NEXT, TransactionState
from smq.model.errors import BrokerError, ErrorCode
from smq.store.rows import StoredTransaction

S = TransactionState
NO_ID = NO_EPOCH = NO_TIME = -1
EPOCH_MAX = 2**15 - 1
EPOCH_LAST = EPOCH_MAX - 1  # The largest that a producer gets.


class ProducerEpoch(NamedTuple):
    """A producer's id and epoch, in requests and answers."""

    id: int
    epoch: int


class End(NamedTuple):
    """An EndTxn. `bumps`: transactions of version 2, where the epoch rises (KIP-890)."""

    producer: ProducerEpoch
    commits: bool
    bumps: bool


def moved(txn: StoredTransaction, state: TransactionState, **changes: Any) -> StoredTransaction:  # noqa: ANN401
    """The transactional id in its next state."""
    assert state in NEXT[txn.state], f"{txn.state} is not followed by {state}"
    return replace(txn, state=state, previous_producer_id=txn.producer_id, **changes)


# InitProducerId


def created(
    transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int
) -> StoredTransaction:
    """A new transactional id. Its first producer gets epoch 0."""
    return StoredTransaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        epoch=NO_EPOCH,
        previous_producer_id=NO_ID,
        next_producer_id=NO_ID,
        last_epoch=NO_EPOCH,
        timeout_ms=timeout_ms,
        state=S.EMPTY,
        version=2,
        started_ms=NO_TIME,
        updated_ms=now_ms,
    )


def check_beginning(txn: StoredTransaction, brought: ProducerEpoch | None) -> None:
    """Check that a producer may begin, or continue as the one that it names.

    Raises BrokerError. It may name its former id, with the last epoch: then it missed the answer
    with the new one, which it may know before the markers are written.
    """
    if txn.state in DECIDED and brought == afterwards(txn):
        raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if brought is not None and txn.epoch != NO_EPOCH and brought.id != txn.producer_id:
        missed = brought.id == txn.previous_producer_id and brought.epoch >= EPOCH_LAST
        if not missed:
            raise BrokerError(ErrorCode.PRODUCER_FENCED)
    if txn.state in DECIDED:
        raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS)


def begun(
    txn: StoredTransaction,
    brought: ProducerEpoch | None,
    timeout_ms: int,
    new_id: Callable[[], int],
    now_ms: int,
) -> StoredTransaction:
    """A producer begins where nothing is open: it gets the next epoch. Raises BrokerError."""
    assert txn.state == S.EMPTY or txn.state in COMPLETE, "check_beginning, and nothing is open"
    fresh: dict[str, Any] = {"timeout_ms": timeout_ms, "started_ms": NO_TIME, "updated_ms": now_ms}
    is_current = brought is None or txn.epoch in {NO_EPOCH, brought.epoch}
    is_before_the_last = brought is not None and txn.last_epoch == brought.epoch == EPOCH_LAST
    if txn.epoch >= EPOCH_LAST and (is_current or is_before_the_last):
        last = NO_EPOCH if brought is None else brought.epoch
        return moved(txn, S.EMPTY, producer_id=new_id(), epoch=0, last_epoch=last, **fresh)
    if is_current:
        last = NO_EPOCH if brought is None else txn.epoch
        return moved(txn, S.EMPTY, epoch=txn.epoch + 1, last_epoch=last, **fresh)
    assert brought is not None
    if brought.epoch == txn.last_epoch:  # Again: the answer was lost.
        return replace(txn, state=S.EMPTY, **fresh)
    raise BrokerError(ErrorCode.PRODUCER_FENCED)


def fenced(txn: StoredTransaction, now_ms: int) -> StoredTransaction:
    """Abort the open transaction, because another producer begins or the timeout is over, and fence
    its epoch. Its producer may begin again, as long as no other one has."""
    assert txn.state == S.ONGOING
    return moved(
        txn,
        S.PREPARE_ABORT,
        epoch=txn.epoch + 1,
        last_epoch=txn.epoch,
        version=2,
        is_torn=False,
        updated_ms=now_ms,
    )


# AddPartitionsToTxn, AddOffsetsToTxn


def check_producer(txn: StoredTransaction, producer: ProducerEpoch) -> None:
    """Check that this is the current producer. Raises BrokerError."""
    if txn.state in DECIDED and producer == afterwards(txn):
        raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if txn.producer_id != producer.id:
        raise BrokerError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if not _is_current(txn, producer) or txn.state in DECIDED:
        raise BrokerError(ErrorCode.PRODUCER_FENCED)


def _is_current(txn: StoredTransaction, producer: ProducerEpoch) -> bool:
    return txn.epoch == producer.epoch < EPOCH_MAX


def widened(
    txn: StoredTransaction,
    producer: ProducerEpoch,
    numbers: AbstractSet[int],
    groups: AbstractSet[str],
    now_ms: int,
) -> StoredTransaction:
    """Partitions and groups join the transaction, which begins with the first of them.

    Returns the same object if all have joined already. Raises BrokerError.
    """
    check_producer(txn, producer)
    if txn.state == S.ONGOING and numbers <= txn.partitions and groups <= txn.groups:
        return txn
    return moved(
        txn,
        S.ONGOING,
        partitions=txn.partitions | numbers,
        groups=txn.groups | groups,
        started_ms=txn.started_ms if txn.state == S.ONGOING else now_ms,
        updated_ms=now_ms,
    )


def wrote(txn: StoredTransaction, numbers: AbstractSet[int], generation: int) -> StoredTransaction:
    """Partitions get their first records, in this generation of their logs.

    Returns the same object if all have some already.
    """
    first = numbers - txn.written.keys()
    if not first:
        return txn
    return replace(txn, written={**txn.written, **dict.fromkeys(first, generation)})


def is_of(txn: StoredTransaction, epoch: int) -> bool:
    """Whether records of this epoch may be of the transaction, which is open or being ended.

    A decision of version 2, and one that fences, has the next epoch.
    """
    return epoch >= txn.epoch - (txn.state in DECIDED and txn.version > 1)


# EndTxn


def ended(
    txn: StoredTransaction, end: End, new_id: Callable[[], int], now_ms: int
) -> StoredTransaction:
    """Decide the transaction.

    Returns the same object if this was decided before. When epochs run out, the producer gets a new
    id. Raises BrokerError.
    """
    check = _is_again if end.bumps else _is_again_v1
    if check(txn, end):
        return txn
    decision = S.PREPARE_COMMIT if end.commits else S.PREPARE_ABORT
    if not end.bumps:
        return moved(txn, decision, version=1, is_torn=False, updated_ms=now_ms)
    return moved(
        txn,
        decision,
        epoch=txn.epoch + 1,
        last_epoch=txn.epoch,
        version=2,
        is_torn=False,
        next_producer_id=new_id() if txn.epoch >= EPOCH_LAST else NO_ID,
        started_ms=txn.started_ms if txn.state == S.ONGOING else now_ms,
        updated_ms=now_ms,
    )


def afterwards(txn: StoredTransaction) -> ProducerEpoch:
    """The producer's id and epoch once the decision is written everywhere."""
    if txn.next_producer_id != NO_ID:
        return ProducerEpoch(txn.next_producer_id, 0)
    return ProducerEpoch(txn.producer_id, txn.epoch)


def _is_again_v1(txn: StoredTransaction, end: End) -> bool:
    """Whether this end is decided already; False: it may be. Raises BrokerError."""
    if txn.producer_id != end.producer.id:
        raise BrokerError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if txn.epoch != end.producer.epoch:
        raise BrokerError(ErrorCode.PRODUCER_FENCED)
    if txn.state == S.ONGOING:
        return False
    _check_same(txn, commits=end.commits)
    return True


def _is_again(txn: StoredTransaction, end: End) -> bool:
    """The same for version 2, where a repeated EndTxn has the former epoch.

    An abort where nothing is open is decided like any other: it bumps the epoch. The end of the
    next transaction may come while this one's markers are being written.
    """
    if txn.state in DECIDED and end.producer == afterwards(txn):
        raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS)
    bumped = txn.epoch == end.producer.epoch + 1
    rotated = (
        end.producer == (txn.previous_producer_id, EPOCH_LAST)
        and txn.epoch == 0
        and txn.state in COMPLETE
    )
    if txn.producer_id != end.producer.id and not rotated:
        raise BrokerError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if (txn.state in COMPLETE and (bumped or rotated)) or (txn.state in DECIDED and bumped):
        _check_same(txn, commits=end.commits)
        return True
    if txn.state in DECIDED or not _is_current(txn, end.producer):
        raise BrokerError(ErrorCode.PRODUCER_FENCED)
    if end.commits and txn.state != S.ONGOING:
        raise BrokerError(ErrorCode.INVALID_TXN_STATE)
    return False


def _check_same(txn: StoredTransaction, *, commits: bool) -> None:
    same = {S.PREPARE_COMMIT, S.COMPLETE_COMMIT} if commits else {S.PREPARE_ABORT, S.COMPLETE_ABORT}
    if txn.state not in same and commits and txn.is_torn:
        raise BrokerError(ErrorCode.TRANSACTION_ABORTABLE)
    if txn.state not in same:
        raise BrokerError(ErrorCode.INVALID_TXN_STATE)


def marked(txn: StoredTransaction, numbers: AbstractSet[int]) -> StoredTransaction:
    """These partitions have their markers."""
    assert txn.state in DECIDED
    written = {number: each for number, each in txn.written.items() if number not in numbers}
    return replace(txn, partitions=txn.partitions - numbers, written=written)


def completed(txn: StoredTransaction, now_ms: int) -> StoredTransaction:
    """Every marker is written. A producer whose epochs are used up gets its next id now."""
    state = S.COMPLETE_COMMIT if txn.state == S.PREPARE_COMMIT else S.COMPLETE_ABORT
    closed: dict[str, Any] = {"partitions": frozenset(), "groups": frozenset(), "written": {}}
    producer = afterwards(txn)
    closed |= {"producer_id": producer.id, "epoch": producer.epoch, "next_producer_id": NO_ID}
    return moved(txn, state, updated_ms=now_ms, **closed)
