"""From EndTxn to the last marker.

    EndTxn ──▶ SyncOrder to the nodes, if a topic is `disk` ──▶ the decision, with the offsets
           ──▶ the store's commit ──▶ MarkerOrder to the nodes, then the answer ──▶ complete

EndTxn is answered when the decision is stored. The markers are sent until each node has answered;
after a restart, those again that were not known to be written. What the next transaction asks for
meanwhile waits until this one is complete (`waiting`), so that none of its records comes before a
marker of this one. But where Produce 12 has added partitions, it asks only for those that have no
open transaction of its epoch. If such a producer's EndTxn (below 5) keeps the epoch, the next
transaction's batches would join this one where the marker is missing: its answer waits until the
end is complete, and a repeated one is CONCURRENT_TRANSACTIONS until then.

No step is larger than a portion, however many partitions and offsets a transaction has: syncs and
markers are ordered PARTITIONS_AT_ONCE at a time, and its offsets are settled OFFSETS_A_STEP at a
time. Until then they are undecided, as in Kafka, whose markers in __consumer_offsets take time too.

A commit is synced if a power loss must not tear the transaction: if a topic that it writes, or
whose offsets it commits, is `disk`. Then all that it has written is synced first, and its markers
count once they are synced. If a log may have lost records of it before, in any of its topics, it is
aborted instead, and the answer is TRANSACTION_ABORTABLE.

An abort is always synced: otherwise a power loss could reopen the transaction, and its records
would be committed with the next one's. The completion is never synced: at worst the markers are
sent again, before the id's next transaction has records, because a partition joins that transaction
with a sync.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from smq.coordinator.producer_ids import ProducerIds
from smq.coordinator.transactions import decisions
from smq.coordinator.transactions.decisions import (
    NO_EPOCH,
    NO_ID,
    End,
    ProducerEpoch,
    afterwards,
)
from smq.coordinator.transactions.ids import TransactionalIds, is_unused
from smq.coordinator.transactions.orders import (
    MarkerOrder,
    Order,
    Places,
    SyncOrder,
    has_synced,
)
from smq.coordinator.transactions.states import DECIDED, TransactionState
from smq.model.errors import BrokerError, ErrorCode
from smq.model.now import Now
from smq.store.rows import StoredTransaction
from smq.store.store import Store

S = TransactionState
EVER = 0  # The generation of a first start.
RETRY_MS = 100  # Before asking a node again that did not answer.
PARTITIONS_AT_ONCE = 300  # In orders without an answer yet: some milliseconds of a shard's loop.
OFFSETS_A_STEP = 300  # Likewise, of the coordinator's.


class EndAnswer(NamedTuple):
    """The answer to an EndTxn: the producer's current id and epoch."""

    error: ErrorCode
    producer: ProducerEpoch = ProducerEpoch(NO_ID, NO_EPOCH)


class Ended(NamedTuple):
    """The answer to a ticket's EndTxn is known."""

    ticket: object
    answer: EndAnswer


@dataclass(slots=True)
class _Syncing:
    """An EndTxn whose partitions are being synced.

    `nodes` have not answered yet; `todo` are the partitions without an order.
    """

    serial: int
    end: End
    ticket: object
    todo: list[int]
    nodes: set[int] = field(default_factory=set)
    has_lost: bool = False


@dataclass(slots=True)
class _Left:
    """What is left of a decision: partitions without an order and those with one, and whether there
    are offsets."""

    todo: list[int]
    has_offsets: bool
    asked: set[int] = field(default_factory=set)


