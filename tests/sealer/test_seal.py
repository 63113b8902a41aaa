"""Sealing a partition, and being killed at any step of it."""

from collections.abc import Iterator
from functools import partial
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest

from shm.kernels.twin.log import crc32c
from smq.filer.local import LocalStore
from smq.model.errors import Unavailable
from smq.model.segments import Segment
from smq.sealer import seal as sealing
from smq.sealer.room import Room
from smq.sealer.seal import Gone, Sealing
from smq.store.manifest import WritableManifest
from smq.tables.plan import plan
from smq.testing.faulty_store import Flaky, Torn
from smq.testing.memory_store import MemoryStore
from smq.testing.sealing import FakeShard, Fuse, FusedManifest, HangingManifest, Killed, draw
from tests.sealer.sealed import PLACE, batch, manifest_in, read_back, seal

LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 8, 16, 32


@pytest.fixture
def manifest(tmp_path: Path) -> Iterator[WritableManifest]:
    with manifest_in(tmp_path) as manifest:
        yield manifest


def _values(*offsets: int) -> list[tuple[int, bytes | None]]:
    return [(offset, b"value %d" % offset) for offset in offsets]


def test_a_sealed_partition_advances_its_shards_sealed_end(
    manifest: WritableManifest, tmp_path: Path
) -> None:
    store, shard = MemoryStore(), FakeShard([batch(0, 3, time=50), batch(3, 2, time=20)])
    assert seal(store, shard, manifest, sealed_end=0, end=5) == 5
    assert shard.sealed_end == 5
    [segment] = manifest.segments(1)
    assert (segment.base_offset, segment.end_offset, segment.kind) == (0, 5, "parquet")
    assert (segment.record_count, segment.min_timestamp_ms, segment.max_timestamp_ms) == (5, 20, 52)
    assert store.head(segment.path).length == segment.bytes
    assert read_back(store, manifest, tmp_path / "cache") == _values(*range(5))


def test_records_deleted_before_they_were_sealed_leave_no_gap_that_readers_find(
    manifest: WritableManifest, tmp_path: Path
) -> None:
    """Data fault 28: SQL and Spark plan over all segments from the manifest's log start on."""
    store, shard = MemoryStore(), FakeShard([batch(0, 5), batch(5, 5), batch(10, 5)])
    seal(store, shard, manifest, sealed_end=0, end=5, segment_bytes=1)
    topic = manifest.topics()[0]
    fuse = Fuse(1, after=True)  # It is killed before the line after the gap.
    with pytest.raises(Killed):
        seal(store, shard, FusedManifest(manifest, fuse), sealed_end=10, end=15, log_start=10)
    assert plan(manifest, topic, "earliest", "latest") == []
    seal(store, shard, manifest, sealed_end=10, end=15, log_start=10)
    [part] = plan(manifest, topic, "earliest", "latest")
    assert (part.start, part.end) == (10, 15)
    assert read_back(store, manifest, tmp_path / "cache", offset=10) == _values(*range(10, 15))


def test_a_seal_ends_with_its_turn_and_the_next_goes_on(
    manifest: WritableManifest, tmp_path: Path
) -> None:
    """Door fault 6, its kind: one partition held the sealer for as long as its content took."""
    store = MemoryStore()
    shard = FakeShard([batch(offset, 5, time=50) for offset in range(0, 20, 5)])
    turns = iter((False, False, True, True, True, True))
    job = Sealing(
        store, shard, manifest, lambda: 1, draw, Room(), is_over=lambda: next(turns, False)
    )
    ends = [job.seal(PLACE, end, 20, 100) for end in (0, 10, 15)]
    assert ends == [10, 15, 20]
    assert [each.end_offset for each in manifest.segments(1)] == [5, *ends]
    assert read_back(store, manifest, tmp_path / "cache") == _values(*range(20))


def test_nothing_stable_is_nothing_to_do(manifest: WritableManifest) -> None:
    store, shard = MemoryStore(), FakeShard([])
    assert seal(store, shard, manifest, sealed_end=7, end=7) == 7
    assert shard.asked == 0
    assert list(store.list()) == []


def test_a_shard_with_nothing_to_give_ends_the_job(manifest: WritableManifest) -> None:
    assert seal(MemoryStore(), FakeShard([]), manifest, sealed_end=0, end=9) == 0


