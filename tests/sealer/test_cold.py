"""Reading sealed records back; damaged segments are named, never served."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from mmap import PAGESIZE, PROT_READ, mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shm.kernels.base.words import ATTRIBUTE_CONTROL, ATTRIBUTE_TRANSACTIONAL
from shm.kernels.twin import records as plain
from smq.filer.local import LocalStore
from smq.filer.store import OVERWRITE, Store
from smq.log.files.disk import OsDisk
from smq.model.errors import Unavailable
from smq.model.segments import BatchLimits, Segment
from smq.sealer import parquet
from smq.sealer.cold import (
    CACHE_KEEP_MS,
    NO_FILE,
    ONCE_KEEP_MS,
    BatchRange,
    Cache,
    ColdReader,
    Damaged,
    forget_pages,
    open_segment,
)
from smq.sealer.parquet_segment import ParquetSegment, Span
from smq.sealer.read_back import PLACE, ReadBack
from smq.store.manifest import WritableManifest
from smq.testing.memory_store import MemoryStore
from smq.testing.sealing import FakeShard
from smq.wire.markers import write_empty
from smq.wire.records import read_batches
from tests.sealer.sealed import batch, manifest_in, read_back, seal


@pytest.fixture
def manifest(tmp_path: Path) -> Iterator[WritableManifest]:
    with manifest_in(tmp_path) as manifest:
        yield manifest


@pytest.fixture(params=["memory", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "filer")


def _reader(store: Store, manifest: WritableManifest, tmp_path: Path, **cache: int) -> ColdReader:
    bytes_max = cache.get("bytes_max", 1 << 20)
    return ColdReader(store, manifest, Cache(tmp_path / "cache", bytes_max, lambda: 0, "a"))


def _seal(store: Store, manifest: WritableManifest, batches: list[bytes]) -> None:
    shard = FakeShard(batches)
    seal(store, shard, manifest, sealed_end=0, end=shard.end)


def test_any_offset_is_found_in_whole_batches(
    store: Store, manifest: WritableManifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 7)
    batches = [batch(i, 5, key=b"\xff" if i in {20, 25} else b"h") for i in range(0, 50, 5)]
    _seal(store, manifest, batches)
    expected = [(i, b"value %d" % i) for i in range(50)]
    for offset in (0, 1, 6, 19, 20, 24, 29, 49):
        for bytes_max in (1, 200, 10_000):
            read = read_back(
                store,
                manifest,
                tmp_path / "cache",
                offset=offset,
                bytes_max=bytes_max,
                limits=BatchLimits(120),
            )
            assert read == expected[offset:], (offset, bytes_max)
    reader = _reader(store, manifest, tmp_path)
    told = [reader.read(1, offset, 100) for offset in (0, 1, 7)]
    assert [found and found.is_cached for found in told] == [False, True, False]
    assert reader.read(1, 50, 100) is None
    assert reader.read(77, 0, 100) is None


def test_an_offset_in_a_gap_is_answered_with_the_next_batch(
    store: Store, manifest: WritableManifest, tmp_path: Path
) -> None:
    _seal(store, manifest, [batch(10), batch(20)])
    reader = _reader(store, manifest, tmp_path)
    for offset in (0, 10, 15, 20):
        found = reader.read(1, offset, 1000)
        assert found is not None
        assert found.next_offset == 21
    assert read_back(store, manifest, tmp_path / "cache") == [(10, b"value 10"), (20, b"value 20")]


def _gap(start: int, end: int) -> bytes:
    """What a shard gives for an aborted batch."""
    return write_empty(start, end, 0, -1)


MARKER = ATTRIBUTE_TRANSACTIONAL | ATTRIBUTE_CONTROL
UNKNOWN_ATTRIBUTE = 1 << 9


@pytest.mark.parametrize("attributes", [0, UNKNOWN_ATTRIBUTE], ids=["parquet", "raw"])
def test_segments_without_records_are_passed_over(
    store: Store, manifest: WritableManifest, tmp_path: Path, attributes: int
) -> None:
    """Use fault 1: kafka-go, kafkajs and aiokafka are stranded by an answer without a record."""
    first, second = batch(4, 2, attributes=attributes), batch(20, attributes=attributes)
    before, between = [_gap(0, 4)], [_gap(6, 9), batch(9, attributes=MARKER), _gap(10, 20)]
    shard = FakeShard([*before, first, *between, second, _gap(21, 30)])
    seal(store, shard, manifest, sealed_end=0, end=30, segment_bytes=1)
    assert len(manifest.segments(1)) == 7
    reader = _reader(store, manifest, tmp_path)
    firsts = {0: 4, 4: 4, 5: 4, 6: 20, 9: 20, 13: 20, 20: 20}
    for offset, base in firsts.items():
        found = reader.read(1, offset, 1)
        assert found is not None
        data = found.path.read_bytes()[found.at : found.at + found.length]
        assert next(read_batches(data)).base_offset == base, offset
    assert reader.read(1, 21, 1) == BatchRange(NO_FILE, 0, 0, 30)
    assert reader.read(1, 30, 1) is None


@pytest.mark.parametrize("rows", [2, 64], ids=["row group", "batch"])
def test_a_gap_behind_a_row_is_answered_with_what_follows_it(
    store: Store,
    manifest: WritableManifest,
    tmp_path: Path,
    rows: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Use fault 1: in a compacted segment, or among what was aborted."""
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", rows)
    _seal(store, manifest, [batch(0, 2), _gap(2, 8), batch(8, 2)])
    expected = [(0, b"value 0"), (1, b"value 1"), (8, b"value 8"), (9, b"value 9")]
    for offset, count in ((0, 4), (1, 3), (2, 2), (7, 2), (9, 1)):
        read = read_back(
            store, manifest, tmp_path / "cache", offset=offset, limits=BatchLimits(100)
        )
        assert read == expected[-count:], offset


