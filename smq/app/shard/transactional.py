"""Produce requests with a transactional id: the shard may have to ask the coordinator before
appending (smq.shard.transactional). Only this connection's next requests wait for that.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from smq.app.process import clock
from smq.app.process.clock import monotonic_ms
from smq.app.process.loop import Loop
from smq.app.process.peers import Peers
from smq.app.shard.acks import Acks
from smq.app.shard.answering import Answering
from smq.app.shard.connection import Connection, Slot
from smq.app.shard.touched import Touched
from smq.model.errors import ErrorCode, PeerError
from smq.shard.produce import Produced, Producing
from smq.shard.shard import Shard
from smq.shard.transactional import TransactionalProduce
from smq.wire.internal.form import Failed
from smq.wire.internal.transactions import AddPartitions

# While the former transaction ends: Kafka's add.partitions.to.txn.retry.backoff.max.ms, and the
# pause before asking the coordinator again.
RETRY_MS, RETRY_AFTER_MS = 100, 4
_BUSY = int(ErrorCode.CONCURRENT_TRANSACTIONS)


class TransactionalRequests:
    """The transactional requests of one shard's clients."""

    def __init__(  # noqa: PLR0913, PLR0917  (each is a part of the server)
        self,
        loop: Loop,
        peers: Peers,
        shard: Shard,
        producing: Producing,
        acks: Acks,
        answering: Answering,
        touched: Touched,
    ) -> None:
        self._loop, self._peers, self._shard, self._producing = loop, peers, shard, producing
        self._acks, self._answering, self._touched = acks, answering, touched

    def take(self, connection: Connection, data: np.ndarray) -> None:
        """Handle a whole request, its size first; `data` is lent. Raises PeerError."""
        request = TransactionalProduce(self._shard, self._producing, data)
        asked = request.begin(clock.now())
        if asked is None:
            self._answer(connection, request.append(clock.now()), None)
            self._slow(connection, len(data))
            return
        slot = Slot(is_open=False)
        connection.slots.append(slot)
        connection.working += 1
        due_ms = monotonic_ms() + RETRY_MS
        self._ask(asked, partial(self._known, connection, slot, request), due_ms)

    def _ask(
        self, asked: AddPartitions, known: Callable[[list[int] | Failed], None], due_ms: float
    ) -> None:
        """Ask the coordinator; ask again while it is busy with the former transaction."""

        def answered(said: list[int] | Failed) -> None:
            is_busy = not isinstance(said, Failed) and _BUSY in said
            if is_busy and monotonic_ms() < due_ms:
                self._loop.call_later(RETRY_AFTER_MS, partial(self._ask, asked, known, due_ms))
            else:
                known(said)

        self._peers.ask_coordinator(asked, answered)

    def _known(
        self,
        connection: Connection,
        slot: Slot,
        request: TransactionalProduce,
        said: list[int] | Failed,
    ) -> None:
        request.take(said)
        if connection.closed:
            return
        connection.working -= 1
        self._answering.dirty[connection] = None
        self._touched.add(connection)
        try:
            self._answer(connection, request.append(clock.now()), slot)
        except PeerError:
            connection.close()
            return
        self._slow(connection, request.size)

    def _slow(self, connection: Connection, size: int) -> None:
        throttle = self._shard.throttle
        if throttle.is_on and not connection.closed:
            connection.mute(throttle.charge(size, monotonic_ms()))

    def _answer(self, connection: Connection, produced: Produced, slot: Slot | None) -> None:
        """Queue the answer until its records are durable; acks=0 gets none."""
        if produced.answers:
            self._acks.queue(connection, bytes(produced.answers), produced.marks, slot)
        elif slot is not None:
            connection.slots.remove(slot)
        if produced.close:
            connection.close_after_answers()
