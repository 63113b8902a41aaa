"""Produce requests that are finished in steps, as one would hold the loop for too long.

    step ─▶ Produced         all is appended: the answers
         ─▶ a Job            a batch is to be looked into in a lane: told() its result, then step
         ─▶ AddPartitions    the coordinator is to be asked: see smq.shard.transactional
         ─▶ HeldBack         a partition moves: step when it is open or led elsewhere, or then
         ─▶ None             step again in a later turn

Each step reads the requests again, since the catalog may have changed, and restores what is known
of the batches that are done: a batch is appended to the partition that has its topic's name or id
then. Batches are taken in order. Appended batches are visible before the answer, as in Kafka, which
appends to each partition separately. If a request is dropped between steps, these stay: its client
got no answer.

A request with a batch for a partition that is closed, as it moves, is held as a whole for HOLD_MS
at most. Then those batches are refused, without the name of a leader.
"""

from typing import NamedTuple

import numpy as np

from shm.kernels.base.words import DONE, HEAD_STOP, ROW_ERROR, ROW_STATE
from smq.model.errors import ErrorCode, PeerError
from smq.model.now import Now
from smq.security.rights import EVERYTHING, Rights
from smq.shard.checks import Job
from smq.shard.plan_rows import closed_rows, done_rows, restore_rows, rows_of
from smq.shard.produce import Left, Marks, Pending, Produced, Producing
from smq.shard.refusals import Refusals, refuse_topics
from smq.shard.shard import Shard
from smq.wire.internal.transactions import AddPartitions

HOLD_MS = 5000  # A move without progress is given up as late: smq.coordinator.moves.


class HeldBack(NamedTuple):
    """A request waits for partitions that move, until this time (monotonic) at most."""

    until_ms: int


class Unfinished:
    """Whole requests, `data`, which may be lent until keep(). `left`: what is done of them.

    `throttle_ms` is what the answers say, unless `left` knows. `rights` are looked at in each step:
    those of the client.
    """

    def __init__(  # noqa: PLR0913, PLR0917  (requests, and what is known of them)
        self,
        shard: Shard,
        producing: Producing,
        data: np.ndarray,
        left: Left | None = None,
        throttle_ms: int = 0,
        rights: Rights = EVERYTHING,
    ) -> None:
        self._shard, self._producing, self._data = shard, producing, data
        self._done = None if left is None else left.done
        self._refused = {} if left is None else left.refused
        self._throttle_ms = throttle_ms if left is None else left.throttle_ms
        self._marks = () if left is None else left.marks
        self._refused_count, self._catalog_version = 0, shard.catalog_version
        self._pending: Pending | None = None
        self._rights, self._refusals = rights, Refusals()
        self._held_until_ms: int | None = None

    @property
    def size(self) -> int:
        """Its bytes."""
        return len(self._data)

    def keep(self) -> None:
        """The data was lent, and is going to be reused: copy it. Checks begin again."""
        self._data, self._pending = self._data.copy(), None

    def told(self, result: object) -> None:
        """The result of the job that step() returned."""
        assert self._pending is not None
        self._pending = self._pending._replace(said=result)

    def hold_no_longer(self) -> None:
        """Refuse, with the next step, the batches for partitions that are closed."""
        self._held_until_ms = 0

    def drop(self) -> None:
        """It is over: the client is gone, or answered."""
        self._pending = None

    def step(self, now: Now) -> Produced | Job | AddPartitions | HeldBack | None:
        """Take one step, see above. Raises PeerError."""
        producing, data = self._producing, self._data
        if not self._read(now):
            return None
        if (held := self._hold(now)) is not None:
            return held
        producing.pending, self._pending = self._pending, None
        if producing.pending is not None and producing.pending.wanted is None:
            producing.pending = producing.pending._replace(said=now)
        is_done = self._append(now)
        if isinstance(is_done, AddPartitions):
            self._pending, producing.pending = producing.pending, None
            return is_done
        self._refused_count += producing.refused_count
        self._refused |= producing.refused
        if is_done:
            produced = producing.finish(data, self._marks, self._throttle_ms, self._refused)
            self.drop()
            return produced._replace(refused=self._refused_count)
        self._done = done_rows(rows_of(producing.plan))
        self._pending, producing.pending = producing.pending, None
        return None if self._pending is None else self._pending.wanted

    def _read(self, now: Now) -> bool:
        """Read the requests into the plan; whether it is known what the client may append. Raises
        PeerError."""
        if not self._producing.parse(self._data, self._shard.directory, now):
            raise PeerError("a Produce is malformed, or has too many batches")
        self._producing.listener = self._rights.peer.listener
        is_known = self._rights.is_unlimited or self._refuse(self._rights)
        if self._done is not None and len(self._done):
            restore_rows(rows_of(self._producing.plan), self._done)
        if self._catalog_version != self._shard.catalog_version:  # The topic may require more.
            self._catalog_version, self._pending = self._shard.catalog_version, None
        return is_known

    def _hold(self, now: Now) -> HeldBack | None:
        """Wait while a partition is closed; refuse its batches once that has taken too long."""
        rows = rows_of(self._producing.plan)
        closed = closed_rows(rows, self._shard.logs.values())
        if not len(closed):
            return None
        if self._held_until_ms is None:
            self._held_until_ms = now.monotonic_ms + HOLD_MS
        if now.monotonic_ms < self._held_until_ms:
            return HeldBack(self._held_until_ms)
        rows[closed, ROW_ERROR], rows[closed, ROW_STATE] = ErrorCode.NOT_LEADER_OR_FOLLOWER, DONE
        self._pending = None  # It may be about one of them.
        return None

    def _refuse(self, rights: Rights) -> bool:
        """Mark what the client may not append; whether all of it is known."""
        shard, plan = self._shard, self._producing.plan
        versions = shard.catalog_version, shard.access.refresh()

        def ask(first: int) -> None:
            refuse_topics(self._data, plan, shard, rights, first)

        return self._refusals.go_on(plan, versions, ask)

    def _append(self, _now: Now) -> AddPartitions | bool:
        """Append what this step may; whether all is done."""
        for log in self._shard.logs.values():
            self._mark(self._producing.append(log, self._data))
            if self._producing.plan[HEAD_STOP] != 0:
                return False
        return True

    def _mark(self, marks: Marks) -> None:
        """Note up to where the logs must be safe, and at which level."""
        for mark in marks:
            others = tuple(each for each in self._marks if each.log != mark.log)
            levels = [each.level for each in (*self._marks, mark) if each.log == mark.log]
            self._marks = (*others, mark._replace(level=max(levels)))