def test_batches_that_must_be_raw_get_a_segment_of_their_own(
    manifest: WritableManifest, tmp_path: Path
) -> None:
    raw = [batch(2, key=b"\xff"), batch(3, key=b"\xff")]
    marker = batch(4, attributes=TRANSACTIONAL | CONTROL)
    shard = FakeShard([batch(0, 2), *raw, marker, batch(5)])
    store = MemoryStore()
    assert seal(store, shard, manifest, sealed_end=0, end=6) == 6
    segments = manifest.segments(1)
    assert [(each.kind, each.base_offset, each.end_offset) for each in segments] == [
        ("parquet", 0, 2),
        ("raw", 2, 5),
        ("parquet", 5, 6),
    ]
    assert segments[1].record_count == 2
    assert segments[1].path.endswith(".batches")
    assert store.get(segments[1].path).startswith(b"".join(raw))
    assert read_back(store, manifest, tmp_path / "cache") == _values(0, 1, 2, 3, 5)


def test_a_change_of_the_timestamp_type_begins_another_segment(manifest: WritableManifest) -> None:
    shard = FakeShard([batch(0), batch(1, attributes=LOG_APPEND_TIME), batch(2)])
    seal(MemoryStore(), shard, manifest, sealed_end=0, end=3)
    assert [each.base_offset for each in manifest.segments(1)] == [0, 1, 2]


def test_a_segment_ends_when_it_is_large_enough(manifest: WritableManifest) -> None:
    shard = FakeShard([batch(i) for i in range(6)])
    seal(MemoryStore(), shard, manifest, sealed_end=0, end=6, segment_bytes=160)
    segments = manifest.segments(1)
    assert [each.base_offset for each in segments] == [0, 2, 4]
    assert all(before.end_offset == after.base_offset for before, after in pairwise(segments))


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", range(1, 8))
def test_a_kill_at_any_step_loses_and_doubles_nothing(
    manifest: WritableManifest, tmp_path: Path, step: int, after: bool
) -> None:
    batches = [batch(0, 2), batch(2, key=b"\xff"), batch(3, 2)]
    store, fuse = MemoryStore(), Fuse(step, after=after)
    shard = FakeShard(batches, fuse)
    put = store.put
    store.put = lambda *given: fuse.step(lambda: put(*given))  # type: ignore[method-assign]
    try:
        seal(store, shard, FusedManifest(manifest, fuse), sealed_end=0, end=5)
    except Killed:
        assert fuse.taken == step
    shard.fuse = Fuse()
    store.put = put  # type: ignore[method-assign]
    # The successor knows what the shard says of itself, and the manifest.
    assert seal(store, shard, manifest, sealed_end=shard.sealed_end, end=5, first_ms=2000) == 5
    assert shard.sealed_end == 5
    assert read_back(store, manifest, tmp_path / "cache") == _values(*range(5))
    segments = manifest.segments(1)
    assert [each.base_offset for each in segments] == [0, 2, 3]


def test_a_sealed_end_that_the_shard_lacks_is_sent_again(manifest: WritableManifest) -> None:
    store, shard = MemoryStore(), FakeShard([batch(0, 5)])
    seal(store, shard, manifest, sealed_end=0, end=5)
    shard.sealed_end = 0
    assert seal(store, shard, manifest, sealed_end=0, end=5) == 5
    assert shard.sealed_end == 5
    assert len(manifest.segments(1)) == len(list(store.list())) == 1


def test_a_line_that_may_not_be_durable_frees_no_log(manifest: WritableManifest) -> None:
    """Data fault 8, its kind: SQLite shows a commit before its sync returns. A sealer that had
    given the coordinator up found its line, and a power loss took it after the log was freed."""
    store, shard = MemoryStore(), FakeShard([batch(0, 5)])
    seal(store, shard, manifest, sealed_end=0, end=5)
    shard.sealed_end = 0
    sealing = Sealing(store, shard, HangingManifest(manifest), lambda: 0, draw, Room())
    with pytest.raises(Unavailable, match="does not answer"):
        sealing.seal(PLACE, 0, 5, 1 << 20)
    assert shard.sealed_end == 0


class _Slower(FusedManifest):
    """Another process commits first, what this one is about to."""

    def __init__(self, manifest: WritableManifest, store: MemoryStore, shard: FakeShard) -> None:
        super().__init__(manifest)
        self._meanwhile = partial(seal, store, shard, manifest, sealed_end=0, end=5, first_ms=9)

    def commit_segments(self, segments: list[Segment]) -> list[Segment]:
        self._meanwhile()
        return super().commit_segments(segments)


