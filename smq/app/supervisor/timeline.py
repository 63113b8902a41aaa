"""The time line of a data directory: the clock of ages and deadlines that outlive a restart.

    <data>/clock.json      one moment on each clock: the time line's, the system's two, and the boot

    within a boot          continues as the system's monotonic clock has gone on
    after another boot     … as far as the wall clock has gone on, which may be wrong: not at all if
                           that was set back. So an age may come out too long, but never negative
    without a file         begins at wall time, which versions without a time line have kept

The file is written durably at the start and every minute; meta.json's version covers its format. A
time that was saved after the last writing may be in the future after a reboot: whoever loads such a
time replaces it by the present. A snapshot has the file as of its cut (smq.backup), so that a
restored broker continues the time line of its data.
"""

import json
from pathlib import Path
from typing import NamedTuple

from smq.app.process.clock import begin_at, monotonic_ms, monotonic_ns, wall_ms
from smq.app.process.machine import boot_id
from smq.app.supervisor.datadir import replace_durably

FILE = "clock.json"
KEEP_EVERY_MS = 60_000
_NUMBERS = ("now", "monotonic", "wall")
_MS_MAX = 2**60  # The sum of some of them has 64 bits, as in shared memory and in the store.


class Moment(NamedTuple):
    """A moment on the system's clocks, and in which boot."""

    boot_id: str
    monotonic_ms: int
    wall_ms: int


class KeptMoment(NamedTuple):
    """A moment, and where it was on the time line."""

    now_ms: int
    moment: Moment


def continued(kept: KeptMoment | None, moment: Moment) -> int:
    """Where a moment is on the time line."""
    if kept is None:
        return moment.wall_ms
    passed_ms = moment.monotonic_ms - kept.moment.monotonic_ms
    if moment.boot_id != kept.moment.boot_id or passed_ms < 0:
        passed_ms = max(0, moment.wall_ms - kept.moment.wall_ms)
    return kept.now_ms + passed_ms


def resume(directory: Path) -> None:
    """Continue a data directory's time line in this process and its forks. Raises OSError."""
    begin_at(present(directory).now_ms)
    keep(directory)


def keep(directory: Path) -> None:
    """Note durably where this process's time line is. Raises OSError."""
    replace_durably(directory / FILE, text_of(KeptMoment(monotonic_ms(), _moment())))


def present(directory: Path) -> KeptMoment:
    """Where a data directory's time line is now, for a process that has not resumed it."""
    moment = _moment()
    return KeptMoment(continued(read(directory), moment), moment)


def text_of(kept: KeptMoment) -> bytes:
    """The content of the file."""
    return json.dumps({"now_ms": kept.now_ms, **kept.moment._asdict()}).encode() + b"\n"


def read(directory: Path) -> KeptMoment | None:
    """What was kept; None: nothing that can be read."""
    try:
        fields = json.loads((directory / FILE).read_bytes())
        now_ms, passed_ms, wall_ms = (_ms(fields[f"{name}_ms"]) for name in _NUMBERS)
        return KeptMoment(now_ms, Moment(str(fields["boot_id"]), passed_ms, wall_ms))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _ms(found: object) -> int:
    """A number of a file, which may be from elsewhere. Raises ValueError."""
    if type(found) is not int or abs(found) > _MS_MAX:
        raise ValueError(found)
    return found


def _moment() -> Moment:
    return Moment(boot_id().decode(), monotonic_ns() // 1_000_000, wall_ms())
