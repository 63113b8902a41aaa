"""Decides what to seal now and what retention deletes. No IO; the time is an argument.

A partition is sealed when enough bytes wait and it has stopped growing, or when its oldest record
has waited long enough: compression follows a burst instead of taking a core from it. Records are
sealed before retention would delete them. If the filer is down until then, they are deleted
unsealed, in units of what full WAL segments hold of the partition. When a log is short of space,
all its partitions are sealed whatever their size, oldest record first: a WAL segment is free when
the last of its partitions is sealed beyond it. Only then is sealed what lies under an open
transaction, as it was sent (smq.sealer.undecided): while there is space it may wait.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from smq.model.segments import UNDECIDED, Segment
from smq.model.topic_settings import TopicSettings
from smq.wire.internal.messages import PartitionState, UnsealedParts

# Of wal.bytes.max: above it sealing no longer waits for sizes and times. Producers may write the
# rest while sealing runs.
PRESSURE_SHARE = 0.5


class ShardState(NamedTuple):
    """A shard's report: partitions that may have something to seal."""

    partitions: tuple[PartitionState, ...]
    wal_bytes: int
    wal_bytes_max: int

    @property
    def wants_space(self) -> bool:
        return self.wal_bytes >= self.wal_bytes_max * PRESSURE_SHARE


def due(
    state: ShardState,
    settings_of: Callable[[int], TopicSettings | None],
    now_ms: int,
    *,
    before: Mapping[int, PartitionState] | None = None,
    pressure: bool = False,
) -> list[PartitionState]:
    """The partitions to seal now, oldest records first.

    `settings_of` a partition's number is None if its topic was deleted; `before` is the previous
    report on each partition.
    """
    before = before or {}
    pressure = pressure or state.wants_space
    chosen = [
        partition
        for partition in state.partitions
        if (settings := settings_of(partition.number)) is not None
        and (
            (pressure and partition.high_watermark > partition.undecided_end)
            or (
                partition.stable_end > partition.sealed_end
                and (pressure or _is_due(partition, before.get(partition.number), settings, now_ms))
            )
        )
    ]
    return sorted(chosen, key=lambda partition: partition.oldest_ms)


def _is_due(
    partition: PartitionState,
    before: PartitionState | None,
    settings: TopicSettings,
    now_ms: int,
) -> bool:
    if partition.sealed_end < partition.undecided_end <= partition.stable_end:
        return True  # What was sealed as it was sent is decided: it has waited, and is much.
    wait_ms = settings.seal_ms
    if settings.retention_ms >= 0:
        wait_ms = min(wait_ms, settings.retention_ms)
    grows = before is not None and before.stable_end < partition.stable_end
    full = partition.unsealed_bytes >= settings.seal_bytes
    return (full and not grows) or now_ms - partition.oldest_ms >= wait_ms


class Retention(NamedTuple):
    """Segments to delete, and the log start offset that results."""

    log_start: int
    deleted: list[Segment]
    all_go: bool
    """No sealed segment is kept."""
    has_more: bool = False
    """The limit was reached; there may be more to delete."""


class Size(NamedTuple):
    """A partition's bytes at one moment: of the segments below `sealed_end`, of the undecided ones
    from there on, and of the log behind them. Later segments hold what was in these then."""

    sealed_end: int
    bytes: int
    undecided_end: int = 0

    def counts(self, segment: Segment) -> bool:
        """Whether these bytes include a segment's."""
        if segment.kind == UNDECIDED:
            is_whole = segment.base_offset >= self.sealed_end
            return is_whole and segment.end_offset <= self.undecided_end
        return segment.end_offset <= self.sealed_end


def retain(  # noqa: PLR0913  (what there is, and what is wanted)
    segments: Iterable[Segment],
    settings: TopicSettings,
    wall_ms: int,
    *,
    size: Size,
    log_start: int = 0,
    count_max: int = sys.maxsize,
) -> Retention:
    """Which of a partition's segments, given in order, to delete; at most this many.

    Kafka's rules: from the oldest on, a segment goes while its newest batch is older than
    `retention.ms`, or while what stays without it still has `retention.bytes`. Records without a
    time count from when they were sealed. A segment below the log start always goes. `size` is
    needed for `retention.bytes` only. Stops at the first segment that stays.
    """
    left = size.bytes
    deleted: list[Segment] = []
    for segment in segments:
        if len(deleted) == count_max:
            return Retention(log_start, deleted, all_go=False, has_more=True)
        is_counted = size.counts(segment)
        left -= segment.bytes if is_counted else 0
        too_much = is_counted and 0 <= settings.retention_bytes <= left
        if not (segment.end_offset <= log_start or too_much or _is_old(segment, settings, wall_ms)):
            return Retention(log_start, deleted, all_go=False)
        deleted.append(segment)
        log_start = max(log_start, segment.end_offset)
    return Retention(log_start, deleted, all_go=True)


def is_overdue(partition: PartitionState, settings: TopicSettings, now_ms: int) -> bool:
    """Whether retention may have to delete unsealed records, which should be sealed by now."""
    too_late = 0 <= settings.retention_ms < now_ms - partition.oldest_ms
    too_much = 0 <= settings.retention_bytes < partition.unsealed_bytes
    return partition.unsealed_bytes > 0 and (too_late or too_much)


def retain_unsealed(unsealed: UnsealedParts, settings: TopicSettings, wall_ms: int) -> int:
    """The offset below which unsealed records expire, by the rules of sealed ones; 0: none.

    Records without a time stay: their arrival time is unknown. So does what lies under an open
    transaction: it counts in the size, and goes once it is decided.
    """
    end_offset, left = 0, unsealed.bytes
    for part in unsealed.parts:
        left -= part.bytes
        too_much = 0 <= settings.retention_bytes <= left
        too_old = part.newest_ms >= 0 and 0 <= settings.retention_ms < wall_ms - part.newest_ms
        if part.end_offset > unsealed.stable_end or not (too_much or too_old):
            break
        end_offset = part.end_offset
    return end_offset


def _is_old(segment: Segment, settings: TopicSettings, wall_ms: int) -> bool:
    return 0 <= settings.retention_ms < wall_ms - segment.newest_ms