class Endings:
    """The EndTxns without an answer yet, and their orders to the shards."""

    def __init__(
        self,
        store: Store,
        ids: TransactionalIds,
        producer_ids: ProducerIds,
        places: Places,
    ) -> None:
        self._offsets, self._ids, self._producer_ids = store.transactions, ids, producer_ids
        self._places = places
        self._coordinator_epoch = store.allocate("coordinator_epoch", 1)
        self._serial = 0
        self._syncing: dict[str, _Syncing] = {}
        self._left = {txn.transactional_id: _left_of(txn) for txn in ids if txn.state in DECIDED}
        self._synced: set[str] = set()  # Open ones with a partition or an offset of a `disk` topic.
        self._joined: dict[str, int] = {}  # The others: the configs that their topics had.
        self._implied = {txn.transactional_id for txn in ids if not is_unused(txn)}
        self._tickets: dict[str, object] = {}  # Of ends that are answered once complete.
        self.completed: list[str] = []
        self.answers: list[Ended] = []
        self.orders: list[Order] = []

    def note_written(
        self, txn: StoredTransaction, numbers: AbstractSet[int], generation: int, now: Now
    ) -> None:
        """Partitions get their first records, in this generation of their logs.

        A power loss may take the note with the records, but not if it must not tear the
        transaction: then the note tells that there were some.
        """
        wrote = decisions.wrote(txn, numbers, generation)
        if wrote is not txn:
            must_sync = self._must_sync(txn.transactional_id)
            self._ids.save(replace(wrote, is_synced=must_sync), now, lazy=not must_sync)

    def save_joined(self, txn: StoredTransaction, numbers: Iterable[int], now: Now) -> None:
        """Save a transaction that partitions, or groups, have joined."""
        self.note_joined(txn.transactional_id, numbers)
        self._ids.save(replace(txn, is_synced=self._must_sync(txn.transactional_id)), now)

    def note_implied(self, transactional_id: str) -> None:
        """A Produce has added partitions to an open transaction."""
        self._implied.add(transactional_id)

    def note_joined(self, transactional_id: str, numbers: Iterable[int]) -> None:
        """Partitions, or offsets of some, are in an open transaction."""
        if transactional_id in self._synced:
            return
        self._joined.setdefault(transactional_id, self._places.config_changes())
        if has_synced(numbers, self._places.find):
            self._synced.add(transactional_id)

    def assume_written(self, now: Now) -> None:
        """At a start: a power loss may have taken notes that were not synced. So what has joined
        may have records, whatever the configs are now."""
        for txn in [txn for txn in self._ids if txn.state == S.ONGOING]:
            key = txn.transactional_id
            self.note_joined(key, txn.partitions)
            self.note_joined(key, self._offsets.offset_numbers(key) if txn.groups else ())
            if not txn.is_synced:
                self.note_written(txn, txn.partitions, EVER, now)

    def check_none(self, transactional_id: str) -> None:
        """Raise BrokerError while an EndTxn waits for a sync."""
        if transactional_id in self._syncing:
            raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS)

    def end(self, txn: StoredTransaction, end: End, ticket: object, now: Now) -> None:
        """Decide an EndTxn, after a sync if needed. Raises BrokerError."""
        ended = self._ended(txn, end, now)
        if ended is txn and txn.state in DECIDED and self._is_late(txn):
            raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if ended is txn:
            self.answers.append(Ended(ticket, _answer(txn)))
        elif end.commits and self._must_sync(txn.transactional_id):
            self._serial += 1
            waiting = _Syncing(self._serial, end, ticket, list(txn.partitions))
            self._syncing[txn.transactional_id] = waiting
            self._sync(txn, waiting, now)
        else:
            self._decide(ended, now)
            self._respond(ended, ticket)

    def _sync(self, txn: StoredTransaction, waiting: _Syncing, now: Now) -> None:
        """Order the next syncs; after the last one, decide."""
        by_node = dict[int, frozenset[int]]()
        while waiting.todo and not by_node:
            by_node = self._by_node(_taken(waiting.todo, PARTITIONS_AT_ONCE))
        waiting.nodes = set(by_node)
        self.orders += [
            SyncOrder(
                txn.transactional_id,
                node,
                txn.producer_id,
                waiting.serial,
                those,
                _of(txn.written, those),
            )
            for node, those in by_node.items()
        ]
        if not by_node:
            del self._syncing[txn.transactional_id]
            end = waiting.end._replace(commits=not waiting.has_lost)
            decided = replace(self._ended(txn, end, now), is_torn=waiting.has_lost)
            self._decide(decided, now, is_synced=end.commits)
            self._respond(decided, waiting.ticket)

    def _respond(self, decided: StoredTransaction, ticket: object) -> None:
        """Answer with the store's commit, or once the end is complete."""
        if self._is_late(decided):
            self._tickets[decided.transactional_id] = ticket
        else:
            self.answers.append(Ended(ticket, _outcome(decided)))

    def _is_late(self, decided: StoredTransaction) -> bool:
        """Whether the answer waits for the markers, if there are any left."""
        return decided.version == 1 and decided.transactional_id in self._implied

    def _ended(self, txn: StoredTransaction, end: End, now: Now) -> StoredTransaction:
        return decisions.ended(txn, end, self._producer_ids.next, now.monotonic_ms)

    def fence(self, txn: StoredTransaction, now: Now) -> int:
        """Abort the open transaction, whichever producer began it; returns how many offsets were
        settled."""
        self._give_up(txn.transactional_id, ErrorCode.PRODUCER_FENCED)
        return self._decide(decisions.fenced(txn, now.monotonic_ms), now)

    def _decide(self, decided: StoredTransaction, now: Now, *, is_synced: bool = False) -> int:
        decided = replace(decided, is_synced=is_synced)
        key = decided.transactional_id
        commits = decided.state == S.PREPARE_COMMIT
        self._synced.discard(key)
        self._joined.pop(key, None)
        self._ids.save(decided, now, lazy=commits and not is_synced)
        self._left[key] = _left_of(decided)
        return self.go_on(decided, now)

    def go_on(self, txn: StoredTransaction, now: Now) -> int:
        """Settle a portion of the offsets and order missing markers, or complete the transaction if
        there are none; returns how many offsets were settled."""
        settled = 0
        key, left = txn.transactional_id, self._left[txn.transactional_id]
        self._ids.deadlines.clear(key)  # Until the nodes have reported.
        commits = txn.state == S.PREPARE_COMMIT
        if left.has_offsets:
            settle = self._offsets.apply_offsets if commits else self._offsets.drop_offsets
            lazy = commits and not txn.is_synced
            settled = settle(key, OFFSETS_A_STEP, lazy=lazy)
            left.has_offsets = settled == OFFSETS_A_STEP
        portion = _taken(left.todo, PARTITIONS_AT_ONCE - len(left.asked))
        by_node = self._by_node(portion)
        left.asked.update(*by_node.values())
        said = txn.producer_id, txn.epoch, commits, txn.version, self._coordinator_epoch
        self.orders += [
            MarkerOrder(key, node, *said, txn.is_synced, those) for node, those in by_node.items()
        ]
        if left.has_offsets or (left.todo and not left.asked):
            self._ids.deadlines.set(key, now.monotonic_ms)
        elif not left.asked:
            self._complete(txn, now)
        return settled

    def _complete(self, txn: StoredTransaction, now: Now) -> None:
        del self._left[txn.transactional_id]
        self._implied.discard(txn.transactional_id)
        self.completed.append(txn.transactional_id)
        completed = decisions.completed(txn, now.monotonic_ms)
        self._ids.save(completed, now, lazy=True)
        ticket = self._tickets.pop(txn.transactional_id, None)
        if ticket is not None:
            self.answers.append(Ended(ticket, _outcome(completed)))

    def _by_node(self, numbers: Iterable[int]) -> dict[int, frozenset[int]]:
        """These partitions by the node that leads them. One that was deleted needs no marker."""
        found = defaultdict[int, set[int]](set)
        for number in numbers:
            place = self._places.find(number)
            if place is not None:
                found[place.node].add(number)
        return {node: frozenset(those) for node, those in found.items()}

    def _must_sync(self, transactional_id: str) -> bool:
        """Whether a power loss must not tear it, because it may have written to a `disk` topic or
        commit offsets of one. Its partitions are not walked: if configs have changed since it
        began, one may have become `disk`."""
        changes = self._places.config_changes()
        is_as_noted = self._joined.get(transactional_id, changes) == changes
        return transactional_id in self._synced or not is_as_noted

    # What became of orders

    def synced(self, order: SyncOrder, lost: AbstractSet[int], now: Now) -> None:
        """A node has carried out its SyncOrder; the last one brings the decision.

        `lost`: the partitions that may have lost records of the transaction.
        """
        waiting = self._syncing.get(order.transactional_id)
        if waiting is None or waiting.serial != order.serial:
            return
        waiting.has_lost |= bool(lost)
        waiting.nodes.discard(order.node)
        if not waiting.nodes:
            self._sync(self._ids.find(order.transactional_id), waiting, now)

    def not_synced(self, order: SyncOrder, now: Now) -> None:
        """A node could not sync: decide nothing; the producer may try again. Partitions that it
        does not lead any more, or that were deleted, are ordered again where they are."""
        waiting = self._syncing.get(order.transactional_id)
        if waiting is None or waiting.serial != order.serial:
            return
        if self._by_node(order.numbers) == {order.node: order.numbers}:
            self._give_up(order.transactional_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        waiting.todo += order.numbers
        waiting.nodes.discard(order.node)
        if not waiting.nodes:
            self._sync(self._ids.find(order.transactional_id), waiting, now)

    def _give_up(self, transactional_id: str, error: ErrorCode) -> None:
        """Decide nothing for an EndTxn that waits for a sync, if there is one."""
        waiting = self._syncing.pop(transactional_id, None)
        if waiting is not None:
            self.answers.append(Ended(waiting.ticket, EndAnswer(error)))

    def marked(self, order: MarkerOrder, numbers: AbstractSet[int], now: Now) -> None:
        """A node has written these markers of an order; missing ones are ordered again."""
        txn = self._ids.get(order.transactional_id)
        if txn is None or txn.state not in DECIDED or txn.epoch != order.epoch:
            return  # The decision is complete.
        left, missing = self._left[order.transactional_id], order.numbers - numbers
        left.asked -= order.numbers
        left.todo += missing
        if left.todo or left.asked or left.has_offsets:
            txn = decisions.marked(txn, order.numbers & numbers)
            self._ids.save(txn, now, lazy=True)
        if missing:
            self._ids.deadlines.set(order.transactional_id, now.monotonic_ms + RETRY_MS)
        else:
            self.go_on(txn, now)

    def invariants(self) -> None:
        """Assert the invariants between any two calls."""
        decided = {txn.transactional_id for txn in self._ids if txn.state in DECIDED}
        assert self._left.keys() == decided >= self._tickets.keys()
        assert self._implied <= {txn.transactional_id for txn in self._ids if not is_unused(txn)}
        for key, left in self._left.items():
            assert len(left.asked) <= PARTITIONS_AT_ONCE
            assert {*left.todo} | left.asked <= self._ids.find(key).partitions
        for key in self._syncing:
            assert self._ids.find(key).state == S.ONGOING


def _left_of(txn: StoredTransaction) -> _Left:
    return _Left(list(txn.partitions), has_offsets=bool(txn.groups))


def _taken(numbers: list[int], count_max: int) -> list[int]:
    """Remove up to `count_max` numbers from the end of a list, and return them."""
    first = max(0, len(numbers) - max(0, count_max))
    taken = numbers[first:]
    del numbers[first:]
    return taken


def _of(written: Mapping[int, int], numbers: Iterable[int]) -> dict[int, int]:
    return {number: written[number] for number in numbers if number in written}


def _outcome(txn: StoredTransaction) -> EndAnswer:
    """The answer to the EndTxn that has brought this end; if it is torn, that was a commit."""
    return EndAnswer(ErrorCode.TRANSACTION_ABORTABLE) if txn.is_torn else _answer(txn)


def _answer(txn: StoredTransaction) -> EndAnswer:
    return EndAnswer(ErrorCode.NONE, afterwards(txn))