def test_of_two_that_seal_the_same_the_second_deletes_its_file(manifest: WritableManifest) -> None:
    store, shard = MemoryStore(), FakeShard([batch(0, 5)])
    slower = _Slower(manifest, store, shard)
    assert seal(store, shard, slower, sealed_end=0, end=5) == 5
    [segment] = manifest.segments(1)
    assert [facts.key for facts in store.list()] == [segment.path]
    assert segment.attempt < draw(), "the first one's"


def test_a_name_that_is_taken_is_not_overwritten(manifest: WritableManifest) -> None:
    store, shard = MemoryStore(), FakeShard([batch(0, 5)])
    left_behind = PLACE.key(0, 5, 7, "parquet")
    store.put(left_behind, b"somebody else's")
    job = Sealing(store, shard, manifest, lambda: 1, lambda: 7, Room())
    with pytest.raises(Unavailable, match="its name cannot be had"):
        job.seal(PLACE, 0, 5, 1 << 20)
    assert manifest.segments(1) == []
    assert store.get(left_behind) == b"somebody else's"


def test_a_file_sealed_again_has_another_name_at_the_same_clock_time(
    manifest: WritableManifest,
) -> None:
    """Data fault 8: a name that comes again makes an old line one of a new file."""
    store, shard = MemoryStore(), FakeShard([batch(0, 5)])
    names = []
    for _ in range(2):
        seal(store, shard, manifest, sealed_end=0, end=5, first_ms=1000)
        [segment] = manifest.segments(1)
        names.append(segment.path)
        manifest.delete_segments([segment.path])
        store.delete(segment.path)
        shard.sealed_end = 0
    assert names[0] != names[1]


def test_a_file_in_place_of_the_topics_directory_raises_unavailable(
    manifest: WritableManifest, tmp_path: Path
) -> None:
    (tmp_path / "filer").mkdir()
    (tmp_path / "filer" / "topics").touch()
    shard = FakeShard([batch(0)])
    with pytest.raises(Unavailable, match="its name cannot be had"):
        seal(LocalStore(tmp_path / "filer"), shard, manifest, sealed_end=0, end=1)
    assert manifest.segments(1) == []


def test_a_partition_that_was_deleted_meanwhile_leaves_nothing(tmp_path: Path) -> None:
    store, shard = MemoryStore(), FakeShard([batch(0)])
    with manifest_in(tmp_path) as manifest:
        manifest._database.change("DELETE FROM partitions")
        with pytest.raises(Gone):
            seal(store, shard, manifest, sealed_end=0, end=1)
    assert list(store.list()) == []
    assert shard.sealed_end == 0


@pytest.mark.parametrize("weather", [Flaky, Torn])
def test_in_bad_weather_it_is_sealed_in_the_end(
    manifest: WritableManifest, tmp_path: Path, weather: type[Flaky | Torn]
) -> None:
    inner, shard = MemoryStore(), FakeShard([batch(i, key=b"\xff" * (i % 2)) for i in range(8)])
    store = weather(inner, Random(7))
    for _ in range(100):
        try:
            seal(store, shard, manifest, sealed_end=shard.sealed_end, end=8)
        except Unavailable:
            continue
        break
    assert shard.sealed_end == 8
    assert read_back(inner, manifest, tmp_path / "cache") == _values(*range(8))
    assert len(list(inner.list())) == len(manifest.segments(1))


def test_a_segment_may_begin_inside_a_batch_without_the_rows_before(
    manifest: WritableManifest, tmp_path: Path
) -> None:
    manifest.set_log_start(1, 4)
    store, shard = MemoryStore(), FakeShard([batch(3, 4), batch(7, 2)])
    assert seal(store, shard, manifest, sealed_end=4, end=9) == 9
    [segment] = manifest.segments(1)
    assert (segment.base_offset, segment.end_offset, segment.record_count) == (4, 9, 5)
    table = pq.read_table(BytesIO(store.get(segment.path)))
    assert table["_offset"].to_pylist() == [4, 5, 6, 7, 8]
    assert table["_headers"].to_pylist() == [[{"key": "h", "value": None}]] * 5
    assert read_back(store, manifest, tmp_path / "cache", offset=4) == _values(4, 5, 6, 7, 8)


