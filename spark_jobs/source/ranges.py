"""Decides which offsets a read or a stream's batch covers, and how tasks share them. No IO.

Offsets are per partition, ends exclusive.
"""

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from smq.client.names import TopicPartition
from smq.tables.plan import Unreadable
from spark_jobs.source.options import EARLIEST, LATEST, BatchAdmission, WrongOption
from spark_jobs.source.topics import Offsets, Piece

logger = logging.getLogger(__name__)

MiB = 1024 * 1024
TASK_BYTES = 32 * MiB  # Of sealed files: a task has overhead, and one per segment would be ruinous.
RECORD_BYTES = 100  # The assumed size of an unsealed record.

IDS = ""  # No topic has this name.

Lost = Callable[[str], None]
"""Told of records that are gone; raises if the query must fail then."""


class Edges(NamedTuple):
    """The first offset and the end of each partition to read."""

    starts: Offsets
    ends: Offsets


def named_offsets(option: str, wanted: Mapping[TopicPartition, int], edges: Edges) -> Offsets:
    """Offsets that an option gives for exactly the partitions to read; resolves -2 and -1.

    Raises WrongOption.
    """
    if wanted.keys() != edges.starts.keys():
        raise WrongOption(
            f"If {option} contains specific offsets, you must specify all TopicPartitions. "
            "Use -1 for latest, -2 for earliest. "
            f"Specified: {_listed(wanted)} Assigned: {_listed(edges.starts)}"
        )
    places = {EARLIEST: edges.starts, LATEST: edges.ends}
    return {
        name: places[offset][name] if offset in places else offset
        for name, offset in wanted.items()
    }


def clamped(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    edges: Edges,
    lost: Lost,
) -> dict[TopicPartition, tuple[int, int]]:
    """The readable ranges, sorted by partition; reports the rest to `lost`."""
    found: dict[TopicPartition, tuple[int, int]] = {}
    for name in sorted(ends):
        start, end = starts[name], ends[name]
        first, last = edges.starts[name], edges.ends[name]
        if start < first:
            lost(_changed(name, start, first))
        if end < start:
            lost(_changed(name, start, end))
        if end > last:
            lost(
                f"Partition {_said(name)} ends at offset {last}, before {end}, which was asked for"
            )
        start, end = max(start, first), min(end, last)
        if start < end:
            found[name] = start, end
    return found


def admitted(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], limit: int
) -> Offsets:
    """Ends that admit about `limit` records, in proportion to each partition's backlog.

    The rule of Spark's Kafka source: each share is rounded down, but up if it is below one.
    """
    sizes = {name: max(0, end - starts[name]) for name, end in ends.items()}
    total = sum(sizes.values())
    if total <= limit:
        return dict(ends)
    return {
        name: starts[name] + max(1, limit * size // total) if size else ends[name]
        for name, size in sizes.items()
    }


def must_wait(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    admission: BatchAdmission,
    waited_ms: float | None,
) -> bool:
    """Whether a batch waits for more records. `waited_ms`: since the last one; None: the first."""
    if admission.offsets_min is None or waited_ms is None:
        return False
    count = sum(max(0, end - starts[name]) for name, end in ends.items())
    return count < admission.offsets_min and waited_ms < admission.delay_ms_max


def tasks(
    pieces: Iterable[Piece], partitions_min: int | None, records_max: int | None
) -> list[list[Piece]]:
    """Assign pieces to tasks: in order, split and packed to about TASK_BYTES.

    partitions_min  the approximate minimum number of tasks, if there is work for each
    records_max     the maximum number of records per task
    """
    whole = list(pieces)
    size = min(TASK_BYTES, math.ceil(sum(map(_bytes_of, whole)) / (partitions_min or 1)))
    found: list[list[Piece]] = []
    room_bytes = room_records = 0.0
    for piece in _split(whole, size, records_max):
        records = piece.end - piece.start
        if not found or _bytes_of(piece) > room_bytes or records > room_records:
            found.append([])
            room_bytes, room_records = 1.1 * size, records_max or math.inf
        found[-1].append(piece)
        room_bytes -= _bytes_of(piece)
        room_records -= records
    return found


def _split(pieces: Iterable[Piece], size: int, records_max: int | None) -> Iterable[Piece]:
    for piece in pieces:
        records = piece.end - piece.start
        count = max(1, round(_bytes_of(piece) / max(size, 1)))
        if records_max is not None:
            count = max(count, math.ceil(records / records_max))
        count = min(count, records)
        cuts = [piece.start + records * each // count for each in range(count + 1)]
        for start, end in pairwise(cuts):
            yield piece._replace(start=start, end=end)


def native_bytes(pieces: Iterable[Piece]) -> float:
    """The approximate bytes of pieces that are in Parquet files."""
    parquet = [each for each in pieces if each.part and each.part.segment.kind == "parquet"]
    return sum(map(_bytes_of, parquet))


def _bytes_of(piece: Piece) -> float:
    """The approximate cost of reading a piece."""
    records = piece.end - piece.start
    if piece.part is None:
        return records * RECORD_BYTES
    segment = piece.part.segment
    return segment.bytes * records / (segment.end_offset - segment.base_offset)


def to_json(
    offsets: Mapping[TopicPartition, int], ids: Mapping[str, str] | None = None
) -> dict[str, dict[str, Any]]:
    """Offsets in the format of Spark's Kafka source, always in the same order.

    Spark compares offsets as text: another order would cause batches without records, for ever.
    With `ids`, the topics' ids are stored under IDS: a topic's offsets mean nothing in a successor.
    """
    found: dict[str, dict[str, Any]] = {IDS: dict(sorted(ids.items()))} if ids else {}
    for name in sorted(offsets):
        found.setdefault(name.topic, {})[str(name.partition)] = offsets[name]
    return found


def from_json(found: Mapping[str, Mapping[str, Any]]) -> Offsets:
    """Decode a checkpoint's offsets, SMQ's or those of Spark's Kafka source."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, offsets in found.items()
        if topic != IDS
        for partition, offset in offsets.items()
    }


def replaced(found: Mapping[str, Mapping[str, Any]], ids: Mapping[str, str]) -> set[str]:
    """The topics whose id has changed since these offsets were written."""
    before = found.get(IDS, {})
    return {topic for topic, each in ids.items() if before.get(topic, each) != each}


def losses(fails: bool) -> Lost:  # noqa: FBT001  (what failOnDataLoss says)
    """How to report lost records: raise Unreadable, or warn."""
    return _fail if fails else logger.warning


def _fail(sentence: str) -> None:
    raise Unreadable(
        f"{sentence}. Some data may have been lost because it is not available any more: it was "
        "deleted by retention, or the topic was deleted. To go on without it set the option "
        "failOnDataLoss to false"
    )


def _changed(name: TopicPartition, start: int, other: int) -> str:
    return (
        f"Partition {_said(name)}'s offset was changed from {start} to {other}, "
        "some data may have been missed"
    )


def _said(name: TopicPartition) -> str:
    return f"{name.topic}-{name.partition}"


def _listed(names: Iterable[TopicPartition]) -> str:
    return ", ".join(map(_said, sorted(names)))
