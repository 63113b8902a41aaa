"""Decides which parts of which segments a read of a topic needs. The manifest is an argument.

Offsets are per partition, ends exclusive, as in Spark's Kafka source. A range that cannot be read
completely is an error that names it: a reader never silently gets less than it requested.
"""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Literal, NamedTuple, Protocol

from smq.model.catalog import NAMESPACE_DEFAULT, Topic
from smq.model.segments import Segment
from smq.store.manifest import Lines, walk

Starting = Literal["earliest"] | Mapping[int, int]
Ending = Literal["latest"] | Mapping[int, int]


class Unreadable(Exception):
    """Requested records cannot be read; the message names them."""


class PlanManifest(Lines, Protocol):
    """The part of `smq.store.manifest.Manifest` that planning needs."""

    def topics(self) -> list[Topic]: ...
    def log_start(self, partition_number: int) -> int: ...


class SegmentPart(NamedTuple):
    """The records [start, end) of a partition that lie in one segment."""

    partition: int
    segment: Segment
    start: int
    end: int

    @property
    def is_cut(self) -> bool:
        """Whether the segment also has other records."""
        return (self.start, self.end) != (self.segment.base_offset, self.segment.end_offset)


def find_topic(manifest: PlanManifest, name: str) -> Topic:
    """The topic of this name. Raises Unreadable."""
    for topic in manifest.topics():
        if (topic.namespace, topic.name) == (NAMESPACE_DEFAULT, name):
            return topic
    raise Unreadable(f"there is no topic {name}")


def plan(
    manifest: PlanManifest, topic: Topic, starting: Starting, ending: Ending
) -> list[SegmentPart]:
    """The parts to read, in order. Raises Unreadable."""
    for bounds in (starting, ending):
        if not isinstance(bounds, str):
            _check_partitions(topic, bounds)
    starts = {} if isinstance(starting, str) else starting
    ends = {} if isinstance(ending, str) else ending
    parts: list[SegmentPart] = []
    for partition, number in enumerate(topic.partition_numbers):
        log_start = manifest.log_start(number)
        segments = manifest.segments(number, log_start)
        name = f"partition {partition} of {topic.name}"
        start, end = _range(name, segments, log_start, starts.get(partition), ends.get(partition))
        parts += _parts(name, partition, segments, start, end)
    return parts


def between(
    manifest: PlanManifest, topic: Topic, partition: int, start: int, end: int
) -> list[SegmentPart]:
    """The parts of a partition from `start` to `end`; reads no other lines of the manifest.

    Raises Unreadable if the segments do not have all of these offsets.
    """
    number, name = topic.partition_numbers[partition], f"partition {partition} of {topic.name}"
    found = takewhile(lambda each: each.base_offset < end, walk(manifest, number, start))
    parts = _parts(name, partition, list(found), start, end)
    place = parts[-1].end if parts else start
    if place < end:
        raise Unreadable(f"{name}: no segment has offsets {place} to {end - 1}")
    return parts


def _check_partitions(topic: Topic, bounds: Mapping[int, int]) -> None:
    unknown = sorted(set(bounds) - set(range(topic.partition_count)))
    if unknown:
        raise Unreadable(f"{topic.name} has no partition {unknown[0]}")


def _range(
    name: str, segments: Sequence[Segment], log_start: int, start: int | None, end: int | None
) -> tuple[int, int]:
    """The offsets to read, within what is sealed."""
    first = max(log_start, segments[0].base_offset) if segments else log_start
    last = segments[-1].end_offset if segments else log_start
    start = first if start is None else start
    end = last if end is None else end
    if start > end:
        raise Unreadable(f"{name}: it starts at offset {start}, after its end {end}")
    if start < log_start:
        raise Unreadable(f"{name}: offsets {start} to {log_start - 1} were deleted by retention")
    if end > last:
        raise Unreadable(f"{name}: offsets up to {end} were asked for, {last} are sealed")
    return start, end


def _parts(
    name: str, partition: int, segments: Sequence[Segment], start: int, end: int
) -> list[SegmentPart]:
    parts, place = [], start
    for segment in segments:
        if place >= end:
            break
        if segment.end_offset <= place:
            continue
        if segment.base_offset > place:
            raise Unreadable(f"{name}: no segment has offsets {place} to {segment.base_offset - 1}")
        # Merged segments may have replaced neighbours since those before were found: from `place`.
        first, place = place, min(segment.end_offset, end)
        parts.append(SegmentPart(partition, segment, max(segment.base_offset, first), place))
    return parts
