"""Retention and sweeping, killed at any step; no reader is sent to a deleted file."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from smq.model.config import Config
from smq.model.errors import PreconditionFailed, Unavailable
from smq.model.now import Now
from smq.model.segments import SEGMENTS_PREFIX, Segment
from smq.model.topic_settings import TopicSettings
from smq.sealer.housekeeping import DELETED_MAX, Housekeeping, drop_unsealed
from smq.sealer.room import Room
from smq.sealer.seal import Sealing
from smq.store.manifest import PAGE_SEGMENTS, WritableManifest
from smq.testing.memory_store import MemoryStore
from smq.testing.sealing import FakeShard, Fuse, FusedManifest, HangingManifest, Killed, draw
from smq.wire.internal.messages import PartitionState
from tests.sealer.sealed import PLACE, batch, manifest_in, seal, swept

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


def state_of(shard: FakeShard, start: int | None = None) -> PartitionState:
    """What a shard says of its partition now."""
    unsealed = shard.unsealed(1)
    begin = shard.start if start is None else start
    ends = unsealed.undecided_end, shard.end
    return PartitionState(
        1, 0, begin, unsealed.sealed_end, unsealed.stable_end, unsealed.bytes, 0, *ends
    )


def _retain(job: Housekeeping, shard_start: int, now_ms: int = 102) -> int:
    shard = cast("FakeShard", job.shard)
    return job.retain(PLACE, SETTINGS, Now(0, now_ms), state_of(shard, shard_start)).log_start


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
    swept(job, before_ms=51)
    assert [f.key for f in store.list()] == [each.path for each in manifest.segments(1)]


def test_a_log_start_that_may_not_be_durable_deletes_nothing_in_the_log(
    store: MemoryStore, manifest: WritableManifest, shard: FakeShard
) -> None:
    """Data fault 8, its kind: a start shows before its sync returns; one that a power loss takes
    would leave the log without records that the manifest promises."""
    manifest.set_log_start(1, 2)
    with pytest.raises(Unavailable, match="does not answer"):
        _retain(Housekeeping(store, shard, HangingManifest(manifest)), shard_start=0)
    assert shard.start == 0


def test_only_files_that_nothing_names_are_swept(
    manifest: WritableManifest, shard: FakeShard, store: MemoryStore
) -> None:
    orphan = "topics/kafka/deleted/partition=0/x.parquet"
    metadata = "topics/kafka/orders/metadata/1.json"
    for key in (orphan, metadata, "payloads/kafka/orders/1"):
        store.put(key, b"x")
    job = Housekeeping(store, shard, manifest)
    named = [segment.path for segment in manifest.segments(1)]
    assert job.unnamed([orphan, metadata, *named], before_ms=50) == [orphan]
    assert job.sweep([orphan, metadata, *named], before_ms=50) == [orphan]
    assert len(list(store.list())) == 4 + 2


def test_a_line_that_comes_after_its_file_was_swept_frees_no_log(
    manifest: WritableManifest, shard: FakeShard
) -> None:
    """Data fault 8: the coordinator hangs, its sealer gives up, and the sweep is quicker."""
    store, lines = MemoryStore(), list[Segment]()

    class Hanging(FusedManifest):
        def commit_segments(self, segments: list[Segment]) -> list[Segment]:
            lines.extend(segments)
            raise Unavailable("coordinator", "no answer")

    with pytest.raises(Unavailable):
        seal(store, shard, Hanging(manifest), sealed_end=0, end=4)
    assert swept(Housekeeping(store, shard, manifest), before_ms=51) == [lines[0].path]
    with pytest.raises(PreconditionFailed, match="its line comes too late"):
        manifest.commit_segments(lines)
    assert (manifest.segments(1), shard.sealed_end) == ([], 0)
    assert seal(store, shard, manifest, sealed_end=0, end=4) == 4
    [line] = manifest.segments(1)
    assert store.head(line.path).length == line.bytes


def test_a_file_that_is_named_between_two_looks_of_a_sweep_stays(
    manifest: WritableManifest, shard: FakeShard, store: MemoryStore
) -> None:
    """Data fault 8: what the sweep has read of the manifest is old by the time it deletes."""

    class Late(FusedManifest):
        def condemn_files(self, paths: Sequence[str]) -> list[str]:
            manifest.commit_segments([replace(line, path=path) for path in paths])
            return super().condemn_files(paths)

    store.put("topics/kafka/orders/partition=0/late.parquet", b"x")
    line = replace(manifest.segments(1)[-1], base_offset=4, end_offset=5)
    assert swept(Housekeeping(store, shard, Late(manifest)), before_ms=51) == []
    assert len(list(store.list())) == len(manifest.segments(1)) == 5


def test_retention_that_comes_late_deletes_no_segment_that_has_taken_the_place(
    manifest: WritableManifest, shard: FakeShard, store: MemoryStore
) -> None:
    """Data fault 8: the order outlives its asker; meanwhile its segment was merged with others."""
    orders = list[Sequence[str]]()

    class Hanging(FusedManifest):
        def delete_segments(self, paths: Sequence[str], *, are_replaced: bool = False) -> None:
            orders.append(paths)
            raise Unavailable("coordinator", "no answer")

    with pytest.raises(Unavailable):
        _retain(Housekeeping(store, shard, Hanging(manifest)), 0)
    old = manifest.segments(1)
    merged = replace(old[0], end_offset=old[-1].end_offset, path="topics/merged")
    assert manifest.replace_segments(old, merged, now_ms=1)
    manifest.delete_segments(orders[0])
    assert manifest.segments(1) == [merged]


def test_unsealable_records_are_dropped_behind_sealed_segments_that_are_due(
    manifest: WritableManifest, shard: FakeShard, store: MemoryStore
) -> None:
    shard.append(batch(4, time=4))
    shard.append(batch(5, time=1000))

    def drop(now_ms: int) -> int:
        return drop_unsealed(shard, manifest, 1, SETTINGS, now_ms)

    assert drop(now_ms=103) == 0  # A sealed segment is kept: what follows it is, too.
    assert drop(now_ms=105) == 5
    assert (manifest.log_start(1), shard.start) == (5, 5)
    assert len(list(store.list())) == 4
    assert _retain(Housekeeping(store, shard, manifest), 5) == 5
    assert not list(store.list())


class CountedManifest(FusedManifest):
    """A manifest that counts the segments it was asked for."""

    def __init__(self, manifest: WritableManifest) -> None:
        super().__init__(manifest)
        self.read = 0
        inner = manifest.segments

        def segments(*arguments: Any, **options: Any) -> list[Segment]:
            found = inner(*arguments, **options)
            self.read += len(found)
            return found

        self.segments = segments


def _commit_many(manifest: WritableManifest, count: int) -> None:
    lines = [
        Segment(1, i, i + 1, "parquet", f"topics/many/{i}", 1, 0, 1, i, i, 0, 1)
        for i in range(4, count)
    ]
    manifest.commit_segments(lines)


def test_where_nothing_is_old_a_page_is_looked_at_however_many_there_are(
    manifest: WritableManifest, shard: FakeShard, store: MemoryStore
) -> None:
    _commit_many(manifest, 1000)
    counted = CountedManifest(manifest)
    assert _retain(Housekeeping(store, shard, counted), 0, now_ms=100) == 0
    assert counted.read <= PAGE_SEGMENTS
    counted.read = 0
    assert drop_unsealed(shard, counted, 1, SETTINGS, 100) == 0
    assert counted.read <= PAGE_SEGMENTS


def test_so_many_segments_are_deleted_at_a_time(
    manifest: WritableManifest, shard: FakeShard, store: MemoryStore
) -> None:
    _commit_many(manifest, 3 * DELETED_MAX)
    job = Housekeeping(store, shard, manifest)
    starts, has_more = [], True
    while has_more:
        retention = job.retain(PLACE, SETTINGS, Now(0, 10_000), state_of(shard))
        starts.append(shard.start)
        assert len(retention.deleted) <= DELETED_MAX
        assert manifest.segments(1, count_max=1) == manifest.segments(1, shard.start, count_max=1)
        has_more = retention.has_more
    assert starts == [DELETED_MAX, 2 * DELETED_MAX, 3 * DELETED_MAX]
    assert not list(store.list("topics/kafka"))


def test_a_sweep_reads_no_segments(
    manifest: WritableManifest, shard: FakeShard, store: MemoryStore
) -> None:
    _commit_many(manifest, 1000)
    for i in range(4, 8):
        store.put(f"topics/many/{i}", b"x")
    store.put("topics/many/orphan", b"x")
    counted = CountedManifest(manifest)
    assert swept(Housekeeping(store, shard, counted), before_ms=51) == ["topics/many/orphan"]
    assert counted.read == 0
    assert len(list(store.list(SEGMENTS_PREFIX))) == 8


def test_records_that_the_shard_deleted_are_deleted_from_the_manifest(
    manifest: WritableManifest, shard: FakeShard, store: MemoryStore
) -> None:
    shard.start = 3
    assert _retain(Housekeeping(store, shard, manifest), 3, now_ms=100) == 3
    assert (manifest.log_start(1), shard.start) == (3, 3)
    assert [each.base_offset for each in manifest.segments(1)] == [3]


def test_retention_keeps_what_it_should_when_the_log_was_sealed_before_its_turn(
    manifest: WritableManifest, shard: FakeShard
) -> None:
    """Data fault 10: what was unsealed when the job was queued is in the manifest when it runs."""
    store = MemoryStore()
    asked = state_of(shard)
    seal(store, shard, manifest, sealed_end=0, end=4, segment_bytes=1)
    size = manifest.sealed_bytes(1)
    settings = TopicSettings.of(
        {"retention.ms": "-1", "retention.bytes": str(size)}, Config(shards=1)
    )
    job = Housekeeping(store, shard, manifest)
    assert job.retain(PLACE, settings, Now(0, 102), asked).deleted == []
    assert job.retain(PLACE, settings, Now(0, 102), state_of(shard)).deleted == []
    assert len(manifest.segments(1)) == 4


def test_only_so_much_is_dropped_unsealed_as_the_log_has_too_much_when_it_is_dropped(
    manifest: WritableManifest,
) -> None:
    """Data fault 10: a seal that came first has left less than the job knew of."""
    shard = FakeShard([batch(i, time=i) for i in range(4)])
    one = shard.unsealed(1).bytes // 4
    settings = TopicSettings.of(
        {"retention.ms": "-1", "retention.bytes": str(2 * one)}, Config(shards=1)
    )
    shard.log_start(1, 2)  # Sealed and deleted meanwhile: two are left, and may stay.
    assert drop_unsealed(shard, manifest, 1, settings, 102) == 0
    shard.append(batch(4, time=4))
    assert drop_unsealed(shard, manifest, 1, settings, 102) == 3


def undecided_under(shard: FakeShard, store: MemoryStore, manifest: WritableManifest) -> int:
    """Seal [1, 3) of a log of four as it was sent, under a transaction that is open from 1 on;
    returns the size of a batch."""
    seal(store, shard, manifest, sealed_end=0, end=1, segment_bytes=1)
    shard.stable_end = 1
    sealing = Sealing(store, shard, FusedManifest(manifest), lambda: 1000, draw, Room())
    assert sealing.seal_undecided(PLACE, 1, 3, 1) == 3
    return shard.unsealed(1).bytes


def kept(retention_bytes: int, retention_ms: int = -1) -> TopicSettings:
    names = {"retention.ms": str(retention_ms), "retention.bytes": str(retention_bytes)}
    return TopicSettings.of(names, Config(shards=1))


def test_undecided_records_count_for_retention_and_stay(
    manifest: WritableManifest, shard: FakeShard
) -> None:
    """Use fault 2: a topic whose transactions stay open keeps its retention, as in Kafka, and no
    record goes that readers of committed records have not been shown."""
    store = MemoryStore()
    unsealed_bytes = undecided_under(shard, store, manifest)
    undecided_bytes = sum(each.bytes for each in manifest.undecided(1))
    job, behind = Housekeeping(store, shard, manifest), undecided_bytes + unsealed_bytes
    retention = job.retain(PLACE, kept(behind + 1), Now(0, 102), state_of(shard))
    assert retention.deleted == []
    for settings in (kept(0), kept(-1, 0)):
        assert drop_unsealed(shard, manifest, 1, settings, 10_000) == 0
    retention = job.retain(PLACE, kept(behind), Now(0, 102), state_of(shard))
    assert [each.base_offset for each in retention.deleted] == [0]
    assert (manifest.log_start(1), shard.start) == (1, 1)
    for settings in (kept(0), kept(-1, 0)):
        assert drop_unsealed(shard, manifest, 1, settings, 10_000) == 0
        assert job.retain(PLACE, settings, Now(0, 10_000), state_of(shard)).deleted == []
    assert [each.base_offset for each in manifest.undecided(1)] == [1, 2]


@pytest.mark.parametrize("settings", [kept(0), kept(-1, 0)])
def test_a_log_is_dropped_behind_what_is_decided_and_not_sealed_again(
    manifest: WritableManifest, shard: FakeShard, settings: TopicSettings
) -> None:
    """Use fault 2: the filer is away since the transaction has ended."""
    undecided_under(shard, MemoryStore(), manifest)
    shard.stable_end = None
    assert drop_unsealed(shard, manifest, 1, settings, 10_000) == 4
    assert (manifest.log_start(1), shard.start) == (4, 4)


def test_a_log_stays_behind_what_is_decided_and_has_its_retention(
    manifest: WritableManifest, shard: FakeShard
) -> None:
    """Use fault 2: the log's own records are older, and count less."""
    unsealed_bytes = undecided_under(shard, MemoryStore(), manifest)
    shard.stable_end = None
    undecided_bytes = [each.bytes for each in manifest.undecided(1)]
    settings = kept(unsealed_bytes + undecided_bytes[1])
    assert drop_unsealed(shard, manifest, 1, settings, 10_000) == 0
    assert drop_unsealed(shard, manifest, 1, kept(-1, 9_999), 10_000) == 0
