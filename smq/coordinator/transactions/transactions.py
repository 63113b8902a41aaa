"""Every transactional id: requests in, answers and orders to the shards out.

The owner commits the store once a turn, and only then sends `take_answers` and `take_orders`.
"""

from collections.abc import Iterator, Mapping, Set as AbstractSet
from typing import NamedTuple

from smq.coordinator.producer_ids import ProducerIds
from smq.coordinator.transactions import decisions
from smq.coordinator.transactions.decisions import End, ProducerEpoch
from smq.coordinator.transactions.endings import OFFSETS_A_STEP, Ended, Endings
from smq.coordinator.transactions.ids import TransactionalIds
from smq.coordinator.transactions.orders import Order, Places
from smq.coordinator.transactions.states import DECIDED, TransactionState
from smq.model.errors import BrokerError, ErrorCode
from smq.model.now import Now
from smq.store.rows import CommittedOffset, StoredTransaction
from smq.store.store import Store

S = TransactionState
DUE_A_TICK = 20  # Each takes up to half a millisecond, beside its offsets.


class TransactionRules(NamedTuple):
    """The broker's settings that concern transactions."""

    timeout_max_ms: int
    expiration_ms: int


class Transactions:
    """Every transactional id. `endings` hears of the shards' answers."""

    def __init__(
        self,
        store: Store,
        rules: TransactionRules,
        producer_ids: ProducerIds,
        places: Places,
        now: Now,
    ) -> None:
        self._tables, self._rules, self._producer_ids = store.transactions, rules, producer_ids
        self._ids = TransactionalIds(store, rules.expiration_ms, now)
        self.endings = Endings(store, self._ids, producer_ids, places)
        self.endings.assume_written(now)

    def take_rules(self, rules: TransactionRules) -> None:
        """Use other settings from now on. An open transaction keeps its timeout."""
        self._rules = rules
        self._ids.take_expiration(rules.expiration_ms)

    def __iter__(self) -> Iterator[StoredTransaction]:
        return iter(self._ids)

    def get(self, transactional_id: str) -> StoredTransaction | None:
        """The state of a transactional id; None: unknown."""
        return self._ids.get(transactional_id)

    def has_open(self, producer: ProducerEpoch) -> bool:
        """Whether a transaction is open, or being ended, to which a producer's records of this
        epoch may belong."""
        return self._ids.has_open(producer)

    def begin(
        self, transactional_id: str, timeout_ms: int, brought: ProducerEpoch | None, now: Now
    ) -> ProducerEpoch:
        """InitProducerId: a producer begins, and fences the former one.

        Raises BrokerError. An open transaction is aborted first: CONCURRENT_TRANSACTIONS, and the
        producer tries again.
        """
        if not 0 < timeout_ms <= self._rules.timeout_max_ms:
            raise BrokerError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        txn = self._ids.get(transactional_id)
        if txn is None:
            new_id = self._producer_ids.next()
            txn = decisions.created(transactional_id, new_id, timeout_ms, now.monotonic_ms)
        self.endings.check_none(transactional_id)
        decisions.check_beginning(txn, brought)
        if txn.state == S.ONGOING:
            self.endings.fence(txn, now)
            raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS)
        begun = decisions.begun(txn, brought, timeout_ms, self._producer_ids.next, now.monotonic_ms)
        self._ids.save(begun, now)
        return ProducerEpoch(begun.producer_id, begun.epoch)

    def add(
        self,
        transactional_id: str,
        producer: ProducerEpoch,
        now: Now,
        *,
        numbers: AbstractSet[int] = frozenset(),
        groups: AbstractSet[str] = frozenset(),
    ) -> None:
        """Partitions and groups join the transaction. Raises BrokerError."""
        txn = self._ids.find(transactional_id)
        self.endings.check_none(transactional_id)
        widened = decisions.widened(txn, producer, numbers, groups, now.monotonic_ms)
        if widened is not txn:
            self.endings.save_joined(widened, numbers, now)

    def is_ending(self, transactional_id: str) -> bool:
        """Whether a decision is being written: its producer's next transaction must wait."""
        txn = self._ids.get(transactional_id)
        return txn is not None and txn.state in DECIDED

    def verify(self, transactional_id: str, producer: ProducerEpoch) -> StoredTransaction:
        """The transaction that a producer claims to have. Raises BrokerError."""
        txn = self._ids.find(transactional_id)
        decisions.check_producer(txn, producer)
        return txn

    def note_written(
        self, txn: StoredTransaction, numbers: AbstractSet[int], generation: int, now: Now
    ) -> None:
        """Partitions of a verified transaction get their first records, in this generation of their
        logs; others are ignored."""
        self.endings.note_written(txn, numbers & txn.partitions, generation, now)

    def move_written(self, number: int, epoch: int) -> None:
        """A partition has moved, and is led in this epoch: what open transactions have written to
        it was synced before. Generations and epochs are of one counter."""
        self._ids.move_written(number, epoch)

    def put_offsets(
        self, transactional_id: str, group_id: str, offsets: Mapping[int, CommittedOffset]
    ) -> None:
        """Keep a group's offsets until the decision. The group has joined the transaction."""
        assert group_id in self._ids.find(transactional_id).groups
        self._tables.put_offsets(transactional_id, group_id, offsets)
        self.endings.note_joined(transactional_id, offsets)

    def end(self, transactional_id: str, end: End, ticket: object, now: Now) -> None:
        """EndTxn; the answer comes with `take_answers`. Raises BrokerError."""
        txn = self._ids.find(transactional_id)
        self.endings.check_none(transactional_id)
        self.endings.end(txn, end, ticket, now)

    def next_wake_ms(self) -> int:
        """The earliest time when `tick` has something to do (monotonic)."""
        return self._ids.next_wake_ms()

    def tick(self, now: Now) -> None:
        """Abort transactions beyond their timeout, go on with endings, forget unused ids. Some of
        them, with some offsets in all: then `next_wake_ms` is now."""
        settled = 0
        for txn in self._ids.take_due(now, DUE_A_TICK):
            if settled >= OFFSETS_A_STEP:
                self._ids.deadlines.set(txn.transactional_id, now.monotonic_ms)
            elif txn.state == S.ONGOING:
                settled += self.endings.fence(txn, now)
            elif txn.state in DECIDED:
                settled += self.endings.go_on(txn, now)
            else:
                self._ids.forget(txn)
        self._ids.walk(now)

    @property
    def has_answers(self) -> bool:
        """Whether `take_answers` has some."""
        return bool(self.endings.answers)

    def take_answers(self) -> list[Ended]:
        """The answers that have become known since the last call."""
        answers, self.endings.answers = self.endings.answers, []
        return answers

    def take_completed(self) -> list[str]:
        """The ids whose ends have become complete since the last call."""
        completed, self.endings.completed = self.endings.completed, []
        return completed

    def take_orders(self) -> list[Order]:
        """The orders to shards. They may be sent once the store has committed."""
        orders, self.endings.orders = self.endings.orders, []
        return orders

    def invariants(self) -> None:
        """Assert the invariants between any two calls."""
        self._ids.invariants()
        self.endings.invariants()