def test_clients_with_other_limits_get_other_batches(
    store: Store, manifest: WritableManifest, tmp_path: Path
) -> None:
    """Use fault 4: batches of 256 KiB, whatever the topic and the client allow."""
    _seal(store, manifest, [batch(0, 50)])
    reader = _reader(store, manifest, tmp_path)
    for shared_bytes in (128, 512, 128):
        found = reader.read(1, 0, 10_000, BatchLimits(shared_bytes))
        assert found is not None
        sizes = [len(each.data) for each in read_batches(found.path.read_bytes())]
        assert shared_bytes // 2 < max(sizes) <= shared_bytes


def test_sequential_reads_find_the_next_row_group_decoded(
    store: Store, manifest: WritableManifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 5)
    shard = FakeShard([batch(i, 5) for i in range(0, 30, 5)])
    seal(store, shard, manifest, sealed_end=0, end=30, segment_bytes=500)
    assert len(manifest.segments(1)) > 1
    cache = Cache(tmp_path / "cache", 1 << 20, lambda: 0, "a")
    reader, decoded = ColdReader(store, manifest, cache), list[int]()
    decode = ParquetSegment.batches

    def batches(segment: ParquetSegment, span: Span, limits: BatchLimits) -> ReadBack:
        decoded.append(span.start)
        return decode(segment, span, limits)

    monkeypatch.setattr(ParquetSegment, "batches", batches)

    def read(offset: int) -> list[int]:
        decoded.clear()
        found = reader.read(1, offset, 10_000)
        assert found is None or found.next_offset == offset + 5
        reader.read_ahead()
        return list(decoded)

    assert read(0) == [0]  # Nobody knows yet whether this reader goes on.
    assert read(5) == [5, 10]
    assert [read(offset) for offset in (10, 15, 20)] == [[15], [20], [25]]
    assert read(25) == []  # There is nothing behind it.
    assert reader.read(1, 30, 100) is None


