"""Cold reads: record batches, and offsets by time, from sealed segments.

A shard asks for a partition's batches from an offset and gets a range of a file in the cache
directory, which it sends like its log. The unit of the cache is a row group: it is decoded once and
serves the requests that follow. The cache is bounded; no file goes before the shard has had time to
open it. Opening a segment checks it against the manifest; a
segment that differs is reported by name and never served.

For a sequential reader the next row group is decoded ahead, while no request waits.
"""

import errno
import os
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from mmap import MADV_DONTNEED, PROT_READ, mmap
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from shm.arrow import read_only
from shm.kernels.base.crc32c import crc32c_update
from smq.filer.store import Store
from smq.model.errors import NotFound, StoreError, Unavailable
from smq.model.segments import (
    ANY_REACH,
    ANY_SIZE,
    NO_LIMIT,
    UNDECIDED,
    BatchLimits,
    Segment,
    SegmentReach,
)
from smq.sealer.parquet_segment import ParquetSegment, Span
from smq.sealer.raw import NotRaw, RawSegment
from smq.store.manifest import Lines, walk
from smq.wire.codec import Buffer
from smq.wire.records import CRC_START

SEGMENTS_OPEN_MAX = (
    8  # Without a local filer each takes a file in the cache directory, beside its bound.
)
FOLLOWED_MAX = 256  # Partitions whose last answer is remembered, to recognize sequential readers.
CACHE_KEEP_MS = 10_000  # Minimum time that a file stays after a shard was told of it.
ONCE_BYTES_MAX = 128 * 1024 * 1024  # Files requested once.
ONCE_KEEP_MS = 2000  # Its minimum time too: a repeated request in that time makes the file stay.
NO_FILE = Path()
MADV_PAGEOUT = 21  # From <linux/mman.h>; the module mmap does not have it.
CHECKED_BYTES = 16 * 1024 * 1024  # Of a file, between two times that its pages are given back.
GONE_MAX = 256  # Names of evicted files, to recognize repeated requests.

Key = tuple[str, int]


class Damaged(StoreError):
    """A segment's file does not match the manifest."""


class ColdManifest(Lines, Protocol):
    """The part of the manifest that cold reads need."""

    def log_start(self, partition_number: int) -> int: ...

    def sealed_end(self, partition_number: int) -> int: ...

    def undecided(
        self, partition_number: int, from_offset: int = 0, count_max: int = -1
    ) -> list[Segment]: ...


class BatchRange(NamedTuple):
    """Whole batches: `length` bytes at `at` of a file. The next batch begins at `next_offset`.

    `is_cached`: the file existed before this request. Without length and path: no segment has a
    record up to `next_offset`. `is_undecided`: batches as they were sent (smq.sealer.undecided).
    """

    path: Path
    at: int
    length: int
    next_offset: int
    is_cached: bool = False
    is_undecided: bool = False


class _Part(NamedTuple):
    """A cached part of a segment, and the offset where it ends."""

    batches: "CachedBatches"
    end: int
    is_cached: bool


class CachedBatches(NamedTuple):
    """A cached file of batches, and their places (`smq.sealer.read_back.PLACE`)."""

    path: Path
    places: np.ndarray
    length: int

    def find(
        self, offset: int, bytes_max: int, reach: SegmentReach = ANY_REACH
    ) -> BatchRange | None:
        """As many batches as fit, at least one, within reach; the first has a record at `offset`
        or later."""
        ends, last_offsets = self.places["end"], self.places["last_offset"]
        first = int(np.searchsorted(self.places["last_record"], offset))
        last, told = (np.searchsorted(last_offsets, reach) - 1).tolist()
        if first > last:
            return None
        at = int(self.places["at"][first])
        row = max(first, int(np.searchsorted(ends, at + bytes_max, "right")) - 1)
        row = max(first, min(row, last, told))
        return BatchRange(self.path, at, int(ends[row]) - at, int(last_offsets[row]) + 1)


