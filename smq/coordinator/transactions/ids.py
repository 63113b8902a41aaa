"""Every transactional id, in memory and in the store, with its deadline."""

from collections import deque
from collections.abc import Iterator
from dataclasses import replace

from smq.coordinator.deadlines import Deadlines
from smq.coordinator.transactions.decisions import ProducerEpoch, is_of
from smq.coordinator.transactions.states import DECIDED, TransactionState
from smq.model.errors import BrokerError, ErrorCode
from smq.model.now import Now
from smq.store.rows import StoredTransaction
from smq.store.store import Store

WALKED_A_TICK = 1000  # Some milliseconds.


class TransactionalIds:
    """The states by transactional id. Each has a deadline: an open transaction its timeout, a
    decided one the next attempt to write its markers, any other id its expiration."""

    def __init__(self, store: Store, expiration_ms: int, now: Now) -> None:
        self._tables, self._expiration_ms = store.transactions, expiration_ms
        self.deadlines = Deadlines()
        self._kept = {each.transactional_id: _since(each, now) for each in self._tables.all()}
        self._open = {txn.producer_id: txn.transactional_id for txn in self if not is_unused(txn)}
        for txn in self:
            self._set_deadline(txn, now)
        self._to_walk: deque[str] = deque()  # Their deadlines are those of another expiration.

    def take_expiration(self, expiration_ms: int) -> None:
        """Use another expiration for unused ids: `walk` gives them their deadlines."""
        if expiration_ms != self._expiration_ms:
            self._expiration_ms = expiration_ms
            self._to_walk = deque(self._kept)

    def walk(self, now: Now) -> None:
        """Give some more ids the deadlines of a new expiration."""
        for _ in range(min(len(self._to_walk), WALKED_A_TICK)):
            txn = self._kept.get(self._to_walk.popleft())
            if txn is not None and is_unused(txn):
                self._set_deadline(txn, now)

    def next_wake_ms(self) -> int:
        """The earliest time when an id is due, or 0 while there are some to walk."""
        return 0 if self._to_walk else self.deadlines.next_ms()

    def __iter__(self) -> Iterator[StoredTransaction]:
        return iter(self._kept.values())

    def get(self, transactional_id: str) -> StoredTransaction | None:
        """The state of a transactional id; None: unknown."""
        return self._kept.get(transactional_id)

    def find(self, transactional_id: str) -> StoredTransaction:
        """The transactional id. Raises BrokerError."""
        if not transactional_id:
            raise BrokerError(ErrorCode.INVALID_REQUEST)
        txn = self._kept.get(transactional_id)
        if txn is None:
            raise BrokerError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return txn

    def save(self, txn: StoredTransaction, now: Now, *, lazy: bool = False) -> None:
        """Save a new state of an id. `lazy`: a power loss may restore the former one."""
        before = self._kept.get(txn.transactional_id)
        self._tables.save(txn, before, lazy=lazy)
        if before is not None:
            self._open.pop(before.producer_id, None)
        if not is_unused(txn):
            self._open[txn.producer_id] = txn.transactional_id
        self._kept[txn.transactional_id] = txn
        self._set_deadline(txn, now)

    def move_written(self, number: int, generation: int) -> None:
        """What open transactions have written to a partition lies in another log now, durable: only
        a later start of that log than this generation may lose some of it."""
        for key in self._tables.move_written(number, generation):
            txn = self._kept[key]
            self._kept[key] = replace(txn, written={**txn.written, number: generation})

    def has_open(self, producer: ProducerEpoch) -> bool:
        """Whether a transaction is open, or being ended, to which a producer's records of this
        epoch may belong."""
        transactional_id = self._open.get(producer.id)
        return transactional_id is not None and is_of(self._kept[transactional_id], producer.epoch)

    def forget(self, txn: StoredTransaction) -> None:
        """Forget an id that has not been used for long."""
        self._tables.delete(txn.transactional_id)
        del self._kept[txn.transactional_id]

    def take_due(self, now: Now, count_max: int) -> list[StoredTransaction]:
        """Remove and return some ids whose deadline has passed."""
        due = [self._kept[key] for key in self.deadlines.take_due(now.monotonic_ms, count_max)]
        for txn in due:
            if not self._is_due(txn, now):  # The expiration has become longer.
                self._set_deadline(txn, now)
        return [txn for txn in due if self._is_due(txn, now)]

    def _is_due(self, txn: StoredTransaction, now: Now) -> bool:
        return not is_unused(txn) or txn.updated_ms + self._expiration_ms <= now.monotonic_ms

    def _set_deadline(self, txn: StoredTransaction, now: Now) -> None:
        if txn.state in DECIDED:
            due_ms = now.monotonic_ms
        elif txn.state == TransactionState.ONGOING:
            due_ms = txn.started_ms + txn.timeout_ms
        else:
            due_ms = txn.updated_ms + self._expiration_ms
        self.deadlines.set(txn.transactional_id, due_ms)

    def invariants(self) -> None:
        """Assert the invariants between any two calls."""
        self.deadlines.invariants()
        assert self._open == {
            txn.producer_id: txn.transactional_id for txn in self if not is_unused(txn)
        }
        for txn in self:
            is_open = txn.state in DECIDED | {TransactionState.ONGOING}
            assert is_open or not txn.partitions | txn.groups
            assert txn.state in DECIDED or txn.transactional_id in self.deadlines


def is_unused(txn: StoredTransaction) -> bool:
    """Whether nothing is open or being ended."""
    return txn.state != TransactionState.ONGOING and txn.state not in DECIDED


def _since(kept: StoredTransaction, now: Now) -> StoredTransaction:
    """An id as it was kept; a time in the future is the present: no age is negative."""
    started_ms, updated_ms = (
        min(each, now.monotonic_ms) for each in (kept.started_ms, kept.updated_ms)
    )
    return replace(kept, started_ms=started_ms, updated_ms=updated_ms)