def test_a_damaged_segment_is_no_matter_of_who_reads_ahead_of_it(
    store: Store, manifest: WritableManifest, tmp_path: Path
) -> None:
    shard = FakeShard([batch(0), batch(1), batch(2)])
    seal(store, shard, manifest, sealed_end=0, end=3, segment_bytes=1)
    store.delete(manifest.segments(1)[2].path)
    reader = _reader(store, manifest, tmp_path)
    for offset in (0, 1):
        found = reader.read(1, offset, 100)
        assert found is not None
        reader.read_ahead()
    with pytest.raises(Damaged, match="the file is missing"):
        reader.read(1, 2, 100)


def test_offsets_are_found_by_time_across_segments(
    store: Store, manifest: WritableManifest, tmp_path: Path
) -> None:
    batches = [batch(0, 3, time=10), batch(3, time=99, key=b"\xff"), batch(4, 3, time=50)]
    _seal(store, manifest, batches)
    reader = _reader(store, manifest, tmp_path)
    found = [reader.offset_for_time(1, time) for time in (0, 11, 13, 99, 100)]
    assert found == [(0, 10), (1, 11), (3, 99), (3, 99), None]
    manifest.set_log_start(1, 2)
    assert reader.offset_for_time(1, 0) == (2, 12)
    assert reader.offset_for_time(1, 99) == (3, 99)