class _Queue:
    """Cached files in the order of their last use, bounded in bytes.

    A file that a shard was told of in the last `keep_ms` stays even beyond the bound.
    """

    def __init__(self, bytes_max: int, keep_ms: int) -> None:
        self._bytes_max, self._keep_ms = bytes_max, keep_ms
        self._held: OrderedDict[Key, tuple[CachedBatches, int]] = OrderedDict()
        self._bytes = 0

    def get(self, key: Key, now_ms: int) -> CachedBatches | None:
        held = self._held.get(key)
        if held is None:
            return None
        self._held[key] = held[0], now_ms
        self._held.move_to_end(key)
        return held[0]

    def put(self, key: Key, batches: CachedBatches, now_ms: int) -> list[Key]:
        """Add a file; returns the keys of those evicted for it."""
        self._held[key] = batches, now_ms
        self._bytes += batches.length
        gone: list[Key] = []
        while self._bytes > self._bytes_max:
            oldest, (old, used_ms) = next(iter(self._held.items()))
            if used_ms >= now_ms - self._keep_ms:
                break
            old.path.unlink(missing_ok=True)
            self._bytes -= old.length
            del self._held[oldest]
            gone.append(oldest)
        return gone


class Cache:
    """Files of batches in a private directory, bounded in bytes.

    A shard opens a file again long after it was told of it, when this cache may be gone and its
    successor is at work in the same directory. So a name never comes again: `life` is random.

    Two queues, after 2Q (Johnson and Shasha, VLDB 1994). A first request's result goes
    soon: the files of a backlog that is read once are deleted before the system writes them to the
    disk. A result that is requested again after that is kept for long.

    What the disk has no space for goes to the directory `spare`, if there is one: what is sealed
    can be read while the disk is full.
    """

    def __init__(
        self,
        directory: Path,
        bytes_max: int,
        now_ms: Callable[[], int],
        life: str,
        spare: Path | None = None,
    ) -> None:
        self.directory, self._spare, self._now_ms, self._life = directory, spare, now_ms, life
        for each in (directory, spare):
            if each is not None and each.exists():
                for left_behind in each.iterdir():
                    left_behind.unlink()
        self._once = _Queue(min(bytes_max, ONCE_BYTES_MAX), ONCE_KEEP_MS)
        self._again = _Queue(bytes_max, CACHE_KEEP_MS)
        self._gone: OrderedDict[Key, None] = OrderedDict()
        self._next_name = 0

    def get(self, key: Key) -> CachedBatches | None:
        """The file under a key, or None; a found file stays some time from now."""
        now_ms = self._now_ms()
        return self._once.get(key, now_ms) or self._again.get(key, now_ms)

    def put(self, key: Key, pieces: Iterable[Buffer], index: np.ndarray) -> CachedBatches:
        """Store batches, in any pieces, under a key that it does not have."""
        entry = self._written(list(pieces), index)
        if key in self._gone:
            del self._gone[key]
            self._again.put(key, entry, self._now_ms())
            return entry
        for gone in self._once.put(key, entry, self._now_ms()):
            self._gone[gone] = None
        while len(self._gone) > GONE_MAX:
            self._gone.popitem(last=False)
        return entry

    def _written(self, pieces: list[Buffer], index: np.ndarray) -> CachedBatches:
        """A new file, where there is space. Raises OSError."""
        name = f"{self._life}-{self._next_name}.batches"
        self._next_name += 1
        try:
            return _write(self.directory / name, pieces, index)
        except OSError as reason:
            if self._spare is None or reason.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise
            return _write(self._spare / name, pieces, index)


