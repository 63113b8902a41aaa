"""Log compaction: keeps the last record of each key, at its offset.

    segments that were not compacted  →  their keys' last offsets, in a table of bounded size
    up to there  →  the shard reads segments, durably, and no more what its log still has of them
    each segment up to there, oldest first  →  a file without the records that have a later one
                                            →  its line in place of the old one

Kafka's algorithm (its Cleaner), on sealed segments. One step reads or writes one segment. If the
table cannot hold all keys, a pass ends at the last segment whose keys it has, and the next pass
continues there. The table, and how far the pass has come, are in memory that outlives the worker:
the next one continues the pass. Without it the next pass begins with what is not compacted yet.
This holds between any two steps:

    among the segments that are compacted no record has a later one of its key

because they are written in order. So a tombstone may be dropped once its segment has been compacted
for long enough: no record that it hides is left before it. As in Kafka, records without a key are
dropped too.
"""

import json
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shm.arrow import read_only
from shm.kernels.base.crc32c import crc32c
from smq.filer.store import Store
from smq.model.now import Now
from smq.model.references import HEADER, NotAHandle, Reference
from smq.model.segments import SealedPartition, Segment
from smq.model.topic_settings import TopicSettings
from smq.sealer.cold import open_segment
from smq.sealer.compact_plan import may_drop_tombstones, to_compact
from smq.sealer.key_table import SLOTS_MAX, KeyTable, OwnMemory, PassMemory, slots_for
from smq.sealer.parquet_segment import ParquetSegment
from smq.sealer.payloads import name_all
from smq.sealer.ports import ManifestPort, ShardPort
from smq.sealer.room import Room
from smq.sealer.seal import parquet_writer, put_file
from smq.store.manifest import walk


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
    memory: PassMemory | None = None
    """Where a pass goes on after the end of its worker."""


class _Place(NamedTuple):
    """How far a pass has come: the keys of all below `noted_end` are in the table, and what is
    below `written_end` is written again, once `has_noted`. `subject` names what the pass is of."""

    subject: str
    secret: str
    slots: int
    monotonic_ms: int
    wall_ms: int
    noted_end: int
    has_noted: bool = False
    written_end: int = 0


class Compaction:
    """One partition's compaction, step by step. Raises StoreError, Damaged: then start over."""

    def __init__(self, ports: Ports, place: SealedPartition, settings: TopicSettings) -> None:
        self.subject = self.place, self.settings = place, settings
        self._ports = ports
        self._memory = ports.memory or OwnMemory()
        self._steps = self._pass()

    def step(self) -> bool:
        """Read or write one segment; returns whether there is more to do."""
        try:
            return next(self._steps, False)
        except Exception:
            self._memory.clear()
            raise

    def may_go_on(self) -> bool:
        """Whether the memory still has this pass, once it is begun: nobody else has cleared it."""
        return self._left_at() is not None

    def _pass(self) -> Iterator[bool]:
        manifest, number = self._ports.manifest, self.place.number
        segments = list(walk(manifest, number, manifest.log_start(number)))
        left_at = self._left_at()
        at = left_at or self._begun(segments)
        if at is None:
            return
        words, secret = self._memory.table(at.slots), bytes.fromhex(at.secret)
        table = KeyTable(words, secret, is_empty=left_at is None)
        dirty = deque(
            each
            for each in to_compact(segments, self.settings, at.wall_ms)
            if each.base_offset >= at.noted_end
        )
        while not at.has_noted and dirty and table.has_room(dirty[0].record_count):
            for rows in _rows_of(dirty[0], self._opened(dirty[0]), "_offset", "_key"):
                table.note(rows)
            at = self._note(at._replace(noted_end=dirty.popleft().end_offset))
            yield True
        # Before the first record goes: a log that is restarted in between must not show it again.
        manifest.sync()
        self._ports.shard.compacted(number, at.noted_end)
        at = self._note(at._replace(has_noted=True))
        for segment in segments:
            is_written = segment.end_offset <= at.written_end
            if segment.kind == "parquet" and segment.end_offset <= at.noted_end and not is_written:
                drops = may_drop_tombstones(segment, segments, self.settings, at.monotonic_ms)
                self._compact(segment, table, drops=drops, is_last=segment is segments[-1])
                at = self._note(at._replace(written_end=segment.end_offset))
                yield True
        self._memory.clear()

    def _begun(self, segments: list[Segment]) -> _Place | None:
        """The beginning of a pass, with an empty table, if one is due."""
        now = self._ports.now()
        dirty = to_compact(segments, self.settings, now.wall_ms)
        if not dirty:
            return None
        records = sum(each.record_count for each in dirty)
        slots = slots_for(records, dirty[0].record_count, self._ports.slots_max)
        self._memory.begin(slots)
        return self._note(
            _Place(_name(self.subject), self._ports.secret.hex(), slots, *now, dirty[0].base_offset)
        )

    def _left_at(self) -> _Place | None:
        """Where a worker before this one has left a pass of the same subject."""
        noted = self._memory.place()
        at = _Place(*json.loads(noted)) if noted else None
        return at if at is not None and at.subject == _name(self.subject) else None

    def _note(self, at: _Place) -> _Place:
        self._memory.note(json.dumps(at).encode())
        return at

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


def _name(subject: object) -> str:
    """A short name of what a pass is of."""
    return sha256(repr(subject).encode()).hexdigest()


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
