"""Decides which segments of a partition to compact now. No IO; the time is an argument.

    compacted before          not yet                          too young
    +---------+-----+-----+   +--------+--------+--------+     +--------+
    |         |     |     |   |        |        |        |     |        |
    +---------+-----+-----+   +--------+--------+--------+     +--------+
                              keys are remembered, then all to the left is written again

A segment counts as a whole, as in Kafka (LogCleanerManager): compaction is due when more than
`min.cleanable.dirty.ratio` of the bytes is dirty, or a dirty record is older than
`max.compaction.lag.ms`. A segment with a record younger than `min.compaction.lag.ms` waits, and so
do those after it. A raw segment stays as it is, and counts as compacted.
"""

from collections.abc import Iterable, Sequence

from smq.model.segments import Segment
from smq.model.topic_settings import TopicSettings

PPM = 1_000_000


def is_dirty(segment: Segment) -> bool:
    """Whether a segment still needs compaction."""
    return segment.kind == "parquet" and not segment.compacted_ms


def to_compact(segments: Sequence[Segment], settings: TopicSettings, wall_ms: int) -> list[Segment]:
    """The dirty segments to compact now, in order, or none. `segments` are all."""
    dirty = list(_old_enough(segments, settings, wall_ms))
    if not dirty:
        return []
    dirty_bytes = sum(each.bytes for each in dirty)
    behind = dirty[-1].base_offset
    clean_bytes = sum(
        each.bytes for each in segments if each.base_offset < behind and not is_dirty(each)
    )
    is_much = dirty_bytes * PPM > settings.dirty_min_ppm * (clean_bytes + dirty_bytes)
    is_old = wall_ms - dirty[0].oldest_ms > settings.compaction_lag_max_ms
    return dirty if is_much or is_old else []


def _old_enough(
    segments: Iterable[Segment], settings: TopicSettings, wall_ms: int
) -> Iterable[Segment]:
    for segment in segments:
        if not is_dirty(segment):
            continue
        # Without a lag no time counts, as in Kafka: a clock that was set back would stop all.
        if 0 < settings.compaction_lag_min_ms > wall_ms - segment.newest_ms:
            return
        yield segment


def may_drop_tombstones(
    segment: Segment, segments: Sequence[Segment], settings: TopicSettings, now_ms: int
) -> bool:
    """Whether a segment's tombstones may be dropped.

    `segments` are all. A tombstone stays for `delete.retention.ms` after all older records of its
    key have gone, so that a reader that continues from there sees it, and as long as a raw segment
    before it may contain the key.
    """
    if not segment.compacted_ms or now_ms - segment.compacted_ms < settings.tombstone_ms:
        return False
    return not any(
        each.kind != "parquet" and each.base_offset < segment.base_offset for each in segments
    )
