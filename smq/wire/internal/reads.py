"""Questions about the records of sealed segments, and their answers."""

from smq.model.frozen import frozen
from smq.model.segments import (
    ANY_REACH,
    ANY_SIZE,
    NO_LIMIT,
    BatchLimits,
    SealedPartition,
    SegmentReach,
)
from smq.wire.internal.form import Question


@frozen
class BatchFile:
    """Batches as a range of a file of the sealer; the offset after them; whether it was cached.

    A length of 0: up to `next_offset` no segment has a record, or the first batch does not fit.
    `is_undecided`: they are as they were sent, with markers and aborted records.
    """

    path: str
    at: int
    length: int
    next_offset: int
    is_cached: bool = False
    is_undecided: bool = False


@frozen
class Cold(Question[BatchFile]):
    """Ask for batches from sealed segments, the first of which has a record at the offset or later.

    As many as fit; one at least if `must_give`. Undecided segments give those within reach.
    """

    number: int
    offset: int
    bytes_max: int
    limits: BatchLimits = ANY_SIZE
    must_give: bool = True
    reach: SegmentReach = ANY_REACH


@frozen
class Inline(Question[BatchFile]):
    """`Cold` with payloads in place of their handles, from the log or from segments.

    `epoch` is the partition's leader epoch: in another one the log may have other records there.
    `as_sent`: what is not decided, or aborted, is read too.
    """

    number: int
    offset: int
    bytes_max: int
    epoch: int
    limits: BatchLimits = ANY_SIZE
    must_give: bool = True
    limit: int = NO_LIMIT
    as_sent: bool = False


@frozen
class RecordTime:
    """Where a record is, and its time."""

    offset: int
    timestamp: int


@frozen
class NewestRecord(Question[RecordTime | None]):
    """Ask for the sealed record with the largest time, at or after `log_start`."""

    number: int
    log_start: int
    limit: int = NO_LIMIT


@frozen
class OffsetForTime(Question[RecordTime | None]):
    """Ask for the first sealed record of a time or later, at or after `log_start`."""

    number: int
    timestamp: int
    log_start: int = 0
    limit: int = NO_LIMIT


@frozen
class MakeInline(Question[BatchFile]):
    """`Inline`, with the sealer's facts about the partition."""

    node: int
    place: SealedPartition
    asked: Inline
