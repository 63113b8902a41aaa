"""A shard's commands for our other processes, over its unix socket: the FOR_SHARD of
smq.wire.internal.messages.
"""

import socket
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any
from uuid import UUID

from shm.kernels.base.words import DURABILITY_DISK, WORD_GENERATION, WORD_SYNCED, WORD_WRITTEN
from shm.peer import is_ours
from smq.app.process import clock
from smq.app.process.acceptor import Acceptor
from smq.app.process.link import Link
from smq.app.process.loop import Loop
from smq.app.process.peers import Peers
from smq.app.shard.waiting.hanging import Hanging
from smq.log.log import Log
from smq.log.reading import DamagedFrame
from smq.model.errors import PeerError
from smq.shard.changes import Changes
from smq.shard.led import Led
from smq.shard.markers import Ending, end_transaction
from smq.shard.shard import Shard
from smq.shard.space import watch_space
from smq.wire.internal.form import Failed, Question, decode_question, encode_answer
from smq.wire.internal.frames import InternalFrame
from smq.wire.internal.messages import (
    FOR_SHARD,
    Attach,
    Batches,
    Ends,
    FindAborted,
    FindEnds,
    FollowRights,
    LogMemory,
    MarkCompacted,
    MarkSealed,
    Partitions,
    Pressure,
    RaiseLogStart,
    RawBatches,
    ShardFacts,
    Unsealed,
    UnsealedPart,
    UnsealedParts,
)
from smq.wire.internal.telemetry import FindPush, ListPushes, PushedMetrics, PushingClient
from smq.wire.internal.transactions import SyncLogs, WriteMarkers
from smq.wire.markers import Marker, without

BATCHES_BYTES_MAX = 16 * 1024 * 1024
ABORTED_BYTES_MAX = 128 * 1024  # Batches are examined one by one, in the loop: some milliseconds.
SYNC_POLL_MS = 1.0
PUSHES_MAX = 1000  # Clients per answer: a few milliseconds.

Handle = Callable[[Link, int, Any], None]