def test_a_raw_segment_may_begin_inside_a_batch(manifest: WritableManifest, tmp_path: Path) -> None:
    """Use fault 12: after DeleteRecords up to there, the partition was never sealed again."""
    manifest.set_log_start(1, 4)
    store, shard = MemoryStore(), FakeShard([batch(3, 4, key=b"\xff"), batch(7, 2)])
    assert seal(store, shard, manifest, sealed_end=4, end=9) == 9
    found = [(each.kind, each.base_offset, each.end_offset) for each in manifest.segments(1)]
    assert found == [("raw", 4, 7), ("parquet", 7, 9)]
    assert read_back(store, manifest, tmp_path / "cache", offset=4) == _values(4, 5, 6, 7, 8)


def alternating(kinds: str, count: int) -> list[bytes]:
    """Batches of one record: rows, raw or stamped ones, as the letters r, h and s say."""
    made = {"r": {}, "h": {"key": b"\xff"}, "s": {"attributes": LOG_APPEND_TIME}}
    kind = [made[each] for each in kinds]
    return [batch(i, time=i, **kind[i % len(kind)]) for i in range(count)]  # type: ignore[arg-type]


@pytest.mark.parametrize("kinds", ["rrh", "rh", "h", "rs", "rsh", "hs", "rrrrrrrrrrh"])
@pytest.mark.parametrize("bytes_each", [1 << 20, 4000])
def test_the_number_of_files_of_a_seal_is_bounded_by_their_bytes(
    manifest: WritableManifest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kinds: str,
    bytes_each: int,
) -> None:
    """Use fault 12: a header key in every third batch made 267 files of 400 batches."""
    monkeypatch.setattr(sealing, "PARTED_BYTES", bytes_each)
    batches = alternating(kinds, 400)
    store, shard = MemoryStore(), FakeShard(batches)
    assert seal(store, shard, manifest, sealed_end=0, end=400) == 400
    segments = manifest.segments(1)
    bound = sealing.PARTED_FILES + sum(map(len, batches)) // bytes_each + 1
    assert len(segments) <= bound
    assert all(before.end_offset == after.base_offset for before, after in pairwise(segments))
    assert sum(each.record_count for each in segments) == 400
    assert (segments[0].min_timestamp_ms, segments[-1].max_timestamp_ms) == (0, 399)
    assert read_back(store, manifest, tmp_path / "cache") == _values(*range(400))


def test_one_batch_of_another_kind_leaves_its_neighbours_their_rows(
    manifest: WritableManifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealing, "PARTED_BYTES", 2000)
    batches = alternating("h" + "r" * 99, 1000)
    seal(MemoryStore(), FakeShard(batches), manifest, sealed_end=0, end=1000)
    segments = manifest.segments(1)
    assert [each.kind for each in segments] == ["raw", "parquet"] * 10
    assert [each.record_count for each in segments] == [1, 99] * 10


def test_files_that_end_because_they_are_large_enough_do_not_count(
    manifest: WritableManifest,
) -> None:
    shard = FakeShard([batch(i) for i in range(60)])
    seal(MemoryStore(), shard, manifest, sealed_end=0, end=60, segment_bytes=160)
    assert [each.kind for each in manifest.segments(1)] == ["parquet"] * 30


def said(data: bytes, largest_ms: int) -> bytes:
    """A batch whose header says another largest time than its records have."""
    data = data[:35] + largest_ms.to_bytes(8, signed=True) + data[43:]
    return data[:17] + crc32c(data[21:]).to_bytes(4) + data[21:]


@pytest.mark.parametrize("future_ms", [10**15, -(10**15)])
def test_retention_and_compaction_go_by_the_times_that_were_checked(
    manifest: WritableManifest, future_ms: int
) -> None:
    """Data fault 7: one record from the future ended retention by time for its partition."""
    store = MemoryStore()
    batches = [batch(0, time=20), said(batch(1, time=future_ms), 30), said(batch(2, time=9), 25)]
    seal(store, FakeShard(batches), manifest, sealed_end=0, end=3)
    [segment] = manifest.segments(1)
    assert (segment.oldest_ms, segment.newest_ms) == (20, 30)
    assert future_ms in {segment.min_timestamp_ms, segment.max_timestamp_ms}, "look-ups see it"


def test_a_batch_without_a_time_counts_from_when_it_was_sealed(manifest: WritableManifest) -> None:
    batches = [batch(0, time=20), said(batch(1, time=10**15), -1)]
    seal(MemoryStore(), FakeShard(batches), manifest, sealed_end=0, end=2)
    [segment] = manifest.segments(1)
    assert (segment.oldest_ms, segment.newest_ms) == tuple(sorted((20, segment.committed_ms)))
