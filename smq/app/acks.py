"""Acks of produced batches: what they are for is written, and they go when its level is reached."""

from typing import TypeAlias

from shm.kernels.words import DURABILITY_DISK, DURABILITY_OS, WORD_SYNCED
from smq.app.connection import Connection, Slot
from smq.app.session import Session
from smq.log.log import Log
from smq.shard.shard import Shard

_Ack: TypeAlias = tuple[Connection | Session, Slot]


class Acks:
    """Of one shard. What a client was not told it may send again: in doubt it is told nothing."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._open_now: list[_Ack] = []
        self._in_doubt: dict[int, list[_Ack]] = {}  # By log: while it is repaired.
        self._open_when_synced: list[tuple[dict[int, int], Connection | Session, Slot]] = []

    def queue(self, client: Connection | Session, answers: bytes, level: int) -> None:
        """These answers are due to a client when what was appended is as safe as `level` says."""
        slot = Slot([answers], is_open=False)
        client.slots.append(slot)
        client.acks_due += 1
        if level == DURABILITY_DISK:
            tails = {log.number: log.tail for log in self._shard.logs.values()}
            self._open_when_synced.append((tails, client, slot))
        else:
            self._open_now.append((client, slot))

    def open(self) -> list[Connection | Session]:
        """Open those that are due; whose they are."""
        opened = []
        for client, slot in self._open_now:
            slot.is_open = True
            client.acks_due -= 1
            client.is_held = client.is_held and client.acks_due > 0
            opened.append(client)
        self._open_now.clear()
        return opened

    def write(self) -> None:
        """Write what the turn has appended to the logs."""
        for log in self._shard.logs.values():
            self._end_turn_of(log)

    def _end_turn_of(self, log: Log) -> None:
        if not log.is_written():
            self._write(log)
        log.background.collect()
        if log.failed is not None or self._in_doubt:
            self._settle_failure(log)

    def _write(self, log: Log) -> None:
        """Write what the turn has appended, then show it."""
        had_failed = log.failed is not None
        if not log.write() and not log.repair():
            if not had_failed:
                self._in_doubt[log.number], self._open_now = self._open_now, []
            return
        if DURABILITY_DISK in self._shard.levels:
            log.want_sync()  # First: the disk is the slowest.
        self._shard.publish(log, DURABILITY_OS)

    def _settle_failure(self, log: Log) -> None:
        """When an attempt at repair has ended: what waited for it is written now, or never was."""
        if log.may_recover:
            return
        waiting = self._in_doubt.pop(log.number, None)
        if log.failed is not None:  # Nobody is told that it was taken.
            synced = log.words[WORD_SYNCED]
            unsynced = [e for e in self._open_when_synced if e[0].get(log.number, 0) > synced]
            self._open_when_synced = [e for e in self._open_when_synced if e not in unsynced]
            for connection, _ in [*(waiting or ()), *(each[1:] for each in unsynced)]:
                connection.close()
        elif waiting is not None:
            self._open_now += waiting
            self._write(log)

    def show_synced(self) -> bool:
        """Show what the disk has, and let those go who waited for it; whether anybody has."""
        if DURABILITY_DISK not in self._shard.levels:
            return False
        for log in self._shard.logs.values():
            log.push_sync()
            if log.failed is not None:
                log.repair()
            self._shard.publish(log, DURABILITY_DISK)
        ready = [each for each in self._open_when_synced if self._is_synced(each[0])]
        for each in ready:
            self._open_when_synced.remove(each)
            self._open_now.append(each[1:])
        return bool(ready or self._open_when_synced)

    def _is_synced(self, tails: dict[int, int]) -> bool:
        logs = self._shard.logs
        return all(logs[number].words[WORD_SYNCED] >= tail for number, tail in tails.items())