@pytest.mark.parametrize("rows", [2, 64])
def test_the_newest_record_is_the_largest_time_that_is_left(
    store: Store,
    manifest: WritableManifest,
    tmp_path: Path,
    rows: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Data fault 30: lines remember the times of what was aborted, deleted or compacted away."""
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", rows)
    raw = batch(8, 2, time=40, key=b"\xff")
    aborted = write_empty(10, 12, 0, 999)
    shard = FakeShard([batch(0, 4, time=50), batch(4, 4, time=10), raw, aborted])
    seal(store, shard, manifest, sealed_end=0, end=12, segment_bytes=1)
    assert max(each.max_timestamp_ms for each in manifest.segments(1)) == 999
    reader = _reader(store, manifest, tmp_path)
    newest = {0: (3, 53), 3: (3, 53), 4: (9, 41), 9: (9, 41), 10: None}
    assert {start: reader.newest(1, start) for start in newest} == newest
    manifest.set_log_start(1, 4)
    assert reader.newest(1, 0) == (9, 41)


def test_a_read_asks_the_manifest_for_the_segment_it_needs_and_no_others(
    store: Store, manifest: WritableManifest, tmp_path: Path
) -> None:
    shard = FakeShard([batch(i, time=i) for i in range(20)])
    seal(store, shard, manifest, sealed_end=0, end=20, segment_bytes=1)
    assert len(manifest.segments(1)) == 20
    given: list[int] = []
    ask = manifest.segments

    def segments(*arguments: Any, **options: Any) -> list[Segment]:
        found = ask(*arguments, **options)
        given.extend(each.base_offset for each in found)
        return found

    manifest.segments = segments  # type: ignore[method-assign]
    reader = _reader(store, manifest, tmp_path)
    found = reader.read(1, 7, 1000)
    assert found is not None
    assert (found.next_offset, given) == (8, [7])
    given.clear()
    assert reader.offset_for_time(1, 12) == (12, 12)
    assert given == [12]
    given.clear()
    assert reader.read(1, 20, 1000) is None
    assert reader.offset_for_time(1, 20) is None
    assert given == []


@pytest.mark.parametrize("key", [b"h", b"\xff"], ids=["parquet", "raw"])
def test_a_damaged_segment_is_named_and_not_served(
    store: Store, manifest: WritableManifest, tmp_path: Path, key: bytes
) -> None:
    _seal(store, manifest, [batch(0, 3, key=key)])
    [segment] = manifest.segments(1)
    whole = store.get(segment.path)
    for damaged, said in (
        (whole[:-1], "bytes"),
        (b"", "bytes"),
        (whole[:60] + bytes([whole[60] ^ 1]) + whole[61:], "CRC-32C"),
    ):
        store.put(segment.path, damaged, OVERWRITE)
        with pytest.raises(Damaged, match=segment.path) as caught:
            _reader(store, manifest, tmp_path).read(1, 0, 100)
        assert said in str(caught.value)
    store.delete(segment.path)
    with pytest.raises(Damaged, match="the file is missing"):
        _reader(store, manifest, tmp_path).offset_for_time(1, 0)


def test_a_segment_that_is_elsewhere_leaves_no_file_and_needs_room(
    manifest: WritableManifest, tmp_path: Path
) -> None:
    store = MemoryStore()
    _seal(store, manifest, [batch(0, 5)])
    [segment] = manifest.segments(1)
    staging = tmp_path / "staging"
    staging.mkdir()
    opened = open_segment(store, segment, staging)
    assert isinstance(opened, ParquetSegment)
    assert len(opened.spans) == 1
    assert list(staging.iterdir()) == []
    with pytest.raises(Unavailable, match="cannot be copied to"):
        open_segment(store, segment, tmp_path / "store.sqlite" / "below")


def test_a_whole_file_that_is_no_segment_is_damage_too(
    manifest: WritableManifest, tmp_path: Path
) -> None:
    store = MemoryStore()
    _seal(store, manifest, [batch(0)])
    manifest._database.change("UPDATE segments SET kind = 'raw'")
    with pytest.raises(Damaged, match="cannot be read"):
        _reader(store, manifest, tmp_path).read(1, 0, 100)


class TestCache:
    @pytest.fixture
    def now(self) -> list[int]:
        return [0]

    @pytest.fixture
    def cache(self, tmp_path: Path, now: list[int]) -> Cache:
        return Cache(tmp_path / "cache", 100, lambda: now[0], "a")

    @staticmethod
    def _put(cache: Cache, *numbers: int) -> None:
        for number in numbers:
            cache.put(("s", number), np.zeros(40, np.uint8), np.zeros(1, PLACE))

    @staticmethod
    def _kept(cache: Cache) -> set[int]:
        """Which of ten files it has; looked at in the directory, for asking is using."""
        held = {number for number in range(10) if cache.get(("s", number)) is not None}
        assert len(held) == len(list(cache.directory.iterdir()))
        return held

    def test_entries_read_once_are_dropped_soon_least_recently_used_first(
        self, cache: Cache, now: list[int]
    ) -> None:
        for number in range(2):
            self._put(cache, number)
            now[0] += ONCE_KEEP_MS + 1
        assert cache.get(("s", 0)) is not None
        self._put(cache, 2)
        assert self._kept(cache) == {0, 2}

    def test_entries_read_twice_are_kept_longer(self, cache: Cache, now: list[int]) -> None:
        for number in range(6):
            self._put(cache, number)
            now[0] += ONCE_KEEP_MS + 1
        self._put(cache, 1, 2)  # They had gone: they are asked for again.
        for number in range(6, 10):
            now[0] += CACHE_KEEP_MS + 1
            self._put(cache, number)
        assert self._kept(cache) == {1, 2, 8, 9}
        now[0] += CACHE_KEEP_MS + 1
        self._put(cache, 3)
        assert self._kept(cache) == {2, 3, 8, 9}

    def test_an_entry_just_named_to_a_shard_stays(self, cache: Cache, now: list[int]) -> None:
        self._put(cache, *range(5))
        now[0] += ONCE_KEEP_MS
        assert self._kept(cache) == set(range(5))
        now[0] += ONCE_KEEP_MS + 1
        self._put(cache, 5, 0)
        assert self._kept(cache) == {0, 4, 5}

    def test_the_files_of_an_earlier_life_are_removed(self, tmp_path: Path) -> None:
        (tmp_path / "cache").mkdir()
        (tmp_path / "cache" / "0.batches").write_bytes(b"x")
        Cache(tmp_path / "cache", 100, lambda: 0, "a")
        assert list((tmp_path / "cache").iterdir()) == []

    def test_no_file_has_the_name_of_one_of_an_earlier_life(self, tmp_path: Path) -> None:
        """Data fault 9: a shard may open a file again when its cache is gone."""
        names = set()
        for life in ("a", "b"):
            cache = Cache(tmp_path / "cache", 100, lambda: 0, life)
            self._put(cache, 0, 1)
            names |= {each.name for each in cache.directory.iterdir()}
        assert len(names) == 4


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, without space."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "smq-test", str(place)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as reason:
        pytest.skip(f"no file system can be mounted here: {reason}")
    with suppress(OSError), (place / "others").open("wb") as file:
        file.write(bytes(1 << 21))
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_sealed_records_are_read_while_the_disk_is_full(
    manifest: WritableManifest, tmp_path: Path, full_disk: Path
) -> None:
    """Data fault 19: a full disk ended the reading worker, though the records could be sent."""
    store = LocalStore(tmp_path / "filer")
    _seal(store, manifest, [batch(0, 3), batch(3, 3, key=b"\xff")])
    spare = tmp_path / "spare"
    cache = Cache(full_disk / "cache", 1 << 20, lambda: 0, "life", spare)
    reader, at = ColdReader(store, manifest, cache), 0
    while at < 6:
        found = reader.read(1, at, 100)
        assert found is not None
        assert found.path.parent == spare
        assert len(found.path.read_bytes()) >= found.at + found.length > 0
        at = found.next_offset
    assert not [each for each in full_disk.rglob("*") if each.suffix == ".batches"]
    (full_disk / "others").unlink()
    third = cache.put(("another", 0), [b"bytes"], np.zeros(0, PLACE))
    assert third.path.parent == full_disk / "cache"


def test_without_a_spare_directory_a_full_disk_is_the_systems_error(full_disk: Path) -> None:
    """Data fault 19."""
    cache = Cache(full_disk / "cache", 1 << 20, lambda: 0, "life")
    with pytest.raises(OSError, match="No space left"):
        cache.put(("a", 0), [bytes(1 << 20)], np.zeros(0, PLACE))
    assert cache.get(("a", 0)) is None


def test_a_forgotten_file_counts_as_this_processs_memory_no_more_though_another_maps_it(
    tmp_path: Path,
) -> None:
    size, path = 1 << 24, tmp_path / "file"
    path.write_bytes(bytes(size))

    def resident_bytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * PAGESIZE

    with path.open("rb") as file:
        other, ours = (mmap(file.fileno(), 0, prot=PROT_READ) for _ in range(2))
    for each in (other, ours):
        assert not np.frombuffer(each, np.uint8).any()
    before = resident_bytes()
    forget_pages(np.frombuffer(ours, np.uint8))
    assert before - resident_bytes() > size // 2


def test_pages_of_a_segment_that_the_kernel_has_read_ahead_leave_the_page_cache(
    manifest: WritableManifest, tmp_path: Path
) -> None:
    """Half of a backlog's files stayed: nobody had touched these pages."""
    store, values = LocalStore(tmp_path / "filer"), [os.urandom(1 << 20) for _ in range(24)]
    records = [plain.PlainRecord(at, 0, b"k", each, ()) for at, each in enumerate(values)]
    _seal(store, manifest, [plain.batch([each], end_offset=each.offset + 1) for each in records])
    [segment] = manifest.segments(1)
    path = store.local_path(segment.path)
    assert path is not None
    disk = OsDisk()
    fd = disk.open(path)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        pages = disk.cached_pages(fd, segment.bytes)
        if pages is None or pages.any():
            pytest.skip("this file system keeps its pages")
        reader, at = _reader(store, manifest, tmp_path), 0
        while at < len(values):
            found = reader.read(1, at, 1)
            assert found is not None
            at = found.next_offset
            reader.read_ahead()
        pages = disk.cached_pages(fd, segment.bytes)
        assert pages is not None
        assert not pages.any()
    finally:
        disk.close(fd)
