"""Takes the steps of Produce requests that are not finished at once (smq.shard.unfinished), a step
in a turn, in rotation. Their connection's next requests wait; other clients do not. The
coordinator is asked before a transaction's first batch in a partition is appended; while the
producer's former transaction ends, it lets the question wait. A request for a partition that moves
is held until a catalog tells how the move has ended, unless clients' requests take too much memory.

A request is dropped if its client is gone, which then got no answer.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from smq.app.process import clock
from smq.app.process.clock import monotonic_ms, monotonic_ns
from smq.app.process.loop import Loop, Timer
from smq.app.process.peers import Peers
from smq.app.process.steps import Steps
from smq.app.shard.connections.connection import Connection, Slot
from smq.app.shard.connections.limited import charge_time
from smq.app.shard.connections.receive import BufferPool
from smq.app.shard.door.session import Session
from smq.app.shard.requests.replies import Replies
from smq.log.files.background import JobLane
from smq.model.errors import PeerError
from smq.security.rights import EVERYTHING, Rights
from smq.shard.checks import Job
from smq.shard.produce import Left, Produced, Producing
from smq.shard.shard import Shard
from smq.shard.transactional import TransactionalProduce
from smq.shard.unfinished import HeldBack, Unfinished
from smq.wire.internal.form import Failed
from smq.wire.internal.transactions import AddPartitions


@dataclass(slots=True, eq=False)
class _Work:
    """A client's request in steps. `then` takes the result when it is complete."""

    client: Connection | Session
    slot: Slot
    request: Unfinished
    then: Callable[[Produced], None]


