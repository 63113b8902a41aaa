"""The coordinator's links to the shards: send the orders of transactions, return the results.

The answer is empty if the link breaks or the shard does not know the question. The order is then
repeated until the shard has executed it.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeAlias

from smq.app.process.loop import Loop
from smq.app.process.peers import Peer
from smq.coordinator.transactions.endings import Endings
from smq.coordinator.transactions.orders import MarkerOrder, Order, SyncOrder
from smq.model.errors import ErrorCode
from smq.model.now import Now
from smq.wire.internal import transactions as questions
from smq.wire.internal.form import Failed, decode_answer, encode_question

Sent: TypeAlias = list[int] | Failed

# A shard that knows a later epoch of the producer has no open transaction of this one.
_DONE = frozenset({ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH})


class Errands:
    """A link to each shard that has been sent an order."""

    def __init__(self, loop: Loop, path_of: Callable[[int], Path]) -> None:
        self._loop, self._path_of = loop, path_of
        self._shards: dict[int, Peer] = {}

    def send(self, order: Order, answered: Callable[[Sent], None]) -> None:
        """Send an order; `answered` gets Failed if the shard cannot execute it or is silent."""
        if order.node not in self._shards:
            self._shards[order.node] = Peer(self._loop, self._path_of(order.node))
        question = _question(order)

        def parsed(body: bytes) -> None:
            gone = Failed("the shard is gone")
            answered(decode_answer(type(question), body) if body else gone)

        self._shards[order.node].ask(partial(encode_question, question=question), parsed)

    def close(self) -> None:
        """Close every link. Pending orders get no answer."""
        for shard in self._shards.values():
            shard.close()
        self._shards.clear()


def report(endings: Endings, order: Order, sent: Sent, now: Now) -> None:
    """Report an order's outcome to transactions."""
    if isinstance(order, SyncOrder):
        if isinstance(sent, list):
            endings.synced(order, frozenset(sent), now)
        else:
            endings.not_synced(order)
        return
    codes = sent if isinstance(sent, list) else []
    done = {number for number, code in zip(_numbers(order), codes, strict=False) if code in _DONE}
    endings.marked(order, done, now)


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
