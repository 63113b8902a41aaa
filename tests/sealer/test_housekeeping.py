"""Retention and sweeping, killed at any step; nobody is sent to a file that is gone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from smq.model.config import Config
from smq.model.topic_configs import TopicSettings
from smq.sealer.housekeeping import Housekeeping, drop_unsealed
from smq.sealer.ports import SEGMENTS_PREFIX
from smq.store.manifest import WritableManifest
from smq.testing.memory_store import MemoryStore
from smq.testing.sealing import FakeShard, Fuse, FusedManifest, Killed
from tests.sealer.sealed import PLACE, batch, manifest_in, seal

SETTINGS = TopicSettings.of({"retention.ms": "100"}, Config(shards=1))


@pytest.fixture
def manifest(tmp_path: Path) -> Iterator[WritableManifest]:
    with manifest_in(tmp_path) as manifest:
        yield manifest


@pytest.fixture
def shard() -> FakeShard:
    return FakeShard([batch(i, time=i) for i in range(4)])


@pytest.fixture
def store(manifest: WritableManifest, shard: FakeShard) -> MemoryStore:
    store = MemoryStore(lambda: 50)
    seal(store, shard, manifest, sealed_end=0, end=4, segment_bytes=1)
    return store


def _retain(job: Housekeeping, shard_start: int, now_ms: int = 102) -> int:
    return job.retain(PLACE, SETTINGS, now_ms, shard_start=shard_start).log_start


def test_old_segments_are_deleted_everywhere(
    manifest: WritableManifest, shard: FakeShard, store: MemoryStore
) -> None:
    assert _retain(Housekeeping(store, shard, manifest), 0) == 2
    assert (manifest.log_start(1), shard.start) == (2, 2)
    left = manifest.segments(1)
    assert [each.base_offset for each in left] == [2, 3]
    assert [facts.key for facts in store.list()] == [each.path for each in left]


def test_where_nothing_is_old_nothing_is_done(
    manifest: WritableManifest, shard: FakeShard, store: MemoryStore
) -> None:
    fuse = Fuse()
    shard.fuse = fuse
    job = Housekeeping(store, shard, FusedManifest(manifest, fuse))
    assert _retain(job, 0, now_ms=100) == 0
    assert fuse.taken == 0


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", range(1, 4))
def test_a_kill_at_any_step_is_made_good_by_the_next(
    manifest: WritableManifest, shard: FakeShard, store: MemoryStore, step: int, after: bool
) -> None:
    fuse = Fuse(step, after=after)
    shard.fuse = fuse
    with pytest.raises(Killed):
        _retain(Housekeeping(store, shard, FusedManifest(manifest, fuse)), 0)
    named = {segment.path for segment in manifest.segments(1, manifest.log_start(1))}
    assert named <= {facts.key for facts in store.list()}
    shard.fuse = Fuse()
    job = Housekeeping(store, shard, manifest)
    assert _retain(job, shard.start) == 2
    assert (manifest.log_start(1), shard.start) == (2, 2)
    job.sweep(store.list(SEGMENTS_PREFIX), before_ms=51)
    assert [f.key for f in store.list()] == [each.path for each in manifest.segments(1)]


def test_only_old_files_that_nothing_names_are_swept(
    manifest: WritableManifest, shard: FakeShard, store: MemoryStore
) -> None:
    store.put("topics/kafka/deleted/partition=0/x.parquet", b"x")
    store.put("payloads/kafka/orders/1", b"somebody else's business")
    job = Housekeeping(store, shard, manifest)
    assert job.sweep(store.list(SEGMENTS_PREFIX), before_ms=50) == []
    assert job.sweep(store.list(SEGMENTS_PREFIX), before_ms=51) == [
        "topics/kafka/deleted/partition=0/x.parquet"
    ]
    assert len(list(store.list())) == 5


def test_what_could_not_be_sealed_is_dropped_behind_sealed_segments_that_go_too(
    manifest: WritableManifest, shard: FakeShard, store: MemoryStore
) -> None:
    shard.append(batch(4, time=4))
    shard.append(batch(5, time=1000))

    def drop(now_ms: int) -> int:
        return drop_unsealed(shard, manifest, 1, SETTINGS, now_ms, unsealed_bytes=1)

    assert drop(now_ms=103) == 0  # A sealed segment is kept: what follows it is, too.
    assert drop(now_ms=105) == 5
    assert (manifest.log_start(1), shard.start) == (5, 5)
    assert len(list(store.list())) == 4
    assert _retain(Housekeeping(store, shard, manifest), 5) == 5
    assert not list(store.list())
