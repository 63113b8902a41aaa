"""Small segments become one: the same records, whatever dies in between."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shm.kernels.base.words import ATTRIBUTE_CONTROL, ATTRIBUTE_TRANSACTIONAL
from smq.model.config import Config
from smq.model.topic_settings import TopicSettings
from smq.sealer import merge as merge_module
from smq.sealer.cold import Cache, ColdReader, Damaged, open_segment
from smq.sealer.housekeeping import Housekeeping
from smq.sealer.merge import Merging
from smq.sealer.parquet_segment import ParquetSegment
from smq.store.manifest import WritableManifest
from smq.testing.memory_store import MemoryStore
from smq.testing.sealing import FakeShard, Fuse, FusedManifest, Killed, draw
from smq.wire.records import read_batches
from tests.sealer.sealed import PLACE, batch, manifest_in, read_back, seal, swept

if TYPE_CHECKING:
    from smq.model.segments import Segment

SETTINGS = TopicSettings.of({"retention.ms": "-1"}, Config(shards=1))
LOG_APPEND = 8
PARTS, NOW_MS = 6, 5000


@pytest.fixture
def manifest(tmp_path: Path) -> Iterator[WritableManifest]:
    with manifest_in(tmp_path) as manifest:
        yield manifest


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(lambda: 50)


def sealed(store: MemoryStore, manifest: WritableManifest, *batches: bytes) -> FakeShard:
    """A segment for each batch."""
    shard = FakeShard(list(batches))
    seal(store, shard, manifest, sealed_end=0, end=shard.end, segment_bytes=1)
    assert len(manifest.segments(1)) == len(batches)
    return shard


UNKNOWN_ATTRIBUTE = 128


def rows(count: int = PARTS, attributes: int = 0) -> list[bytes]:
    return [batch(3 * i, 3, time=i, attributes=attributes) for i in range(count)]


def merging(store: MemoryStore, manifest: WritableManifest, fuse: Fuse | None = None) -> Merging:
    return Merging(store, FusedManifest(manifest, fuse, NOW_MS), draw)


def test_one_file_holds_the_same_records(
    tmp_path: Path, store: MemoryStore, manifest: WritableManifest
) -> None:
    sealed(store, manifest, *rows())
    old, before = manifest.segments(1), read_back(store, manifest, tmp_path / "before")
    assert merging(store, manifest).merge(PLACE, SETTINGS) == PARTS
    [new] = manifest.segments(1)
    assert (new.base_offset, new.end_offset, new.record_count) == (0, 18, 18)
    assert (new.min_timestamp_ms, new.max_timestamp_ms) == (0, PARTS + 1)
    assert new.committed_ms == max(each.committed_ms for each in old)
    for offset in range(18):
        found = read_back(store, manifest, tmp_path / str(offset), offset=offset)
        assert found == [each for each in before if each[0] >= offset]
    assert manifest.replaced_files([each.path for each in old], NOW_MS) == {e.path for e in old}
    assert merging(store, manifest).merge(PLACE, SETTINGS) == 0


def test_epochs_markers_and_the_kind_of_time_stay(
    tmp_path: Path, store: MemoryStore, manifest: WritableManifest
) -> None:
    marker = batch(6, 1, attributes=ATTRIBUTE_CONTROL | ATTRIBUTE_TRANSACTIONAL | LOG_APPEND)
    parts = [batch(3 * i, 3, attributes=LOG_APPEND) for i in range(2)]
    parts += [marker, *(batch(7 + 3 * i, 3, attributes=LOG_APPEND) for i in range(2))]
    shard = FakeShard(parts)
    seal(store, shard, manifest, sealed_end=0, end=shard.end, segment_bytes=1)
    before = _all_batches(store, manifest)
    segments = [each for each in manifest.segments(1) if each.kind == "parquet"]
    assert merging(store, manifest).merge(PLACE, SETTINGS) >= 2
    assert len(manifest.segments(1)) < len(segments) + 1
    assert _all_batches(store, manifest) == before
    opened = open_segment(store, manifest.segments(1)[0])
    assert isinstance(opened, ParquetSegment)
    assert opened.is_log_append


def _all_batches(store: MemoryStore, manifest: WritableManifest) -> list[object]:
    """Every record of every file, and what its batch says of it."""
    data = b""
    for segment in manifest.segments(1):
        opened = open_segment(store, segment)
        assert isinstance(opened, ParquetSegment)
        for span in opened.spans:
            data += b"".join(opened.batches(span).pieces)
    return [
        (record.offset, record.timestamp_ms, record.value, batch.attributes, batch.leader_epoch)
        for batch in read_batches(data)
        for record in batch.records()
    ]


def test_raw_segments_are_merged_as_they_are(
    tmp_path: Path, store: MemoryStore, manifest: WritableManifest
) -> None:
    sealed(store, manifest, *rows(attributes=UNKNOWN_ATTRIBUTE))
    assert {each.kind for each in manifest.segments(1)} == {"raw"}
    before = read_back(store, manifest, tmp_path / "before")
    assert merging(store, manifest).merge(PLACE, SETTINGS) == PARTS
    assert [each.kind for each in manifest.segments(1)] == ["raw"]
    assert read_back(store, manifest, tmp_path / "after") == before
    reader = ColdReader(store, manifest, Cache(tmp_path / "times", 1 << 20, lambda: 0, "a"))
    assert reader.offset_for_time(1, 4) == (8, 4)


def test_each_kind_of_time_is_merged_with_its_own(
    store: MemoryStore, manifest: WritableManifest
) -> None:
    parts = [batch(i, attributes=LOG_APPEND if i >= 3 else 0) for i in range(5)]
    sealed(store, manifest, *parts)
    assert merging(store, manifest).merge(PLACE, SETTINGS) == 3
    assert [each.base_offset for each in manifest.segments(1)] == [0, 3, 4]


def test_files_whose_columns_have_very_many_values_are_not_made_one(
    store: MemoryStore, manifest: WritableManifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Door fault 6, its kind: the sealer had no turn for others while it merged them."""
    sealed(store, manifest, *rows())
    [one, *_] = manifest.segments(1)
    file = open_segment(store, one)
    assert isinstance(file, ParquetSegment)
    assert file.value_count >= 3 * 6  # Three records, and at least as many columns.
    monkeypatch.setattr(merge_module, "VALUES_MAX", 2 * file.value_count)
    assert merging(store, manifest).merge(PLACE, SETTINGS) == 2
    monkeypatch.setattr(merge_module, "VALUES_MAX", file.value_count)
    assert merging(store, manifest).merge(PLACE, SETTINGS) == 0


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_kill_loses_nothing_and_leaves_nothing(
    tmp_path: Path, store: MemoryStore, manifest: WritableManifest, *, after: bool
) -> None:
    shard = sealed(store, manifest, *rows())
    before = read_back(store, manifest, tmp_path / "before")
    with pytest.raises(Killed):
        merging(store, manifest, Fuse(1, after=after)).merge(PLACE, SETTINGS)
    assert read_back(store, manifest, tmp_path / "killed") == before
    job = Housekeeping(store, shard, manifest)
    swept(job, before_ms=51)
    kept = PARTS if not after else PARTS + 1
    assert len(list(store.list())) == kept, "what was replaced lately stays"
    merging(store, manifest).merge(PLACE, SETTINGS)
    swept(job, before_ms=NOW_MS + 1)
    [line] = manifest.segments(1)
    assert [facts.key for facts in store.list()] == [line.path]
    assert read_back(store, manifest, tmp_path / "swept") == before


def test_a_partition_that_is_deleted_meanwhile_leaves_no_file(
    store: MemoryStore, manifest: WritableManifest
) -> None:
    sealed(store, manifest, *rows())

    class Deleting(FusedManifest):
        def replace_segments(self, *args: object) -> bool:
            return False

    before = {facts.key for facts in store.list()}
    assert Merging(store, Deleting(manifest), draw).merge(PLACE, SETTINGS) == 0
    assert {facts.key for facts in store.list()} == before


def test_a_damaged_file_is_named_and_not_merged(
    store: MemoryStore, manifest: WritableManifest
) -> None:
    sealed(store, manifest, *rows())
    damaged: Segment = manifest.segments(1)[2]
    store.delete(damaged.path)
    with pytest.raises(Damaged, match="the file is missing"):
        merging(store, manifest).merge(PLACE, SETTINGS)
    assert len(manifest.segments(1)) == PARTS
