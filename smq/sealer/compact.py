"""Log compaction: keeps the last record of each key, at its offset.

    segments that were not compacted  →  their keys' last offsets, in a table of bounded size
    up to there  →  the shard reads segments, durably, and no more what its log still has of them
    each segment up to there, oldest first  →  a file without the records that have a later one
                                            →  its line in place of the old one

Kafka's algorithm (its Cleaner), on sealed segments. One step reads or writes one segment. If the
table cannot hold all keys, a pass ends at the last segment whose keys it has, and the next pass
continues there. A kill loses only the table: segments that a pass has written are compacted, and
the next pass begins with the others. This holds between any two steps:

    among the segments that are compacted no record has a later one of its key

because they are written in order. So a tombstone may be dropped once its segment has been compacted
for long enough: no record that it hides is left before it. As in Kafka, records without a key are
dropped too.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shm.arrow import read_only
from shm.kernels.base.crc32c import crc32c
from shm.kernels.record.last_of_key import SLOT_WORDS, find_last, note_keys
from smq.filer.store import Store
from smq.model.now import Now
from smq.model.references import HEADER, NotAHandle, Reference
from smq.model.segments import SealedPartition, Segment
from smq.model.topic_settings import TopicSettings
from smq.sealer.cold import open_segment
from smq.sealer.compact_plan import may_drop_tombstones, to_compact
from smq.sealer.parquet_segment import ParquetSegment
from smq.sealer.payloads import name_all
from smq.sealer.ports import ManifestPort, ShardPort
from smq.sealer.room import Room
from smq.sealer.seal import parquet_writer, put_file
from smq.store.manifest import walk

SLOTS_MAX = 1 << 24  # 24 bytes each. A segment with more keys gets a table of its own.
SLOTS_MIN = 1 << 10
FILL_PERCENT = 70


class KeyTable:
    """The last offset of each key. Its size fits `records`, within bounds.

    `secret`: 16 bytes that no client knows.
    """

    def __init__(
        self, records: int, first_records: int, secret: bytes, slots_max: int = SLOTS_MAX
    ) -> None:
        slots = SLOTS_MIN
        wanted = max(min(records, slots_max * FILL_PERCENT // 100), first_records)
        while slots * FILL_PERCENT // 100 < wanted:
            slots *= 2
        self._table = np.zeros((slots, SLOT_WORDS), np.uint64)
        self._secret = np.frombuffer(secret, np.uint64)
        self.keys, self._room = 0, slots * FILL_PERCENT // 100

    def has_room(self, records: int) -> bool:
        """Whether this many records fit, whatever keys they have."""
        return self.keys + records <= self._room

    def note(self, rows: pa.Table) -> None:
        """Remember rows with the columns _offset and _key."""
        self.keys += note_keys(self._table, self._secret, *_places(rows))

    def last(self, rows: pa.Table) -> np.ndarray:
        """Which of these rows are the last of their key."""
        out = np.empty(rows.num_rows, np.bool_)
        find_last(self._table, self._secret, *_places(rows), out)
        return out


def _places(rows: pa.Table) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The bytes of keys, where each begins and how long it is (-1: null), and the offsets."""
    keys = rows["_key"].combine_chunks()
    _, offsets_buffer, data = keys.buffers()
    ends = np.frombuffer(offsets_buffer or b"", np.int32)[keys.offset :][: len(keys) + 1]
    lengths = np.diff(ends).astype(np.int64) if len(keys) else np.zeros(0, np.int64)
    lengths[keys.is_null().to_numpy(zero_copy_only=False)] = -1
    bytes_ = read_only(data) if data is not None and data.size else read_only(b"")
    return bytes_, ends[: len(keys)].astype(np.int64), lengths, rows["_offset"].to_numpy()


class Ports(NamedTuple):
    """What compaction uses. `now` reads both clocks, `draw` as for Sealing; `secret` is of tables
    of keys; `staging` takes copies of files that are not on this host."""

    store: Store
    shard: ShardPort
    manifest: ManifestPort
    now: Callable[[], Now]
    draw: Callable[[], int]
    secret: bytes
    staging: Path | None = None
    slots_max: int = SLOTS_MAX
    room: Room | None = None
    """Where files are built."""


