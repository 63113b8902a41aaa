"""Moves partitions from node to node: prepare in the target's log, then one commit.

    state      waits for                         then
    WAITING    a place among those that move     target and attempt stored: CLOSING
    CLOSING    the source, which closes          DRAWING
    DRAWING    an epoch, of the supervisor       above all that the source has told: ADOPTING
    ADOPTING   the target, which has the state   one commit ends a leadership and opens the next

Until that commit the source leads, and a move is given up by clearing the target: when a shard
refuses, PATIENCE_MS after the last progress, at a cancel, with the topic, and at each start of the
coordinator. So an attempt has one epoch, however often its orders are repeated. Answers to another
attempt are left. docs/leadership.md has the whole table.

The owner commits the store and publishes the catalog before it carries out `take_orders`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import chain, pairwise
from typing import NamedTuple, TypeAlias

from smq.coordinator.access import AccessControl
from smq.coordinator.deadlines import ALWAYS_MS, NEVER_MS
from smq.coordinator.topics import Topics
from smq.coordinator.transactions.transactions import Transactions
from smq.model.catalog import Leadership, Moved
from smq.model.errors import BrokerError, ErrorCode
from smq.model.now import Now
from smq.security.audit import AdminAct
from smq.security.principals import Peer
from smq.store.moves import StoredMove
from smq.store.store import Store
from smq.wire.internal.form import Failed
from smq.wire.internal.moves import Adopted, AdoptPartition, ClosedAt, ClosePartition, EpochStart

PATIENCE_MS = 5000  # Appends wait at most so long for a move that makes no progress.
RETRY_MS = 100  # Before an order is repeated that got no answer.
AT_ONCE_MAX = 8  # A partition takes no appends while it moves: not all of a topic at a time.
ASKED_MAX = 10_000  # As many as a topic may have partitions.
BY_HAND = "by hand"


class MoveState(Enum):
    """How far a move has come."""

    WAITING = auto()
    CLOSING = auto()
    DRAWING = auto()
    ADOPTING = auto()


class DrawOrder(NamedTuple):
    """Draw an epoch; the answer goes to `drawn`."""

    number: int
    attempt: int


class CloseOrder(NamedTuple):
    """Ask the source; the answer goes to `closed`."""

    node: int
    question: ClosePartition


class AdoptOrder(NamedTuple):
    """Ask the target; the answer goes to `adopted`."""

    node: int
    question: AdoptPartition


MoveOrder: TypeAlias = DrawOrder | CloseOrder | AdoptOrder


class Moving(NamedTuple):
    """A partition that moves, or waits for that: its topic, its index, and nodes."""

    topic: str
    partition: int
    source: int
    target: int


@dataclass(slots=True)
class _Move:
    """`due_ms`: when it is looked at again, and given up if `ends_ms` has come."""

    number: int
    place: Moving
    by: Peer | None
    reason: str
    asked: Now
    state: MoveState = MoveState.WAITING
    attempt: int = 0
    closed: ClosedAt | None = None
    epoch: int = 0
    due_ms: int = NEVER_MS
    ends_ms: int = NEVER_MS


class Moves:
    """The moves under way, by partition number, and those that wait. `generation_of` a node: that
    in which it has opened its logs."""

    def __init__(
        self,
        store: Store,
        topics: Topics,
        transactions: Transactions,
        access: AccessControl,
        generation_of: Callable[[int], int],
    ) -> None:
        self._store, self._topics, self._transactions = store, topics, transactions
        self._access, self._generation_of = access, generation_of
        self._waiting: dict[int, _Move] = {}
        self._begun: dict[int, _Move] = {}
        self._orders: list[MoveOrder] = []
        self._looked_at = topics.changes

    def give_up_unfinished(self, now: Now) -> None:
        """At a start: what was moving stays where it is."""
        for number in [*self._unfinished()]:
            place = self._moving(number)
            self._end(_Move(number, place, None, "", now), "the coordinator was restarted", now)

    def _unfinished(self) -> Iterator[int]:
        for number, (topic, index) in self._topics.places.items():
            moved = topic.moves.get(index)
            if moved is not None and moved.target is not None:
                yield number

    def invariants(self) -> None:
        """Assert that exactly the moves that have begun are in the catalog."""
        assert len(self._begun) <= AT_ONCE_MAX
        assert not self._begun.keys() & self._waiting.keys()
        there = {number: self._moved(number) for number in self._unfinished()}
        assert there.keys() == self._begun.keys() & self._topics.places.keys()
        for number, moved in there.items():
            moved.invariants()
            assert moved.attempt == self._begun[number].attempt
        for move in self._begun.values():
            assert (move.closed is None) == (move.state is MoveState.CLOSING)
            assert (move.epoch > 0) == (move.state is MoveState.ADOPTING)
            assert move.due_ms <= move.ends_ms

    def __iter__(self) -> Iterator[Moving]:
        return (each.place for each in chain(self._begun.values(), self._waiting.values()))

    # Asked for

    def ask(self, number: int, node: int, by: Peer, now: Now, *, reason: str = BY_HAND) -> None:
        """Move a partition of the catalog to a node, once there is a place. If it moves there
        already, nothing changes; if that node leads it, a move is given up. Raises BrokerError."""
        under_way = self._begun.get(number) or self._waiting.get(number)
        if node == self._source_of(number):
            if under_way is not None:
                self._end(under_way, _CANCELLED, now)
        elif under_way is None:
            self._check_room(node)
            place = self._moving(number)._replace(target=node)
            self._waiting[number] = _Move(number, place, by, reason, now)
        elif under_way.place.target != node:
            raise BrokerError(
                ErrorCode.REASSIGNMENT_IN_PROGRESS,
                f"It moves to broker {under_way.place.target}: wait, or cancel that first.",
            )

    def cancel(self, number: int, now: Now) -> None:
        """Give up the move of a partition. Raises BrokerError: it does not move."""
        under_way = self._begun.get(number) or self._waiting.get(number)
        if under_way is None:
            raise BrokerError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        self._end(under_way, _CANCELLED, now)

    def _check_room(self, node: int) -> None:
        if len(self._begun) + len(self._waiting) >= ASKED_MAX:
            raise BrokerError(
                ErrorCode.POLICY_VIOLATION, f"{ASKED_MAX} partitions move already: wait for some."
            )
        self._topics.check_row(self._topics.log_on(node))

    def _begin_one(self, now: Now) -> None:
        """Begin the first move that waits, if there is a place. One a turn: each publishes the
        whole line of its topic."""
        move = next(iter(self._waiting.values()), None)
        if move is None or len(self._begun) >= AT_ONCE_MAX:
            return
        moved = self._moved(move.number)
        epoch = max(moved.epoch, self._generation_of(move.place.source))
        target, attempt = self._topics.log_on(move.place.target), moved.attempt + 1
        towards = moved._replace(epoch=epoch, target=target, attempt=attempt)
        try:
            self._topics.check_place(move.number, towards)
        except BrokerError as refusal:
            self._end(move, str(refusal), now)
            return
        del self._waiting[move.number]
        self._begun[move.number] = move
        move.attempt = attempt
        self._topics.place(move.number, towards)
        self._go_on(move, MoveState.CLOSING, now)

    # Under way

    def _go_on(self, move: _Move, state: MoveState, now: Now) -> None:
        move.state, move.ends_ms = state, now.monotonic_ms + PATIENCE_MS
        self._order(move)

    def _order(self, move: _Move) -> None:
        move.due_ms = move.ends_ms
        number, attempt = move.number, move.attempt
        if move.state is MoveState.CLOSING:
            order: MoveOrder = CloseOrder(move.place.source, ClosePartition(number, attempt))
        elif move.state is MoveState.DRAWING:
            order = DrawOrder(number, attempt)
        else:
            assert move.closed is not None
            source, end = move.place.source, move.closed.end
            question = AdoptPartition(number, attempt, move.epoch, source, end)
            order = AdoptOrder(move.place.target, question)
        self._orders.append(order)

    def take_orders(self) -> list[MoveOrder]:
        """What to ask. It may be asked once the store has committed, and the catalog is there."""
        orders, self._orders = self._orders, []
        return orders

    def _current(self, number: int, attempt: int, state: MoveState) -> _Move | None:
        """The move that an answer belongs to; None: it comes too late."""
        move = self._begun.get(number)
        is_current = move is not None and (move.attempt, move.state) == (attempt, state)
        return move if is_current and number in self._topics.places else None

    def _is_no_answer(self, move: _Move, answer: object, now: Now) -> bool:
        """None: nobody has answered, and it is asked again. Failed gives up."""
        if answer is None:
            move.due_ms = min(move.ends_ms, now.monotonic_ms + RETRY_MS)
        elif isinstance(answer, Failed):
            self._end(move, answer.error, now)
        return answer is None or isinstance(answer, Failed)

    def closed(self, order: CloseOrder, answer: ClosedAt | Failed | None, now: Now) -> None:
        """The source's answer; None: it is gone."""
        move = self._current(order.question.number, order.question.attempt, MoveState.CLOSING)
        if move is None or self._is_no_answer(move, answer, now):
            return
        assert isinstance(answer, ClosedAt)
        newest = self._moved(move.number).leaderships[-1]
        if problem := _problem_of(answer, newest):
            self._end(move, f"node {order.node} has told {problem}", now)
        else:
            move.closed = answer
            self._go_on(move, MoveState.DRAWING, now)

    def drawn(self, order: DrawOrder, epoch: int | None, now: Now) -> None:
        """The supervisor's answer; None: it has no epoch now."""
        move = self._current(order.number, order.attempt, MoveState.DRAWING)
        if move is None or self._is_no_answer(move, epoch, now):
            return
        assert epoch is not None
        assert move.closed is not None
        known = max(move.closed.epochs[-1].epoch, self._moved(move.number).epoch)
        if epoch <= known:
            self._end(move, f"epoch {epoch} was drawn, and it has been led in {known}", now)
        else:
            move.epoch = epoch
            self._go_on(move, MoveState.ADOPTING, now)

    def adopted(self, order: AdoptOrder, answer: Adopted | Failed | None, now: Now) -> None:
        """The target's answer; None: it is gone."""
        move = self._current(order.question.number, order.question.attempt, MoveState.ADOPTING)
        if move is None or self._is_no_answer(move, answer, now):
            return
        assert isinstance(answer, Adopted)
        assert move.closed is not None
        if answer.start != move.closed.end:
            there = f"begins at {answer.start} and not at {move.closed.end}"
            self._end(move, f"what node {order.node} has adopted {there}", now)
            return
        opened = self._opened(move, move.closed)
        try:
            self._topics.check_place(move.number, opened)
        except BrokerError as refusal:
            self._end(move, str(refusal), now)
            return
        self._topics.place(move.number, opened)
        self._transactions.move_written(move.number, move.epoch)
        self._end(move, "", now)

    def _opened(self, move: _Move, closed: ClosedAt) -> Moved:
        """What the catalog has once the target leads."""
        moved = self._moved(move.number)
        assert moved.target is not None
        sealed_end = self._store.manifest.sealed_end(move.number)
        kept = pruned(ended(moved, closed), sealed_end)
        opened = Leadership(move.epoch, moved.target, closed.end, None)
        return Moved(move.epoch, None, move.attempt, (*kept, opened))

    # The end

    def _end(self, move: _Move, outcome: str, now: Now) -> None:
        """A move is made (""), or given up for a reason."""
        self._begun.pop(move.number, None)
        self._waiting.pop(move.number, None)
        if move.number in self._topics.places:
            moved = self._moved(move.number)
            if moved.target is not None:
                self._topics.place(move.number, moved._replace(target=None))
        place, took_ms = move.place, now.monotonic_ms - move.asked.monotonic_ms
        who, host = ("", "") if move.by is None else (str(move.by.principal), move.by.host)
        began_ms = move.asked.wall_ms
        self._store.moves.add(
            StoredMove(began_ms, took_ms, *place, who, host, move.reason, outcome)
        )
        if move.by is not None:
            how = f"from node {place.source} to node {place.target}, {move.reason}, {took_ms} ms"
            code = ErrorCode.OPERATION_NOT_ATTEMPTED if outcome else ErrorCode.NONE
            detail = f"partition {place.partition} {how}{outcome and ': '}{outcome}"
            act = AdminAct("MOVE", "TOPIC", place.topic, code, detail)
            self._access.audit.act(move.by, "", act, now)

    def next_wake_ms(self) -> int:
        """The earliest time when `tick` has something to do (monotonic)."""
        has_changed = self._looked_at != self._topics.changes
        has_place = len(self._begun) < AT_ONCE_MAX
        if (self._waiting and has_place) or (has_changed and (self._begun or self._waiting)):
            return ALWAYS_MS
        return min((each.due_ms for each in self._begun.values()), default=NEVER_MS)

    def tick(self, now: Now) -> None:
        """Give up moves without progress or topic, repeat orders, begin another."""
        self._give_up_deleted(now)
        for move in [*self._begun.values()]:
            if move.ends_ms <= now.monotonic_ms:
                waits_for = _WAITS_FOR[move.state].format(*move.place)
                self._end(move, f"{waits_for} for {PATIENCE_MS // 1000} s", now)
            elif move.due_ms <= now.monotonic_ms:
                self._order(move)
        self._begin_one(now)
        self._looked_at = self._topics.changes

    def _give_up_deleted(self, now: Now) -> None:
        if self._looked_at != self._topics.changes:
            for move in [*self._begun.values(), *self._waiting.values()]:
                if move.number not in self._topics.places:
                    self._end(move, "its topic was deleted", now)

    # Of the catalog

    def _moved(self, number: int) -> Moved:
        topic, index = self._topics.places[number]
        return topic.moved(index)

    def _source_of(self, number: int) -> int:
        return self._topics.node_of(self._moved(number).leaderships[-1].log)

    def _moving(self, number: int) -> Moving:
        topic, index = self._topics.places[number]
        moved, source = topic.moved(index), self._source_of(number)
        target = source if moved.target is None else self._topics.node_of(moved.target)
        return Moving(topic.name, index, source, target)


