"""Decides which small segments of a partition become one. No IO.

A slow partition produces a small file at each seal: 144 a day. Files are merged in runs of
neighbours, oldest first. A run ends where the next file does not fit: it is of another kind,
differs in being compacted, is too large, or would make the run too long in time or bytes for
retention, which deletes whole files, or for the topic's `segment.ms` and `segment.bytes`.

    a run that has ended    becomes one file
    the newest run          its newest files are merged like the levels of an LSM tree: RUN_MIN of
                            them, and each older one that is not much larger than all after it

So a record is rewritten a few times, not with each new file, and few files are left.
"""

from collections.abc import Iterable, Iterator

from smq.model.segments import Segment
from smq.model.topic_settings import TopicSettings

MiB = 1024 * 1024
SMALL_BYTES = 64 * MiB  # Files of this size stay as they are.
MERGED_BYTES_MAX = 128 * MiB  # Per run; no more than a segment that is sealed at once.
MERGED_RECORDS_MAX = 8_000_000  # Likewise: the records whose keys one pass of compaction remembers.
SPAN_MS_MAX = 7 * 24 * 3600 * 1000  # Per run, from its first commit to its last.
RETENTION_SHARE = 4  # A run may delay retention by this fraction of it at most.
RUN_MIN = 4  # Files of the newest run that are merged at once, at least.
LARGER = 2  # An older file joins when it has at most this many times the bytes of all after it.
COUNT_MAX = 200  # Files that are merged at once.
OFFSETS_MAX = 1 << 31  # Per run, as many as a batch spans: what is read of a gap is one batch.


def to_merge(
    segments: Iterable[Segment], settings: TopicSettings, run_min: int = RUN_MIN
) -> list[Segment]:
    """The first neighbours to merge, or none. `segments` are in order; merge at least this many of
    the newest run."""
    before: list[Segment] = []
    for run in _runs(segments, settings):
        if len(before) > 1:
            return before[:COUNT_MAX]
        before = run
    return _newest(before, run_min)[:COUNT_MAX]


def _runs(segments: Iterable[Segment], settings: TopicSettings) -> Iterator[list[Segment]]:
    """Neighbours that may become one file, in order; the last run is the newest."""
    run: list[Segment] = []
    for segment in segments:
        if run and not _fits(run, segment, settings):
            yield run
            run = []
        run.append(segment)
    yield run


def _fits(run: list[Segment], segment: Segment, settings: TopicSettings) -> bool:
    size, records = sum(each.bytes for each in run), sum(each.record_count for each in run)
    bytes_max = min(MERGED_BYTES_MAX, settings.segment_bytes)
    span_ms = min(SPAN_MS_MAX, settings.segment_ms)
    if settings.retention_ms >= 0:
        span_ms = min(span_ms, settings.retention_ms // RETENTION_SHARE)
    if settings.retention_bytes >= 0:
        bytes_max = min(bytes_max, settings.retention_bytes // RETENTION_SHARE)
    return (
        run[0].kind == segment.kind
        and bool(run[0].compacted_ms) == bool(segment.compacted_ms)
        and run[-1].end_offset == segment.base_offset
        and run[0].bytes < SMALL_BYTES
        and segment.bytes < SMALL_BYTES
        and size + segment.bytes <= bytes_max
        and records + segment.record_count <= MERGED_RECORDS_MAX
        and segment.end_offset - run[0].base_offset <= OFFSETS_MAX
        and segment.newest_ms - run[0].oldest_ms <= span_ms
    )


def _newest(run: list[Segment], run_min: int) -> list[Segment]:
    """The newest files of a run to merge, or none."""
    size, first = 0, len(run)
    for place in range(len(run) - 1, -1, -1):
        if place < len(run) - 1 and run[place].bytes > LARGER * size:
            break
        size, first = size + run[place].bytes, place
    return run[first:] if len(run) - first >= run_min else []