def _write(path: Path, pieces: Iterable[Buffer], index: np.ndarray) -> CachedBatches:
    """Write a file, or leave none. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("wb") as file:
            file.writelines(pieces)
            return CachedBatches(path, index, file.tell())
    except OSError:
        path.unlink(missing_ok=True)
        raise


class ColdReader:
    """Reads records that only sealed segments have."""

    def __init__(self, store: Store, manifest: ColdManifest, cache: Cache) -> None:
        self._store, self._manifest, self._cache = store, manifest, cache
        self._open: OrderedDict[str, ParquetSegment | RawSegment] = OrderedDict()
        self._ends: OrderedDict[int, int] = OrderedDict()
        self._ahead: tuple[int, int] | None = None
        self._limits = ANY_SIZE  # Of the last answer.

    def read(
        self,
        number: int,
        offset: int,
        bytes_max: int,
        limits: BatchLimits = ANY_SIZE,
        reach: SegmentReach = ANY_REACH,
    ) -> BatchRange | None:
        """Batches of a partition, the first of which has a record at `offset` or later.

        None: no segment has the offset. Undecided segments give what is within reach. Raises
        Damaged, NotFound, Unavailable.
        """
        end = offset
        # First: one commit drops their lines and adds the segments that hold their records.
        undecided = self._manifest.undecided(number, offset, 1)
        for segment in walk(self._manifest, number, offset, page=1):
            place, end = max(offset, segment.base_offset), segment.end_offset
            while place < end and _has_records(segment):
                part = self._part(segment, place, limits)
                if (found := part.batches.find(offset, bytes_max)) is not None:
                    self._follow(number, offset, found, part.end)
                    self._limits = limits
                    return found._replace(is_cached=part.is_cached)
                place = part.end
        if end > offset:
            return BatchRange(NO_FILE, 0, 0, end)
        if undecided and undecided[0].base_offset <= offset:
            part = self._part(undecided[0], offset, limits)
            found = part.batches.find(offset, bytes_max, reach)
            if found is not None:
                return found._replace(is_cached=part.is_cached, is_undecided=True)
        return None

    def _follow(self, number: int, offset: int, found: BatchRange, part_end: int) -> None:
        """Remember where an answer ended, and what to read ahead if it continued another."""
        self._ahead = (number, part_end) if self._ends.pop(number, None) == offset else None
        self._ends[number] = found.next_offset
        if len(self._ends) > FOLLOWED_MAX:
            self._ends.popitem(last=False)

    def read_ahead(self) -> None:
        """Decode what a sequential reader needs next, if the last answer was for one."""
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            return
        with suppress(StoreError, OSError):  # The request for it reports the error.
            segments = filter(_has_records, walk(self._manifest, *ahead, page=1))
            for segment in islice(segments, 1):
                self._part(segment, max(ahead[1], segment.base_offset), self._limits)

    def offset_for_time(
        self, number: int, timestamp: int, log_start: int = 0, limit: int = NO_LIMIT
    ) -> tuple[int, int] | None:
        """Offset and time of the first sealed record at this time or later.

        `log_start` is the shard's, which may be ahead of the manifest's.
        """
        log_start = max(log_start, self._manifest.log_start(number))
        undecided = self._manifest.undecided(number, log_start)
        for segment in walk(self._manifest, number, log_start, newest_ms=timestamp, page=1):
            opened = self._opened(segment)
            with _damage_named(segment):
                found = opened.find_time(timestamp, log_start)
            if found is not None:
                return found
        start = max(log_start, self._manifest.sealed_end(number))
        for segment in undecided:
            if segment.end_offset <= start or segment.base_offset >= limit:
                continue
            raw = self._opened(segment)
            assert isinstance(raw, RawSegment)
            with _damage_named(segment):
                found = raw.find_time(timestamp, start, limit)
            if found is not None:
                return found
        return None

    def newest(self, number: int, log_start: int, limit: int = NO_LIMIT) -> tuple[int, int] | None:
        """Offset and time of the sealed record with the largest time, the first of them.

        The manifest's largest times may be those of records that are gone: they tell in which order
        to look, and where to stop.
        """
        log_start = max(log_start, self._manifest.log_start(number))
        undecided = self._manifest.undecided(number, log_start)
        segments = list(walk(self._manifest, number, log_start))
        start = max(log_start, self._manifest.sealed_end(number))
        segments += [
            each for each in undecided if each.end_offset > start and each.base_offset < limit
        ]
        segments.sort(key=lambda each: (-each.max_timestamp_ms, each.base_offset))
        best: tuple[int, int] | None = None
        for segment in filter(_has_records, segments):
            if best is not None and segment.max_timestamp_ms < best[1]:
                break
            opened = self._opened(segment)
            with _damage_named(segment):
                if segment.kind == UNDECIDED:
                    assert isinstance(opened, RawSegment)
                    found = opened.newest(start, limit)
                else:
                    found = opened.newest(log_start)
            if found is not None and (best is None or (-found[1], found[0]) < (-best[1], best[0])):
                best = found
        return best

    def _part(self, segment: Segment, offset: int, limits: BatchLimits) -> _Part:
        """The part of a segment with an offset, from the cache or put into it."""
        opened = self._opened(segment)
        span = None if isinstance(opened, RawSegment) else opened.span_of(offset)
        key = (segment.path, -1) if span is None else (f"{segment.path} {limits}", span.start)
        cached = self._cache.get(key)
        made = cached or self._made(segment, opened, span, key, limits)
        end = segment.end_offset
        if span is not None:
            assert isinstance(opened, ParquetSegment)
            last = int(made.places["last_record"][-1]) if len(made.places) else span.end
            with _damage_named(segment):
                end = opened.end_of(span, last)
        return _Part(made, end, is_cached=cached is not None)

    def _made(
        self,
        segment: Segment,
        opened: ParquetSegment | RawSegment,
        span: Span | None,
        key: Key,
        limits: BatchLimits,
    ) -> CachedBatches:
        with _damage_named(segment):
            if isinstance(opened, RawSegment):
                back = opened.batches()
            else:
                assert span is not None
                back = opened.batches(span, limits)
        made = self._cache.put(key, back.pieces, back.places)
        forget_pages(opened.data)
        return made

    def _opened(self, segment: Segment) -> ParquetSegment | RawSegment:
        opened = self._open.get(segment.path)
        if opened is None:
            opened = open_segment(self._store, segment, self._cache.directory)
            self._open[segment.path] = opened
            if len(self._open) > SEGMENTS_OPEN_MAX:
                self._open.popitem(last=False)
        self._open.move_to_end(segment.path)
        return opened


def open_segment(
    store: Store, segment: Segment, staging: Path | None = None
) -> ParquetSegment | RawSegment:
    """A segment's file, checked against the manifest. Raises Damaged with its name; Unavailable.

    A file that is not on this host is first copied to an unnamed file in the directory `staging`.
    """
    try:
        data = _bytes_of(store, segment.path, staging)
    except NotFound as reason:
        raise Damaged(
            segment.path, "the manifest names this segment, but the file is missing"
        ) from reason
    if len(data) != segment.bytes:
        raise Damaged(segment.path, f"it has {len(data)} bytes; the manifest says {segment.bytes}")
    if _crc_of(data) != segment.crc32c:
        raise Damaged(segment.path, "its CRC-32C differs from the manifest's")
    with _damage_named(segment):
        if segment.kind == UNDECIDED:
            return RawSegment(data, as_sent=True)
        return RawSegment(data) if segment.kind == "raw" else ParquetSegment(data)


@contextmanager
def _damage_named(segment: Segment) -> Iterator[None]:
    """Turns errors of reading a segment into Damaged, with its name."""
    try:
        yield
    except (NotRaw, pa.ArrowException, OSError, KeyError, ValueError) as reason:
        raise Damaged(segment.path, f"it cannot be read: {reason}") from reason


def _bytes_of(store: Store, key: str, staging: Path | None) -> np.ndarray:
    path = store.local_path(key)
    if path is None:
        return _staged(store, key, staging)
    if store.head(key).length == 0:  # An empty file cannot be mapped.
        return read_only(b"")
    with path.open("rb") as file:
        return _mapped(file)


def _staged(store: Store, key: str, directory: Path | None) -> np.ndarray:
    """A mapped copy: it is page cache, not memory of ours, and goes with the map."""
    try:
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=directory) as file, store.reading(key) as reading:
            for piece in reading.pieces:
                file.write(piece)
            file.flush()
            return _mapped(file) if file.tell() else read_only(b"")
    except OSError as reason:
        raise Unavailable(key, f"it cannot be copied to {directory}: {reason}") from reason


class _MappedFile(mmap):
    """A mapped file, with a descriptor that goes with the map."""

    fd: int


def _mapped(file: IO[bytes]) -> np.ndarray:
    mapped = _MappedFile(file.fileno(), 0, prot=PROT_READ)
    mapped.fd = os.dup(file.fileno())
    weakref.finalize(mapped, os.close, mapped.fd)
    return read_only(mapped)


def forget_pages(data: np.ndarray) -> None:
    """Give the pages of a mapped file back, which count as this process's memory; the page cache
    forgets those that nobody else maps. The file stays readable.

    Advice on a map does not reach what the kernel has read ahead and nobody has touched: half of a
    file would stay. That on the file does not reach what is mapped.
    """
    lender = getattr(data.base, "obj", None)
    if isinstance(lender, mmap):
        with suppress(OSError):  # Linux before 5.4.
            lender.madvise(MADV_PAGEOUT)
        lender.madvise(MADV_DONTNEED)
    if isinstance(lender, _MappedFile):
        os.posix_fadvise(lender.fd, 0, 0, os.POSIX_FADV_DONTNEED)


def _crc_of(data: np.ndarray) -> int:
    """The CRC-32C of a file, of which a part is in memory at a time."""
    crc = CRC_START
    for at in range(0, len(data), CHECKED_BYTES):
        crc = int(crc32c_update(data, at, min(at + CHECKED_BYTES, len(data)), crc))
        forget_pages(data)
    return crc ^ CRC_START


def _has_records(segment: Segment) -> bool:
    """Whether to look into a segment: what raw batches hold is not known for certain."""
    return segment.record_count > 0 or segment.kind != "parquet"
