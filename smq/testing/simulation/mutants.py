"""Known defects of the data path, reintroduced one by one: the simulator must find each.

A mutant replaces methods by versions without the fix. Its runs only have events of the kinds that
its defect needs, and more of them than a run of all kinds. Each is searched for twice: with the
assertions of `invariants()`, and without them, by outside effects alone.

python -m smq.testing.simulation.mutants [--seeds 1000] [--first 1] [--only 4]
"""

# ruff: noqa: SLF001  (The defects lie inside.)

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from shm.kernels.base.words import DURABILITY_DISK, DURABILITY_OS, WORD_TAIL, WORD_WRITTEN
from smq.app.shard.acks import Acks, _Ack
from smq.app.shard.connection import Connection, Slot
from smq.app.shard.long_polls import LongPolls
from smq.app.shard.session import Session
from smq.log.files.checkpoint import Checkpoint
from smq.log.files.segment import Segment
from smq.log.log import Log
from smq.log.recovery import _Recovery
from smq.shard.produce import Marks
from smq.testing.simulation.events import events_of
from smq.testing.simulation.run import Outcome, Workplace, say, simulate, workplace

SEEDS_MAX = 1000


class Change(NamedTuple):
    """A method and its replacement."""

    owner: type
    name: str
    method: Callable[..., Any]


class Mutant(NamedTuple):
    """A row: the defect's number in the review, its effect, its events, its changes."""

    number: int
    defect: str
    kinds: frozenset[str]
    changes: tuple[Change, ...]


class Found(NamedTuple):
    """After how many seeds the defect was found; None if it was not."""

    seeds: int
    outcome: Outcome | None


# --- 1: a checkpoint knows frames of a later generation -------------------------------------------

_set_ends = _Recovery._set_ends


def _enter_all(self: _Recovery, data: np.ndarray, count: int, first_position: int) -> None:
    """No frame ends what the checkpoint knows, whoever wrote it."""
    self._enter(data, 0, count, first_position)


def _end_nothing(_self: _Recovery, _position: int) -> None:
    """Nor does the recovered tail."""


def _knows_by_position(self: _Recovery, segment: Segment, _following: Segment) -> bool:
    """Segments are known by their position only."""
    return bool(segment.end <= self._known_to)


def _clip_last(self: _Recovery, checkpoint: Checkpoint | None, *, is_newest: bool) -> None:
    """Clip producers after entering all frames."""
    log = self._log
    reaches = checkpoint is not None and log.words[WORD_TAIL] >= checkpoint.position
    _set_ends(self, checkpoint if reaches else None, is_newest=is_newest)
    log.producers.clip(*log.partitions.copy().ends())


# --- 2, 3, 4: acks --------------------------------------------------------------------------------

_queue, _settle_failure = Acks.queue, Acks._settle_failure


def _want_nothing(_self: Acks) -> None:
    """Only a write requests a sync."""


def _queue_for_all_logs(
    self: Acks,
    client: Connection | Session,
    answers: bytes,
    marks: Marks,
    slot: Slot | None = None,
) -> None:
    """A `disk` ack waits for the tails of all logs of the shard."""
    waiting = self._open_when_synced
    before = len(waiting)
    _queue(self, client, answers, marks, slot)
    if len(waiting) > before:
        tails = {log.number: log.tail for log in self._shard.logs.values()}
        waiting[-1] = waiting[-1]._replace(synced=tails)


def _want_syncs_of_touched(self: Acks) -> None:
    """The current code, limited to the logs that the request touched, as it would fix both."""
    for ack in self._open_when_synced:
        for mark in ack.marks:
            log = self._shard.logs[mark.log]
            if log.syncs.wanted < mark.position <= log.words[WORD_WRITTEN]:
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


# --- 5: long polls --------------------------------------------------------------------------------


def _look_and_stay(self: LongPolls) -> None:
    """A poll stays registered at the places of deleted topics."""
    for poll in list(self._all):
        if poll in self._all:
            self._settle(poll, poll.wait.attempt(is_last=False))


_TOPICS = frozenset({"produce", "create", "create-again"})
_DISKS = _TOPICS | {"disk-fails", "disk-is-slow"}
_CRASHES = _DISKS | {"kill", "kill-all", "cut-power"}

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        1,
        "a checkpoint knows frames that a later life wrote below its position",
        _CRASHES,
        (
            Change(_Recovery, "_enter_lives", _enter_all),
            Change(_Recovery, "_end_known", _end_nothing),
            Change(_Recovery, "_knows", _knows_by_position),
            Change(_Recovery, "_set_ends", _clip_last),
        ),
    ),
    Mutant(
        2,
        "a `disk` batch that is sent again wants no sync",
        _DISKS | {"cut", "kill"},
        (Change(Acks, "_want_syncs", _want_nothing),),
    ),
    Mutant(
        3,
        "a `disk` ack waits for all logs of its shard, and only those it touched are synced",
        _DISKS | {"kill-all"},
        (
            Change(Acks, "queue", _queue_for_all_logs),
            Change(Acks, "_want_syncs", _want_syncs_of_touched),
        ),
    ),
    Mutant(
        4,
        "acks of all logs go out when the one that failed first is repaired",
        _DISKS | {"kill-all"},
        (
            Change(Acks, "_is_written", _is_always_written),
            Change(Acks, "_write", _write_or_doubt),
            Change(Acks, "_settle_failure", _settle_doubt),
        ),
    ),
    Mutant(
        5,
        "a long poll stays behind when its topic is created again",
        _TOPICS | {"fetch", "delete"},
        (Change(LongPolls, "look_again", _look_and_stay),),
    ),
)


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    """Plant the defect within the block."""
    before = [Change(each.owner, each.name, vars(each.owner)[each.name]) for each in mutant.changes]
    for change in mutant.changes:
        setattr(change.owner, change.name, change.method)
    try:
        yield
    finally:
        for change in before:
            setattr(change.owner, change.name, change.method)


def look_for(
    mutant: Mutant, seeds: Iterable[int], place: Workplace, *, asserts: bool = True
) -> Found:
    """Run seeds until one fails."""
    count = 0
    with planted(mutant):
        for count, seed in enumerate(seeds, 1):
            outcome = simulate(seed, place, events_of(seed, mutant.kinds), asserts=asserts)
            if outcome.why:
                return Found(count, outcome)
    return Found(count, None)


def told(found: Found) -> str:
    """A table cell."""
    if found.outcome is None:
        return f"not in {found.seeds} seeds"
    first, *where = found.outcome.why.splitlines()
    by = ", by an assertion" if where and " invariants" in where[-1] else ""
    return f"{found.seeds} seeds (seed {found.outcome.seed}{by}): {first}"


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--seeds", type=int, default=SEEDS_MAX, help="seeds for each mutant, at most"
    )
    parser.add_argument("--first", type=int, default=1, help="from this one on")
    parser.add_argument("--only", type=int, help="only the mutant of this number")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds)
    missed = 0
    with workplace() as place:
        for mutant in MUTANTS:
            if options.only not in {None, mutant.number}:
                continue
            say(f"{mutant.number}: {mutant.defect}")
            for asserts in (True, False):
                found = look_for(mutant, seeds, place, asserts=asserts)
                missed += found.outcome is None
                say(f"   {'all checks' if asserts else 'clients only':12}  {told(found)}")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
