"""Acks that go out too early, or wait for the wrong log."""

# ruff: noqa: SLF001  (The defects lie inside.)

from shm.kernels.base.words import DURABILITY_DISK, DURABILITY_OS, WORD_WRITTEN
from smq.app.shard.connections.connection import Connection, Slot
from smq.app.shard.door.session import Session
from smq.app.shard.requests.acks import Acks, _Ack
from smq.log.log import Log
from smq.shard.produce import Marks
from smq.testing.simulation.defects.mutant import DISKS, TOPICS, Change, Mutant

_queue, _settle_failure, _show_synced = Acks.queue, Acks._settle_failure, Acks.show_synced


def _show_what_is_awaited(self: Acks) -> bool:
    """Only an ack, or a topic of level `disk`, has syncs go on."""
    waits = self._open_when_synced or DURABILITY_DISK in self._shard.levels
    return bool(waits) and _show_synced(self)


def _want_nothing(_self: Acks) -> None:
    """Only a write requests a sync."""


def _queue_for_all_logs(  # noqa: PLR0913, PLR0917  (what `queue` takes)
    self: Acks,
    client: Connection | Session,
    answers: bytes,
    marks: Marks,
    slot: Slot | None = None,
    began_ns: int = 0,
) -> None:
    """A `disk` ack waits for the tails of all logs of the shard."""
    waiting = self._open_when_synced
    before = len(waiting)
    _queue(self, client, answers, marks, slot, began_ns)
    if len(waiting) > before:
        tails = {log.number: log.tail for log in self._shard.logs.values()}
        waiting[-1] = waiting[-1]._replace(synced=tails)


def _want_syncs_of_touched(self: Acks) -> None:
    """The current code, limited to the logs that the request touched, as it would fix both."""
    for ack in self._open_when_synced:
        for mark in ack.marks:
            log = self._shard.logs[mark.log]
            if log.syncs.awaited < mark.position <= log.words[WORD_WRITTEN]:
                log.want_sync()


def _is_always_written(_self: Acks, _ack: _Ack) -> bool:
    """Send every ack that is not in doubt."""
    return True


def _write_or_doubt(self: Acks, log: Log) -> None:
    """The first log that fails in a turn takes the acks of all logs."""
    had_failed = log.failed is not None
    if not log.write() and not log.repair():
        if not had_failed:
            _in_doubt(self)[log.number], self._open_now = self._open_now, []
        return
    if DURABILITY_DISK in self._shard.levels:
        log.want_sync()
    self._shard.publish(log, DURABILITY_OS)


def _settle_doubt(self: Acks, log: Log) -> None:
    """And its repair releases all of them."""
    if log.health.may_recover:
        return
    for ack in _in_doubt(self).pop(log.number, []):
        if log.failed is None:
            self._open_now.append(ack)
        else:
            ack.client.close()
    _settle_failure(self, log)


def _in_doubt(acks: Acks) -> dict[int, list[_Ack]]:
    found: dict[int, list[_Ack]] = vars(acks).setdefault("in_doubt", {})
    return found


MUTANTS = (
    Mutant(
        "sealers-sync-stands-still",
        "a sync that the sealer wanted ends when it asks no more",
        TOPICS | {"kill"},
        (Change(Acks, "show_synced", _show_what_is_awaited),),
        seed=17,
    ),
    Mutant(
        "no-sync-for-a-repeat",
        "a `disk` batch that is sent again wants no sync",
        DISKS | {"cut", "kill"},
        (Change(Acks, "_want_syncs", _want_nothing),),
        seed=271,
    ),
    Mutant(
        "acks-wait-for-all-logs",
        "a `disk` ack waits for all logs of its shard, and only those it touched are synced",
        DISKS | {"kill-all"},
        (
            Change(Acks, "queue", _queue_for_all_logs),
            Change(Acks, "_want_syncs", _want_syncs_of_touched),
        ),
        seed=18,
    ),
    Mutant(
        "repair-releases-all-acks",
        "acks of all logs go out when the one that failed first is repaired",
        DISKS | {"kill-all"},
        (
            Change(Acks, "_is_written", _is_always_written),
            Change(Acks, "_write", _write_or_doubt),
            Change(Acks, "_settle_failure", _settle_doubt),
        ),
        seed=13,
    ),
)