class UnfinishedRequests:
    """The requests of one shard's clients that are finished in steps.

    `producing` takes requests `in_steps`; `pool` counts the memory that they hold.
    """

    def __init__(  # noqa: PLR0913, PLR0917  (each is a part of the server)
        self,
        loop: Loop,
        steps: Steps,
        peers: Peers,
        shard: Shard,
        producing: Producing,
        replies: Replies,
        pool: BufferPool,
    ) -> None:
        self._loop, self._steps, self._peers, self._shard = loop, steps, peers, shard
        self._producing, self._replies, self._pool = producing, replies, pool
        self._held: dict[_Work, Timer] = {}
        self._holds = True

    def invariants(self) -> None:
        """Raise AssertionError if a request is held that does not count, or for ever."""
        for work, timer in self._held.items():
            assert work.client.working > 0
            assert timer.action is not None
        assert sum(work.request.size for work in self._held) <= self._pool.working_bytes

    def go_on(
        self,
        client: Connection | Session,
        data: np.ndarray,
        left: Left,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Finish requests that were begun: `data` is theirs, and nobody else uses it any more.

        `then` is called when they are answered.
        """
        slot = self._replies.acks.reserve(client)
        request = Unfinished(self._shard, self._producing, data, left, rights=_rights_of(client))

        def finished(produced: Produced) -> None:
            self._answer(client, slot, produced)
            then()

        self._begin(_Work(client, slot, request, finished))

    def produce(
        self,
        connection: Connection,
        slot: Slot,
        data: np.ndarray,
        throttle_ms: int,
        then: Callable[[Produced], None],
    ) -> None:
        """Take whole requests from the beginning; `then` answers them in their slot."""
        rights = connection.caller.rights
        request = Unfinished(
            self._shard, self._producing, data, throttle_ms=throttle_ms, rights=rights
        )
        self._begin(_Work(connection, slot, request, then))

    def take_transactional(
        self, connection: Connection, data: np.ndarray, throttle_ms: int
    ) -> None:
        """Take a whole transactional request; `data` is lent. Raises PeerError."""
        rights = connection.caller.rights
        request = TransactionalProduce(self._shard, self._producing, data, throttle_ms, rights)
        outcome = request.step(clock.now())
        if isinstance(outcome, Produced):
            self._answer(connection, None, outcome)
            return
        request.keep()
        slot = self._replies.acks.reserve(connection)
        work = _Work(connection, slot, request, partial(self._answer, connection, slot))
        self._begin(work, outcome if isinstance(outcome, AddPartitions) else None)

    # --- those that are held ---------------------------------------------------------------------

    def look_again(self) -> None:
        """Partitions may be open now, or led elsewhere."""
        for work in list(self._held):
            self._wake(work)

    def gone(self, client: Connection) -> None:
        """A client is gone: drop what is held of it."""
        for work in [each for each in self._held if each.client is client]:
            self._wake(work)

    def stop(self) -> None:
        """Hold no request any more."""
        self._holds = False
        for work in list(self._held):
            work.request.hold_no_longer()
            self._wake(work)

    def _hold(self, work: _Work, until_ms: int) -> None:
        if self._holds and self._pool.has_room:
            wake = partial(self._wake, work)
            self._held[work] = self._loop.call_later(until_ms - monotonic_ms(), wake)
        else:
            work.request.hold_no_longer()
            self._steps.add(partial(self._step, work))

    def _wake(self, work: _Work) -> None:
        self._held.pop(work).cancel()
        self._steps.add(partial(self._step, work))

    # --- steps -----------------------------------------------------------------------------------

    def _begin(self, work: _Work, question: AddPartitions | None = None) -> None:
        work.client.working += 1
        self._pool.working_bytes += work.request.size
        if question is not None:
            self._peers.ask_coordinator(question, partial(self._known, work))
        else:
            self._steps.add(partial(self._step, work))

    def _step(self, work: _Work) -> bool:
        """Take a step; returns whether the next may follow at once."""
        client, began_ns, now = work.client, monotonic_ns(), clock.now()
        if client.closed:
            self._end(work)
            return False
        try:
            outcome = work.request.step(now)
        except PeerError:
            self._refuse(work)
            return False
        if isinstance(client, Connection) and client.is_limited:
            charge_time(client, monotonic_ns() - began_ns, now.monotonic_ms)
        if outcome is None:
            return True
        if isinstance(outcome, Produced):
            self._end(work)
            work.then(outcome)
        elif isinstance(outcome, AddPartitions):
            self._peers.ask_coordinator(outcome, partial(self._known, work))
        elif isinstance(outcome, HeldBack):
            self._hold(work, outcome.until_ms)
        else:
            self._look(work, outcome)
        return False

    def _look(self, work: _Work, job: Job) -> None:
        """Do a job beside the loop."""

        def done(result: object) -> None:
            work.request.told(result)
            self._steps.add(partial(self._step, work))

        log = next(iter(self._shard.logs.values()))  # One lane: requests take turns in it.
        log.background.submit(JobLane.CHECKS, job, done)

    def _known(self, work: _Work, said: list[int] | Failed) -> None:
        """The coordinator has answered."""
        assert isinstance(work.request, TransactionalProduce)
        work.request.take(said)
        self._steps.add(partial(self._step, work))

    # --- the end ---------------------------------------------------------------------------------

    def _end(self, work: _Work) -> None:
        work.request.drop()
        work.client.working -= 1
        self._pool.working_bytes -= work.request.size
        assert work.client.working >= 0
        assert self._pool.working_bytes >= 0
        if not work.client.closed:
            self._replies.change(work.client)

    def _refuse(self, work: _Work) -> None:
        """Close once earlier requests are answered."""
        self._end(work)
        work.client.slots.remove(work.slot)
        work.client.close_after_answers()

    def _answer(self, client: Connection | Session, slot: Slot | None, produced: Produced) -> None:
        """Queue the answer until its records are durable; acks=0 gets none."""
        if produced.answers:
            self._replies.acks.queue(client, bytes(produced.answers), produced.marks, slot)
        elif slot is not None:
            client.slots.remove(slot)
        is_flood = produced.refused and client.patience.ends(produced.refused, monotonic_ms())
        if produced.close or is_flood:
            client.close_after_answers()


def _rights_of(client: Connection | Session) -> Rights:
    """A program that may attach may do everything."""
    return client.caller.rights if isinstance(client, Connection) else EVERYTHING
