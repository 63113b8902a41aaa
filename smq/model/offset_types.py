"""Where a reader of a partition starts: seven offset types, by SeaweedMQ's names and numbers.

    RESUME_OR_…   where the group has committed, else at the earliest or latest record
    RESET_TO_…    there, whatever the group has committed: its commit is overwritten
    EXACT_…       there, this once: the group's commit stays until it acks

An offset beyond the log's ends: EXACT_OFFSET is refused with the range; RESET_TO_OFFSET goes to the
nearest end and says so; a committed one (retention was faster) goes where its type goes without a
commit.
"""

from enum import IntEnum
from typing import NamedTuple

NS_PER_MS = 1_000_000


class OffsetType(IntEnum):
    """How a reader names its start."""

    RESUME_OR_EARLIEST = 0
    RESET_TO_EARLIEST = 5
    EXACT_TS_NS = 10
    RESET_TO_LATEST = 15
    RESUME_OR_LATEST = 20
    EXACT_OFFSET = 25
    RESET_TO_OFFSET = 30


class WantedPlace(NamedTuple):
    """What a reader says of a partition: the type, and the number that some types have.

    The type is a number, for one that came in a message may be none of ours.
    """

    type: int
    offset: int = 0
    ts_ns: int = 0


class LogEnds(NamedTuple):
    """A partition's first offset, and the one that the next record gets: its high water mark."""

    earliest: int
    latest: int


class Start(NamedTuple):
    """Where to begin. `resets`: the group's commit is overwritten. `note`: why it is elsewhere."""

    offset: int
    resets: bool = False
    note: str = ""


class OutOfRange(Exception):
    """There is no such offset."""


def problem_of(wanted: WantedPlace) -> str:
    """Why there is no such place in any partition, as a sentence; "" if there may be."""
    if wanted.type not in {*OffsetType}:
        return f"there is no offset type {wanted.type}"
    if wanted.type in _BY_OFFSET and wanted.offset < 0:
        return f"start_offset is {wanted.offset}; offsets begin with 0"
    return ""


def timestamp_ms(wanted: WantedPlace) -> int | None:
    """The time whose first record is asked for, in milliseconds; None: no time decides.

    A record has milliseconds; the first one at or after a nanosecond is that of the next of these.
    """
    if wanted.type != OffsetType.EXACT_TS_NS:
        return None
    return max(0, -(-wanted.ts_ns // NS_PER_MS))


def resumes(wanted: WantedPlace) -> bool:
    """Whether the group's commit decides."""
    return wanted.type in {OffsetType.RESUME_OR_EARLIEST, OffsetType.RESUME_OR_LATEST}


def start_of(
    wanted: WantedPlace, ends: LogEnds, *, committed: int | None = None, by_time: int | None = None
) -> Start:
    """Where to begin. `by_time`: the first offset at that time. Raises OutOfRange."""
    assert not problem_of(wanted)
    is_within = committed is not None and ends.earliest <= committed <= ends.latest
    match wanted.type:
        case OffsetType.RESUME_OR_EARLIEST | OffsetType.RESUME_OR_LATEST if is_within:
            assert committed is not None
            return Start(committed)
        case OffsetType.RESUME_OR_EARLIEST:
            return Start(ends.earliest)
        case OffsetType.RESUME_OR_LATEST:
            return Start(ends.latest)
        case OffsetType.EXACT_TS_NS:
            return Start(ends.latest if by_time is None else max(by_time, ends.earliest))
    return _exact_or_reset(wanted, ends)


def _exact_or_reset(wanted: WantedPlace, ends: LogEnds) -> Start:
    if wanted.type == OffsetType.RESET_TO_EARLIEST:
        return Start(ends.earliest, resets=True)
    if wanted.type == OffsetType.RESET_TO_LATEST:
        return Start(ends.latest, resets=True)
    nearest = min(max(wanted.offset, ends.earliest), ends.latest)
    note = "" if nearest == wanted.offset else _beyond(wanted.offset, ends)
    if wanted.type == OffsetType.RESET_TO_OFFSET:
        return Start(nearest, resets=True, note=note and f"{note}; it begins at {nearest}")
    if note:
        raise OutOfRange(note)
    return Start(nearest)


def _beyond(offset: int, ends: LogEnds) -> str:
    return f"offset {offset} is out of range: the partition has {ends.earliest} to {ends.latest}"


_BY_OFFSET = {OffsetType.EXACT_OFFSET, OffsetType.RESET_TO_OFFSET}
