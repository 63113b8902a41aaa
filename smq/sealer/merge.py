"""Merges small segments of a partition into one.

    file synced  →  one line in place of several  →  the old files stay for filer.sweep.ms

A kill between any two steps is safe: a file without a line is swept, and so are the old files, once
no reader can still use their names. Rows stay in order and keep their offsets; consumers get the
same records, perhaps in other batches.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from shm.arrow import read_only
from shm.kernels.base.crc32c import crc32c
from smq.filer.store import Store
from smq.model.segments import SealedPartition, Segment
from smq.model.topic_settings import TopicSettings
from smq.sealer.cold import open_segment
from smq.sealer.merge_plan import RUN_MIN, to_merge
from smq.sealer.parquet_segment import ParquetSegment
from smq.sealer.ports import ManifestPort
from smq.sealer.raw import RawSegment, RawWriter
from smq.sealer.room import Room
from smq.sealer.seal import parquet_writer, put_file
from smq.store.manifest import walk
from smq.wire.codec import Buffer

# Of all columns of the files that become one: some ten seconds, whatever few bytes they take.
VALUES_MAX = 1 << 28


class _Opened(NamedTuple):
    """A line of the manifest and its file."""

    segment: Segment
    file: ParquetSegment | RawSegment

    @property
    def is_log_append(self) -> bool:
        """Whether the file says that its times are the broker's."""
        return isinstance(self.file, ParquetSegment) and self.file.is_log_append

    @property
    def value_count(self) -> int:
        return self.file.value_count if isinstance(self.file, ParquetSegment) else 0


class Merging(NamedTuple):
    """The job, and the ports it uses. `draw` is as for Sealing; `staging` takes copies of
    files that are not on this host. Files are built in the room."""

    store: Store
    manifest: ManifestPort
    draw: Callable[[], int]
    staging: Path | None = None
    run_min: int = RUN_MIN
    room: Room | None = None

    def merge(self, place: SealedPartition, settings: TopicSettings) -> int:
        """Merge the first neighbours that are due; returns how many became one, 0: none.

        Raises StoreError, Damaged.
        """
        log_start = self.manifest.log_start(place.number)
        found = to_merge(walk(self.manifest, place.number, log_start), settings, self.run_min)
        opened = [_Opened(each, open_segment(self.store, each, self.staging)) for each in found]
        for _, alike in groupby(opened, lambda each: each.is_log_append):
            for group in _affordable(alike):
                if len(group) > 1:
                    return len(group) if self._make_one(place, group, settings.schema) else 0
        return 0

    def _make_one(self, place: SealedPartition, group: list[_Opened], schema: str) -> bool:
        old = [each.segment for each in group]
        data, suffix, untyped_count = _merged(place, group, schema, self.room)
        bytes_, offsets = read_only(data), (old[0].base_offset, old[-1].end_offset)
        key_of = partial(place.key, *offsets, suffix=suffix)
        attempt, key = put_file(self.store, key_of, data, self.draw())
        new = Segment(
            partition_number=place.number,
            base_offset=offsets[0],
            end_offset=offsets[1],
            kind=old[0].kind,
            path=key,
            bytes=len(bytes_),
            crc32c=int(crc32c(bytes_, 0, len(bytes_))),
            record_count=sum(each.record_count for each in old),
            min_timestamp_ms=min(each.min_timestamp_ms for each in old),
            max_timestamp_ms=max(each.max_timestamp_ms for each in old),
            attempt=attempt,
            committed_ms=max(each.committed_ms for each in old),
            compacted_ms=max(each.compacted_ms for each in old),
            untyped_count=untyped_count,
            oldest_ms=min(each.oldest_ms for each in old),
            newest_ms=max(each.newest_ms for each in old),
        )
        # A failure leaves the outcome unknown: keep the file; an uncommitted one is swept.
        for some in self.manifest.payloads_of([each.path for each in old]):
            self.manifest.name_payloads(key, some)
        is_done = self.manifest.replace_segments(old, new)
        if not is_done:
            self.store.delete(key)
        return is_done


def _affordable(opened: Iterable[_Opened]) -> Iterator[list[_Opened]]:
    """Neighbours with at most VALUES_MAX values, or a single file."""
    found: list[_Opened] = []
    count = 0
    for each in opened:
        if found and count + each.value_count > VALUES_MAX:
            yield found
            found, count = [], 0
        found.append(each)
        count += each.value_count
    yield found


def _merged(
    place: SealedPartition, group: list[_Opened], schema: str, room: Room | None
) -> tuple[Buffer, str, int]:
    """The bytes of the new file, its suffix, and how many values do not fit the current schema."""
    offsets = group[0].segment.base_offset, group[-1].segment.end_offset
    if group[0].segment.kind == "raw":
        raw = RawWriter(room)
        for _, file in group:
            assert isinstance(file, RawSegment), "of one kind"
            raw.add_segment(file)
        return raw.finish(*offsets), "batches", 0
    writer = parquet_writer(place, log_append_time=group[0].is_log_append, schema=schema, room=room)
    for _, file in group:
        assert isinstance(file, ParquetSegment), "of one kind"
        writer.add_marks(file.epochs, file.control)
        for rows in file.tables():
            writer.add_rows(rows)
    return writer.finish(*offsets), "parquet", writer.untyped_count
