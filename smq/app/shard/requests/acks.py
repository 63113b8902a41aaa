"""Holds each ack until its batch is durable at the topic's level; writes what a turn appended."""

from typing import NamedTuple

from shm.kernels.base.words import DURABILITY_DISK, DURABILITY_OS, WORD_SYNCED, WORD_WRITTEN
from smq.app.process.clock import monotonic_ns
from smq.app.shard.connections.connection import Connection, Slot
from smq.app.shard.connections.request_times import PRODUCE_KEY, RequestTimes, Timing
from smq.app.shard.door.session import Session
from smq.log.log import Log
from smq.shard.produce import Marks
from smq.shard.shard import Shard

ATTACHED = "a program that is attached"  # Instead of an address.


class _Ack(NamedTuple):
    """Answers that are due to a client once the logs are written up to the marks.

    `synced` has the positions, by log, that a sync must reach first.
    """

    client: Connection | Session
    slot: Slot
    marks: Marks
    synced: dict[int, int]


class Acks:
    """The acks of one shard.

    In doubt, send none: the client resends what was not acknowledged. Invariants, at the end of a
    turn: an ack that waits for a write waits for a failed log; one that waits for a sync waits for
    a wanted sync or a failed log.
    """

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self.times: RequestTimes | None = None
        self._open_now: list[_Ack] = []
        self._failed: set[int] = set()  # Logs, until they are written again.
        self._open_when_synced: list[_Ack] = []

    def invariants(self) -> None:
        """Raise AssertionError if an ack waits for something that will never happen."""
        logs = self._shard.logs
        for ack in self._open_now:
            assert any(logs[mark.log].failed is not None for mark in ack.marks)
        for ack in self._open_when_synced:
            assert ack.synced
            for number, position in ack.synced.items():
                log = logs[number]
                assert log.failed is not None or log.syncs.awaited >= position
        for log in logs.values():
            assert log.failed is None or log.number in self._failed or log.health.may_recover

    def queue(
        self,
        client: Connection | Session,
        answers: bytes,
        marks: Marks,
        slot: Slot | None = None,
        began_ns: int = 0,
    ) -> None:
        """Queue answers for a client, due once their records are as safe as the marks say.

        `slot` is their slot, if it was reserved before; `began_ns`: when their requests came
        (monotonic), 0: now.
        """
        assert all(mark.position <= self._shard.logs[mark.log].tail for mark in marks)
        if slot is None:
            slot = self.reserve(client, len(answers), began_ns)
        slot.pieces.append(answers)
        slot.length = len(answers)
        client.acks_due += 1
        if all(mark.level != DURABILITY_DISK for mark in marks):
            self._open_now.append(_Ack(client, slot, marks, {}))
            return
        synced = {m.log: m.position for m in marks if m.level == DURABILITY_DISK}
        ack = _Ack(client, slot, marks, synced)
        self._open_when_synced.append(ack)

    def reserve(self, client: Connection | Session, size: int = 0, began_ns: int = 0) -> Slot:
        """A slot for answers that are not known yet; `size` is what is known of their length."""
        slot = Slot(is_open=False)
        slot.timing = self._timing(client, size, began_ns or monotonic_ns())
        client.slots.append(slot)
        return slot

    def _timing(self, client: Connection | Session, size: int, began_ns: int) -> Timing | None:
        if self.times is None:
            return None
        host = client.caller.host if isinstance(client, Connection) else ATTACHED
        timing = self.times.begin(PRODUCE_KEY, 0, began_ns, size, host)
        timing.handled()
        return timing

    def open(self) -> list[Connection | Session]:
        """Open the acks that are due; returns their clients."""
        opened, waiting, self._open_now = [], self._open_now, []
        for ack in waiting:
            if not self._is_written(ack):
                self._open_now.append(ack)
                continue
            client = ack.client
            assert client.acks_due > 0
            assert not ack.slot.is_open, "an answer is due once"
            ack.slot.open()
            client.acks_due -= 1
            client.is_held = client.is_held and client.acks_due > 0
            opened.append(client)
        return opened

    def _is_written(self, ack: _Ack) -> bool:
        logs = self._shard.logs
        return all(logs[mark.log].words[WORD_WRITTEN] >= mark.position for mark in ack.marks)

    def write(self) -> None:
        """Write the turn's appends to the WAL."""
        for log in self._shard.logs.values():
            self._end_turn_of(log)

    def _end_turn_of(self, log: Log) -> None:
        if not log.is_written():
            self._write(log)
        self._note_failure(log)
        log.background.collect()  # It may end a repair, and tell of a write-back that failed.
        self._note_failure(log)
        if log.number in self._failed:
            self._settle_failure(log)

    def _note_failure(self, log: Log) -> None:
        if log.failed is not None:
            self._failed.add(log.number)

    def _write(self, log: Log) -> None:
        """Write the turn's appends to the WAL, then publish them. Those that a log had written
        before it failed are acknowledged, and so they are published too."""
        if (log.write() or log.repair()) and DURABILITY_DISK in self._shard.levels:
            log.want_sync()  # First: the disk is the slowest.
        self._shard.publish(log, DURABILITY_OS)

    def _settle_failure(self, log: Log) -> None:
        """Once a repair has ended: the acks that waited for it are written now, or failed."""
        if log.health.may_recover:
            return
        if log.failed is None:
            self._write(log)
            if log.failed is None:
                self._failed.remove(log.number)
            return
        for acks in (self._open_now, self._open_when_synced):
            lost = [ack for ack in acks if self._waits_for(ack, log)]
            acks[:] = [ack for ack in acks if ack not in lost]
            for ack in lost:  # These batches are never acknowledged.
                ack.client.close()

    @staticmethod
    def _waits_for(ack: _Ack, log: Log) -> bool:
        """Whether an ack waits for a position that a log has not reached."""
        written, synced = log.words[WORD_WRITTEN], log.words[WORD_SYNCED]
        is_unwritten = any(m.log == log.number and m.position > written for m in ack.marks)
        return is_unwritten or ack.synced.get(log.number, 0) > synced

    def show_synced(self) -> bool:
        """Publish what is on disk and send the acks waiting for it; returns whether any were.

        The sealer wants syncs too, and may wait no more: what is wanted of them is done all the
        same. A kernel leaves each turn to the loop while an older segment is to be synced.
        """
        waits = self._open_when_synced or DURABILITY_DISK in self._shard.levels
        if not waits and not any(log.syncs.is_awaited() for log in self._shard.logs.values()):
            return False
        self._want_syncs()
        for log in self._shard.logs.values():
            log.push_sync()
            self._note_failure(log)
            if log.failed is not None:
                log.repair()
            log.syncs.see()
            self._shard.publish(log, DURABILITY_DISK)
        waiting, self._open_when_synced = self._open_when_synced, []
        for ack in waiting:
            queue = self._open_now if self._is_synced(ack) else self._open_when_synced
            queue.append(ack)
        return bool(waiting)

    def _want_syncs(self) -> None:
        """Want syncs that acks wait for and no write has wanted: a duplicate batch is written
        already, and so is what a kernel has taken."""
        for ack in self._open_when_synced:
            for number, position in ack.synced.items():
                log = self._shard.logs[number]
                if log.syncs.awaited < position <= log.words[WORD_WRITTEN]:
                    log.want_sync()

    def _is_synced(self, ack: _Ack) -> bool:
        logs = self._shard.logs
        return all(logs[n].words[WORD_SYNCED] >= position for n, position in ack.synced.items())