class ShardCommands:
    """Serves commands; watches the WAL's space and calls the sealer when needed.

    Create it after the shard's server, which writes a turn's appends at the end of the turn.
    """

    def __init__(self, loop: Loop, shard: Shard, peers: Peers) -> None:
        self._loop, self._shard, self._peers = loop, shard, peers
        self._links: set[Link] = set()
        self._segments_seen: list[tuple[int, int]] = []
        self._changes = Changes(shard.logs.values())
        self._hanging = Hanging(shard, peers)
        self._when_written: list[Callable[[], None]] = []
        loop.turn_ends.append(self._end_turn)
        peers.take_orders(self._frame)
        self.handlers: dict[type[Question[Any]], Handle] = {
            Partitions: self._partitions,
            Batches: self._batches,
            MarkSealed: self._sealed,
            FindAborted: self._aborted,
            MarkCompacted: self._compacted,
            RaiseLogStart: self._log_start,
            Unsealed: self._unsealed,
            FindEnds: self._ends,
            Attach: self._attach,
            WriteMarkers: self._markers,
            SyncLogs: self._sync,
            FollowRights: self._rights,
            ListPushes: self._pushes,
            FindPush: self._push,
        }

    def listen(self, listener: socket.socket) -> None:
        """Accept connections of our other processes."""

        def accepted(sock: socket.socket, _address: str) -> None:
            self._links.add(Link(self._loop, sock, self._frame, self._links.discard))

        Acceptor(self._loop, listener, accepted, is_ours)

    def _end_turn(self) -> None:
        written, self._when_written = self._when_written, []
        for answer in written:
            answer()

    def _frame(self, link: Link, frame: InternalFrame) -> None:
        try:
            question = decode_question(frame.body, FOR_SHARD)
            self.handlers[type(question)](link, frame.id, question)
        except (PeerError, ValueError, DamagedFrame) as reason:
            self._refuse(link, frame.id, reason)

    @staticmethod
    def _refuse(link: Link, frame_id: int, reason: Exception) -> None:
        link.send(encode_answer(frame_id, Failed(str(reason))))

    def watch_growth(self) -> None:
        """Watch the space whenever the WAL has begun or freed a segment: waiting a second may be
        too late."""
        segments = [log.wal.files.written_segments for log in self._shard.logs.values()]
        if segments != self._segments_seen:
            self._segments_seen = segments
            self.watch_space()

    def watch_transactions(self) -> None:
        """Ask the coordinator about transactions that have been open for long."""
        self._hanging.look()

    def watch_space(self) -> None:
        """Have the sealer free WAL space; refuse producers while there is none."""
        if watch_space(self._shard, clock.monotonic_ms()):
            self._peers.ask_sealer(Pressure(), lambda _: None)

    def _partitions(self, link: Link, frame_id: int, asked: Partitions) -> None:
        logs = self._shard.logs.values()
        generation = max(log.words[WORD_GENERATION] for log in logs)
        told = self._changes.after(asked.since if asked.life == generation else 0)
        facts = ShardFacts(
            life=generation,
            since=told.since,
            version=told.version,
            more=told.more,
            gone=told.gone,
            partitions=told.partitions,
            wal_bytes=sum(log.wal.files.needed_bytes for log in logs),
            wal_bytes_max=sum(log.wal.files.limit for log in logs),
            cpu_ms=clock.cpu_ms(),
        )
        link.send(encode_answer(frame_id, facts))

    def _batches(self, link: Link, frame_id: int, asked: Batches) -> None:
        number, led = asked.number, self._find(asked.number)
        offsets = led.offsets()
        limit = offsets.last_stable if asked.shown else offsets.log_end
        if asked.as_sent:
            limit = offsets.high_watermark
        bytes_max = min(asked.bytes_max, BATCHES_BYTES_MAX)
        transactions = led.log.transactions
        is_filtered = asked.shown and not asked.as_sent
        is_filtered &= transactions.overlaps_aborted(number, asked.offset, limit)
        if is_filtered:
            bytes_max = min(bytes_max, ABORTED_BYTES_MAX)
        found = led.log.find(number, asked.offset, limit, bytes_max)
        if found is None:
            raise ValueError(f"offset {asked.offset} of partition {number} has left the WAL")
        end = int(found.spans[-1].sum()) if len(found.spans) else 0

        def collected(data: bytes | DamagedFrame) -> None:
            if isinstance(data, DamagedFrame):
                self._refuse(link, frame_id, data)
                return
            if is_filtered:
                is_led = number in led.log.partitions.slots
                if not is_led or led.offsets().decided_end > asked.offset:
                    reason = f"offset {asked.offset} of partition {number} is sealed or gone"
                    self._refuse(link, frame_id, ValueError(reason))
                    return
                data = without(data, partial(transactions.aborted_of, number))
            said = RawBatches(len(data), is_unread=not data and len(found.spans) > 0)
            answer = encode_answer(frame_id, said, data)
            self._send_when_synced(link, frame_id, answer, led.log, end if asked.synced else 0)

        led.log.collect(found.spans, collected)

    def _send_when_synced(
        self, link: Link, frame_id: int, answer: bytes, log: Log, position: int
    ) -> None:
        if log.words[WORD_SYNCED] >= position:
            link.send(answer)
        elif log.failed is not None:  # It may never get there, and the sealer would ask again.
            link.send(encode_answer(frame_id, Failed(f"log {log.number}: {log.failed}")))
        elif not link.closed:
            log.want_sync()
            again = partial(self._send_when_synced, link, frame_id, answer, log, position)
            self._loop.call_later(SYNC_POLL_MS, again)

    def _rights(
        self,
        link: Link,
        frame_id: int,
        asked: FollowRights,  # noqa: ARG002  (It says nothing more.)
    ) -> None:
        self._loop.call_later(0, lambda: None)  # The next turn begins with them.
        link.send(encode_answer(frame_id, answer=True))

    def _sealed(self, link: Link, frame_id: int, asked: MarkSealed) -> None:
        led = self._find(asked.number)
        now_ms, is_decided = clock.monotonic_ms(), asked.is_decided
        if led.log.sealing.advance(asked.number, asked.end, now_ms, is_decided=is_decided):
            self._shard.moved.add((led.log.number, led.slot))
        led.log.checkpoint(lambda: link.send(encode_answer(frame_id, answer=True)))

    def _aborted(self, link: Link, frame_id: int, asked: FindAborted) -> None:
        transactions = self._find(asked.number).log.transactions
        found = transactions.aborted_of(asked.number, asked.start, asked.end, asked.producers)
        rows = [(each.producer_id, each.first_offset, each.last_offset) for each in found]
        link.send(encode_answer(frame_id, rows))

    def _compacted(self, link: Link, frame_id: int, asked: MarkCompacted) -> None:
        led = self._find(asked.number)
        led.log.sealing.compact(asked.number, asked.end, clock.monotonic_ms())
        led.log.checkpoint(lambda: link.send(encode_answer(frame_id, answer=True)))

    def _log_start(self, link: Link, frame_id: int, asked: RaiseLogStart) -> None:
        led = self._find(asked.number)
        led.log.sealing.set_log_start(asked.number, asked.offset)
        led.log.checkpoint(lambda: link.send(encode_answer(frame_id, answer=True)))

    def _unsealed(self, link: Link, frame_id: int, asked: Unsealed) -> None:
        led = self._find(asked.number)
        offsets = led.offsets()
        parts = led.log.lookup.filed_from(asked.number, offsets.sealed_end)
        unsealed = [UnsealedPart(*part) for part in parts]
        ends = offsets.sealed_end, offsets.last_stable
        answer = UnsealedParts(offsets.decided_end, led.unsealed_bytes(), unsealed, *ends)
        link.send(encode_answer(frame_id, answer))

    def _ends(self, link: Link, frame_id: int, asked: FindEnds) -> None:
        offsets = self._find(asked.number).offsets()
        link.send(encode_answer(frame_id, Ends(offsets.sealed_end, offsets.log_end)))

    def _attach(self, link: Link, frame_id: int, asked: Attach) -> None:
        if asked.log not in self._shard.logs:
            raise ValueError(f"there is no log {asked.log} here")
        memory = self._shard.logs[asked.log].memory
        link.send_with_fd(encode_answer(frame_id, LogMemory(memory.layout.total_bytes)), memory.fd)

    def _markers(self, link: Link, frame_id: int, asked: WriteMarkers) -> None:
        producer = asked.producer_id, asked.producer_epoch
        marker = Marker(*producer, asked.committed, asked.coordinator_epoch)
        version, now = asked.transaction_version, clock.now()
        endings = [
            end_transaction(self._shard, number, marker, version, now) for number in asked.numbers
        ]
        logs = [each.led.log for each in endings if each.led is not None]
        ends = _tails(logs if asked.is_synced else [])
        # The end of the turn writes and publishes them.
        self._when_written.append(partial(self._answer_markers, link, frame_id, endings, ends))

    def _answer_markers(
        self, link: Link, frame_id: int, endings: list[Ending], ends: list[tuple[Log, int]]
    ) -> None:
        outcomes = [each.outcome(self._shard) for each in endings]
        known = [int(each) for each in outcomes if each is not None]
        missing = _not_synced(ends)
        self._want_syncs(endings)
        if any(log.failed is not None for log, _ in missing):
            link.send(encode_answer(frame_id, Failed("a log has failed")))
        elif len(known) == len(outcomes) and not missing:
            link.send(encode_answer(frame_id, known))
        elif not link.closed:
            again = partial(self._answer_markers, link, frame_id, endings, missing)
            self._loop.call_later(SYNC_POLL_MS, again)

    def _want_syncs(self, endings: list[Ending]) -> None:
        """Want syncs of markers that no write has wanted: a full ring may have forced their write
        before the end of the turn, and some are repeats."""
        waiting = (each for each in endings if each.outcome(self._shard) is None)
        for log in {each.led.log.number: each.led.log for each in waiting if each.led}.values():
            must = DURABILITY_DISK in self._shard.levels and log.failed is None
            if must and log.syncs.awaited < log.words[WORD_WRITTEN]:
                log.want_sync()

    def _sync(self, link: Link, frame_id: int, asked: SyncLogs) -> None:
        found = [
            (self._find(number), generation)
            for number, generation in zip(asked.numbers, asked.written, strict=True)
        ]
        ends = _tails(led.log for led, _ in found)
        lost = [
            led.number
            for led, generation in found
            if led.may_have_lost(asked.producer_id, generation)
        ]
        self._when_written.append(partial(self._answer_sync, link, frame_id, lost, ends))

    def _answer_sync(
        self, link: Link, frame_id: int, lost: list[int], ends: list[tuple[Log, int]]
    ) -> None:
        missing = _not_synced(ends)
        for log, _ in missing:
            if log.failed is not None:
                link.send(encode_answer(frame_id, Failed(f"log {log.number}: {log.failed}")))
                return
        if not missing:
            link.send(encode_answer(frame_id, lost))
        elif not link.closed:
            again = partial(self._answer_sync, link, frame_id, lost, missing)
            self._loop.call_later(SYNC_POLL_MS, again)

    def _pushes(self, link: Link, frame_id: int, asked: ListPushes) -> None:
        now = clock.now()
        newest = self._shard.client_metrics.newest(min(asked.count_max, PUSHES_MAX))
        clients = [
            PushingClient(
                *each.client, list(each.wanted.metrics), each.wanted.interval_ms, each.push_count,
                now.wall_of(each.push_ms), each.pushed_bytes, each.inflated_bytes, each.error,
            )
            for each in newest
        ]  # fmt: skip
        link.send(encode_answer(frame_id, clients))

    def _push(self, link: Link, frame_id: int, asked: FindPush) -> None:
        metrics = self._shard.client_metrics.metrics_of(UUID(asked.instance))
        link.send(encode_answer(frame_id, PushedMetrics(len(metrics)), metrics))

    def _find(self, number: int) -> Led:
        led = self._shard.by_number(number)
        if led is None:
            raise ValueError(f"partition {number} is not led here")
        return led


def _tails(logs: Iterable[Log]) -> list[tuple[Log, int]]:
    """Each of these logs once, with its current tail."""
    return [(log, log.tail) for log in {log.number: log for log in logs}.values()]


def _not_synced(ends: list[tuple[Log, int]]) -> list[tuple[Log, int]]:
    """The logs that are not on disk up to these tails; wants their syncs."""
    missing = [(log, end) for log, end in ends if log.words[WORD_SYNCED] < end]
    for log, _ in missing:
        if log.failed is None:
            log.want_sync()
    return missing
