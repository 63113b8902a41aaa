"""The coordinator's orders of transactions and moves to the shards, and their results.

An order goes over the link on which a shard relays its clients' requests, before the answers of the
same turn: so the shard writes a commit's markers before it answers EndTxn. To a shard that has not
asked anything the coordinator connects.

The answer is empty if the link breaks or the shard does not know the question. The order is then
repeated until the shard has executed it.
"""

from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import TypeAlias, TypeVar

from smq.app.coordinator.outlet import Outlet
from smq.app.process.link import Link
from smq.app.process.loop import Loop
from smq.app.process.peers import Neighbour
from smq.coordinator.moves import AdoptOrder, CloseOrder, Moves
from smq.coordinator.transactions.endings import Endings
from smq.coordinator.transactions.orders import MarkerOrder, Order, SyncOrder
from smq.model.errors import ErrorCode
from smq.model.now import Now
from smq.wire.internal import transactions as questions
from smq.wire.internal.form import Failed, Question, decode_answer, encode_question
from smq.wire.internal.frames import ACCEPTOR_IDS_FROM, InternalFrame
from smq.wire.internal.moves import Adopted, ClosedAt

Sent: TypeAlias = list[int] | Failed
GONE = Failed("the shard is gone")
A = TypeVar("A")

# A shard that knows a later epoch of the producer has no open transaction of this one.
_DONE = frozenset({ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH})


class Errands:
    """The shards: those that have asked, by their links, and those that were connected to."""

    def __init__(self, loop: Loop, path_of: Callable[[int], Path]) -> None:
        self._loop, self._path_of = loop, path_of
        self._outlets: dict[int, Outlet] = {}
        self._shards: dict[int, Neighbour] = {}
        self._ids = count(ACCEPTOR_IDS_FROM)
        self._waiting: dict[Link, dict[int, Callable[[bytes], None]]] = {}

    def send(self, order: Order, answered: Callable[[Sent], None]) -> None:
        """Send an order; `answered` gets Failed if the shard cannot execute it or is silent."""
        self.ask(order.node, _question(order), answered)

    def ask(self, node: int, question: Question[A], answered: Callable[[A | Failed], None]) -> None:
        """Ask a shard; `answered` gets its answer, or GONE. Over a link of its own it goes with the
        answers of this turn."""

        def parsed(body: bytes) -> None:
            answered(decode_answer(type(question), body) if body else GONE)

        outlet = self._outlets.get(node)
        if outlet is not None:
            frame_id = next(self._ids)
            self._waiting[outlet.link][frame_id] = parsed
            outlet.put(encode_question(frame_id, question))
            return
        if node not in self._shards:
            self._shards[node] = Neighbour(self._loop, self._path_of(node))
        self._shards[node].ask(partial(encode_question, question=question), parsed)

    def came(self, node: int, outlet: Outlet) -> None:
        """A shard has asked over this link."""
        if self._outlets.get(node) is not outlet:
            self._outlets[node] = outlet
            self._waiting.setdefault(outlet.link, {})

    def answered(self, link: Link, frame: InternalFrame) -> None:
        """A shard has answered an order over its link."""
        parsed = self._waiting.get(link, {}).pop(frame.id, None)
        if parsed is not None:
            parsed(frame.body)

    def gone(self, link: Link) -> None:
        """A link is closed: nobody answers the orders that were sent over it."""
        self._outlets = {
            node: outlet for node, outlet in self._outlets.items() if outlet.link is not link
        }
        for parsed in self._waiting.pop(link, {}).values():
            parsed(b"")

    def close(self) -> None:
        """Close every link. Pending orders get no answer."""
        self._outlets.clear()
        self._waiting.clear()
        for shard in self._shards.values():
            shard.close()
        self._shards.clear()


def report(endings: Endings, order: Order, sent: Sent, now: Now) -> None:
    """Report an order's outcome to transactions."""
    if isinstance(order, SyncOrder):
        if isinstance(sent, list):
            endings.synced(order, frozenset(sent), now)
        else:
            endings.not_synced(order, now)
        return
    codes = sent if isinstance(sent, list) else []
    done = {number for number, code in zip(_numbers(order), codes, strict=False) if code in _DONE}
    endings.marked(order, done, now)


def report_move(moves: Moves, order: CloseOrder | AdoptOrder, sent: object, now: Now) -> None:
    """Report an order's outcome to the moves."""
    answer = None if sent is GONE else sent
    if isinstance(order, CloseOrder):
        assert answer is None or isinstance(answer, ClosedAt | Failed)
        moves.closed(order, answer, now)
    else:
        assert answer is None or isinstance(answer, Adopted | Failed)
        moves.adopted(order, answer, now)


def _question(order: Order) -> questions.WriteMarkers | questions.SyncLogs:
    if isinstance(order, SyncOrder):
        numbers = _numbers(order)
        written = [order.written.get(number, questions.NOT_WRITTEN) for number in numbers]
        return questions.SyncLogs(order.producer_id, numbers, written)
    return questions.WriteMarkers(
        producer_id=order.producer_id,
        producer_epoch=order.epoch,
        committed=order.commits,
        coordinator_epoch=order.coordinator_epoch,
        transaction_version=order.version,
        numbers=_numbers(order),
        is_synced=order.is_synced,
    )


def _numbers(order: MarkerOrder | SyncOrder) -> list[int]:
    return sorted(order.numbers)