_CANCELLED = "it was cancelled"
_WAITS_FOR = {
    MoveState.CLOSING: "node {2} has not closed it",
    MoveState.DRAWING: "no epoch could be drawn",
    MoveState.ADOPTING: "node {3} has not adopted it",
}


def ended(moved: Moved, closed: ClosedAt) -> list[Leadership]:
    """The leaderships of a partition once its log has closed it: of the newest one, each epoch in
    which it led. Those without records are left out."""
    *before, newest = moved.leaderships
    first, *others = closed.epochs
    epochs = [EpochStart(first.epoch, newest.start), *others, EpochStart(0, closed.end)]
    mine = [
        Leadership(one.epoch, newest.log, one.start, following.start)
        for one, following in pairwise(epochs)
    ]
    return [each for each in (*before, *mine) if each.start != each.end]


def pruned(ended: Sequence[Leadership], sealed_end: int) -> Sequence[Leadership]:
    """Of leaderships wholly below the sealed end, the first stays for all: no log is read for the
    others, and each move would add one."""
    sealed = [each for each in ended if each.end is not None and each.end <= sealed_end]
    if not sealed:
        return ended
    return [sealed[0]._replace(end=sealed[-1].end), *ended[len(sealed) :]]


def _problem_of(closed: ClosedAt, newest: Leadership) -> str:
    """What is wrong with a source's answer; "": nothing."""
    epochs = closed.epochs
    if not epochs or epochs[0].epoch < newest.epoch:
        return "none of its epochs"
    grow = all(a.epoch < b.epoch and a.start <= b.start for a, b in pairwise(epochs))
    if not grow or not newest.start <= epochs[0].start <= epochs[-1].start <= closed.end:
        return f"epochs that it cannot have led in up to {closed.end}"
    return ""