class Compaction:
    """One partition's compaction, step by step. Raises StoreError, Damaged: then start over."""

    def __init__(self, ports: Ports, place: SealedPartition, settings: TopicSettings) -> None:
        self.subject = self.place, self.settings = place, settings
        self._ports = ports
        self._steps = self._pass()

    def step(self) -> bool:
        """Read or write one segment; returns whether there is more to do."""
        return next(self._steps, False)

    def _pass(self) -> Iterator[bool]:
        now = self._ports.now()
        log_start = self._ports.manifest.log_start(self.place.number)
        segments = list(walk(self._ports.manifest, self.place.number, log_start))
        dirty = deque(to_compact(segments, self.settings, now.wall_ms))
        if not dirty:
            return
        records = sum(each.record_count for each in dirty)
        table = KeyTable(records, dirty[0].record_count, self._ports.secret, self._ports.slots_max)
        end = dirty[0].base_offset
        while dirty and table.has_room(dirty[0].record_count):
            end = dirty[0].end_offset
            for rows in _rows_of(dirty[0], self._opened(dirty[0]), "_offset", "_key"):
                table.note(rows)
            dirty.popleft()
            yield True
        # Before the first record goes: a log that is restarted in between must not show it again.
        self._ports.manifest.sync()
        self._ports.shard.compacted(self.place.number, end)
        for segment in segments:
            if segment.kind == "parquet" and segment.end_offset <= end:
                drops = may_drop_tombstones(segment, segments, self.settings, now.monotonic_ms)
                self._compact(segment, table, drops=drops, is_last=segment is segments[-1])
                yield True

    def _opened(self, segment: Segment) -> ParquetSegment:
        opened = open_segment(self._ports.store, segment, self._ports.staging)
        assert isinstance(opened, ParquetSegment), "others are not read"
        return opened

    def _compact(self, segment: Segment, table: KeyTable, *, drops: bool, is_last: bool) -> None:
        """Write a segment's remaining records, unless it is compacted already and all remain.

        `drops`: drop tombstones. A reader waits for the record before the end: the last record of
        the last segment always stays.
        """
        opened = self._opened(segment)
        names = ["_offset", "_key", "_value"] if drops else ["_offset", "_key"]
        parts = [np.zeros(0, np.bool_)]
        for rows in _rows_of(segment, opened, *names):
            parts.append(table.last(rows))
            if drops:
                parts[-1] &= pc.is_valid(rows["_value"]).to_numpy()
        kept = np.concatenate(parts)
        kept[len(kept) - is_last :] = True
        if segment.compacted_ms and kept.all():
            return
        self._replace(segment, opened, kept)

    def _replace(self, old: Segment, opened: ParquetSegment, kept: np.ndarray) -> None:
        """`kept` says of each row whether it stays."""
        ports, offsets = self._ports, (old.base_offset, old.end_offset)
        times: list[int] = []
        payloads: set[str] = set()
        writer = parquet_writer(
            self.place,
            log_append_time=opened.is_log_append,
            schema=self.settings.schema,
            room=ports.room,
        )
        writer.add_marks(opened.epochs, opened.control)
        row = 0
        for rows in opened.tables():
            left = rows.filter(pa.array(kept[row : row + rows.num_rows]))
            row += rows.num_rows
            writer.add_rows(left)
            times += _ends(left)
            payloads.update(_payloads_in(left))
        # `kept` is of another reading of the segment. If rows differ, the wrong ones are dropped.
        assert row == len(kept)
        data = writer.finish(*offsets)
        bytes_, now_ms = read_only(data), ports.now().monotonic_ms
        key_of = partial(self.place.key, *offsets, suffix="parquet")
        attempt, key = put_file(ports.store, key_of, data, ports.draw())
        new = Segment(
            partition_number=old.partition_number,
            base_offset=old.base_offset,
            end_offset=old.end_offset,
            kind=old.kind,
            path=key,
            bytes=len(bytes_),
            crc32c=int(crc32c(bytes_, 0, len(bytes_))),
            record_count=int(kept.sum()),
            min_timestamp_ms=min(times, default=old.min_timestamp_ms),
            max_timestamp_ms=max(times, default=old.max_timestamp_ms),
            attempt=attempt,
            committed_ms=old.committed_ms,
            compacted_ms=old.compacted_ms or now_ms,
            untyped_count=writer.untyped_count,
            oldest_ms=old.oldest_ms,
            newest_ms=old.newest_ms,
        )
        # A failure leaves the outcome unknown: keep the file; an uncommitted one is swept.
        name_all(ports.manifest, key, payloads)
        if not ports.manifest.replace_segments([old], new):
            ports.store.delete(key)


def _rows_of(segment: Segment, opened: ParquetSegment, *names: str) -> Iterator[pa.Table]:
    """Columns of all rows of a segment, by row group."""
    return opened.rows(segment.base_offset, segment.end_offset, names)


def _ends(rows: pa.Table) -> list[int]:
    """The smallest and the largest time of rows, if there are any."""
    times = rows["_ts_ms"].to_numpy()
    return [int(times.min()), int(times.max())] if len(times) else []


def _payloads_in(rows: pa.Table) -> Iterator[str]:
    """The ids of the payloads that rows refer to."""
    headers = rows["_headers"].combine_chunks()
    is_named = pc.equal(pc.struct_field(pc.list_flatten(headers), "key"), HEADER)
    named = pc.unique(pc.filter(pc.list_parent_indices(headers), is_named))
    for value in rows["_value"].take(named):
        with suppress(NotAHandle):
            yield Reference.of_handle(value.as_py()).id
