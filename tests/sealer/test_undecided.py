"""Undecided segments: what is sealed as it was sent is sealed again once it is decided."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shm.kernels.base.words import ATTRIBUTE_TRANSACTIONAL, BATCH_ATTRIBUTES_AT
from smq.filer.store import CREATE, Data, Facts, Mode, Store
from smq.model.errors import Unavailable
from smq.model.references import PREFIX
from smq.model.segments import SegmentReach
from smq.sealer.cold import Cache, ColdReader
from smq.sealer.housekeeping import Housekeeping
from smq.sealer.payloads import PayloadSweep
from smq.sealer.room import Room
from smq.sealer.seal import Sealing
from smq.sealer.undecided import Undecided
from smq.store.manifest import WritableManifest
from smq.testing.memory_store import MemoryStore
from smq.testing.payloads import HANDLE_HEADERS, uploaded
from smq.testing.sealing import FakeShard, Fuse, FusedManifest, Killed, draw
from smq.wire.internal.messages import Owner
from smq.wire.markers import Marker, write_marker
from smq.wire.records import Headers, Record, crc_of, write_batch
from tests.sealer.sealed import PLACE, batch, forget_names, manifest_in, read_back, swept

NUMBER = PLACE.number


@pytest.fixture
def manifest(tmp_path: Path) -> Iterator[WritableManifest]:
    with manifest_in(tmp_path) as manifest:
        yield manifest


class FusedStore(MemoryStore):
    """A store that may be the last thing that a process touches."""

    fuse = Fuse()

    def put(self, key: str, data: Data, mode: Mode = CREATE) -> Facts:
        facts: Facts = self.fuse.step(lambda: super(FusedStore, self).put(key, data, mode))
        return facts


def sealing_of(
    store: Store, shard: FakeShard, manifest: WritableManifest, fuse: Fuse | None = None
) -> Sealing:
    fused = FusedManifest(manifest, fuse or Fuse())
    return Sealing(store, shard, fused, lambda: 1, draw, Room())


def test_undecided_segments_are_read_in_place_of_the_log(
    manifest: WritableManifest,
) -> None:
    """Use fault 2: a shard that has nothing of it any more is asked for nothing."""
    store, batches = MemoryStore(), [batch(0, 2), batch(2, 3)]
    shard = FakeShard(batches)
    sealing = sealing_of(store, shard, manifest)
    assert sealing.seal_undecided(PLACE, 0, 5, 1 << 20) == 5
    assert manifest.segments(NUMBER) == []
    [line] = manifest.undecided(NUMBER)
    assert (line.base_offset, line.end_offset, shard.sealed_end) == (0, 5, 5)
    undecided = Undecided(store, shard, sealing.manifest, None)
    assert undecided.batches(NUMBER, 0, 5, 1 << 20) == b"".join(batches)
    assert undecided.batches(NUMBER, 0, 2, 1 << 20) == batches[0]
    assert undecided.batches(NUMBER, 5, 9, 1 << 20) is None
    asked = shard.asked
    assert sealing.seal(PLACE, 0, 5, 1 << 20) == 5
    assert shard.asked == asked
    [segment] = manifest.segments(NUMBER)
    assert (segment.kind, segment.base_offset, segment.end_offset) == ("parquet", 0, 5)


END, SMALL = 8, 200  # Two batches to a file.


def made() -> list[bytes]:
    return [batch(offset, 2) for offset in range(0, END, 2)]


def all_of(store: Store, manifest: WritableManifest, cache_dir: Path) -> list[int]:
    """The offsets that a reader gets, from segments of either kind."""
    found = read_back(store, FusedManifest(manifest), cache_dir, bytes_max=1)
    return [offset for offset, _ in found]


def lit(store: FusedStore, shard: FakeShard, step: int, *, after: bool) -> Fuse:
    """All ports share the fuse."""
    fuse = Fuse(step, after=after)
    store.fuse = shard.fuse = fuse
    return fuse


def unnamed(store: Store, shard: FakeShard, manifest: WritableManifest) -> list[str]:
    """What a sweep long afterwards deletes."""
    return swept(Housekeeping(store, shard, FusedManifest(manifest)), 2)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", range(1, 7))
def test_a_kill_at_any_step_of_sealing_as_sent_is_made_good_by_the_next(
    manifest: WritableManifest, tmp_path: Path, step: int, *, after: bool
) -> None:
    """Use fault 2."""
    store, shard = FusedStore(), FakeShard(made())
    fuse = lit(store, shard, step, after=after)
    with pytest.raises(Killed):
        sealing_of(store, shard, manifest, fuse).seal_undecided(PLACE, 0, END, SMALL)
    lines = manifest.undecided(NUMBER)
    end = lines[-1].end_offset if lines else 0
    assert shard.sealed_end in {end, end - 4}, "the shard knows no more than the manifest"
    assert all_of(store, manifest, tmp_path / "a") == [*range(end)]
    store.fuse = shard.fuse = Fuse()
    sealing = sealing_of(store, shard, manifest)
    assert sealing.seal_undecided(PLACE, 0, END, SMALL) == END
    assert shard.sealed_end == END
    lines = manifest.undecided(NUMBER)
    assert [(each.base_offset, each.end_offset) for each in lines] == [(0, 4), (4, 8)]
    assert all_of(store, manifest, tmp_path / "b") == [*range(END)]
    assert len(unnamed(store, shard, manifest)) == (step in {1, 2, 4, 5}) - _nothing(step, after)
    assert all_of(store, manifest, tmp_path / "c") == [*range(END)]


def _nothing(step: int, after: bool) -> int:
    """Before a file is put nothing is left, and a line that is there names its file."""
    return int((step in {1, 4} and not after) or (step in {2, 5} and after))


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", range(1, 7))
def test_a_kill_at_any_step_of_sealing_what_is_decided_is_made_good_by_the_next(
    manifest: WritableManifest, tmp_path: Path, step: int, *, after: bool
) -> None:
    """Use fault 2: one commit has the new line in and the undecided ones out."""
    store, shard = FusedStore(), FakeShard(made())
    sealing_of(store, shard, manifest).seal_undecided(PLACE, 0, END, SMALL)
    fuse = lit(store, shard, step, after=after)
    with pytest.raises(Killed):
        sealing_of(store, shard, manifest, fuse).seal(PLACE, 0, END, SMALL)
    assert all_of(store, manifest, tmp_path / "a") == [*range(END)]
    store.fuse = shard.fuse = Fuse()
    assert sealing_of(store, shard, manifest).seal(PLACE, 0, END, SMALL) == END
    assert manifest.undecided(NUMBER) == []
    assert manifest.sealed_end(NUMBER) == END
    assert all_of(store, manifest, tmp_path / "b") == [*range(END)]
    unnamed(store, shard, manifest)
    assert all_of(store, manifest, tmp_path / "c") == [*range(END)]


def test_an_undecided_end_that_the_shard_knows_is_not_sent_again(
    manifest: WritableManifest,
) -> None:
    """Use fault 2: each report costs the shard a checkpoint, and came with each seal."""
    store, shard = MemoryStore(), FakeShard(made()[:2])
    sealing_of(store, shard, manifest).seal_undecided(PLACE, 0, 4, SMALL)
    for batch_ in made()[2:]:
        shard.append(batch_)
    shard.fuse = Fuse()
    sealing = sealing_of(store, shard, manifest)
    assert sealing.seal_undecided(PLACE, 0, END, SMALL, known_end=4) == END
    assert shard.fuse.taken == 1, "that more is sealed"
    assert sealing.seal_undecided(PLACE, 0, END, SMALL, known_end=4) == END
    assert shard.fuse.taken == 2, "that it is, once more"


def test_a_part_that_is_decided_does_not_wait_for_the_rest_of_its_file(
    manifest: WritableManifest, tmp_path: Path
) -> None:
    """Use fault 2: the last stable offset may lie anywhere in an undecided segment."""
    store, shard = MemoryStore(), FakeShard(made())
    sealing = sealing_of(store, shard, manifest)
    sealing.seal_undecided(PLACE, 0, END, 1 << 20)
    [line] = manifest.undecided(NUMBER)
    assert sealing.seal(PLACE, 0, 6, 1 << 20) == 6
    assert manifest.undecided(NUMBER) == [line]
    assert all_of(store, manifest, tmp_path) == [*range(END)]
    assert sealing.seal(PLACE, 6, END, 1 << 20) == END
    assert manifest.undecided(NUMBER) == []
    assert [each.end_offset for each in manifest.segments(NUMBER)] == [6, END]


def transactional(offset: int, producer_id: int, value: bytes, headers: Headers = ()) -> bytes:
    """A batch of one record."""
    record = Record(offset, 0, None, value, headers)
    data = bytearray(write_batch([record], producer_id=producer_id, base_sequence=0))
    data[BATCH_ATTRIBUTES_AT + 1] |= ATTRIBUTE_TRANSACTIONAL
    data[17:21] = crc_of(data).to_bytes(4)
    return bytes(data)


def marker(offset: int, producer_id: int, *, committed: bool) -> bytes:
    data = bytearray(write_marker(Marker(producer_id, 0, committed, 0), 0))
    data[:8] = offset.to_bytes(8)
    return bytes(data)


def test_aborted_records_are_left_out_once_decided(
    manifest: WritableManifest, tmp_path: Path
) -> None:
    """Use fault 2: the undecided segment has it, and the shard knows it."""
    batches = [
        transactional(0, 7, b"aborted"),
        transactional(1, 8, b"committed"),
        marker(2, 7, committed=False),
        marker(3, 8, committed=True),
        batch(4),
    ]
    store, shard = MemoryStore(), FakeShard(batches)
    shard.aborted_rows = [(7, 0, 2)]
    sealing = sealing_of(store, shard, manifest)
    assert sealing.seal_undecided(PLACE, 0, 5, 1 << 20) == 5
    undecided = Undecided(store, shard, sealing.manifest, None)
    found = ColdReader(
        store, sealing.manifest, Cache(tmp_path / "u", 1 << 20, lambda: 0, "a")
    ).read(NUMBER, 0, 1 << 20)
    assert found is not None
    assert found.is_undecided
    assert found.path.read_bytes()[found.at : found.at + found.length] == b"".join(batches)
    decided = undecided.batches(NUMBER, 0, 5, 1 << 20)
    assert decided is not None
    assert b"aborted" not in decided
    assert sealing.seal(PLACE, 0, 5, 1 << 20) == 5
    values = [value for _, value in read_back(store, sealing.manifest, tmp_path / "d")]
    assert values == [b"committed", b"value 4"]


def test_records_sealed_during_the_read_are_not_read_from_an_undecided_segment(
    manifest: WritableManifest,
) -> None:
    """Use fault 2: the shard forgets what was aborted once it is sealed, so a reader of the
    undecided file saw it."""
    batches = [transactional(0, 7, b"aborted"), batch(1, END - 1)]
    store, shard = MemoryStore(), FakeShard(batches)
    sealing = sealing_of(store, shard, manifest)
    sealing.seal_undecided(PLACE, 0, END, 1 << 20)

    class Late(FakeShard):
        def aborted(
            self, number: int, start: int, end: int, producers: list[int]
        ) -> list[tuple[int, int, int]]:
            sealing.seal(PLACE, 0, END, 1 << 20)
            return super().aborted(number, start, end, producers)

    reader = Undecided(store, Late([]), sealing.manifest, None)
    assert reader.batches(NUMBER, 0, END, 1 << 20) is None


def test_times_are_looked_up_in_undecided_segments_too(
    manifest: WritableManifest, tmp_path: Path
) -> None:
    """Use fault 2. Below the limit: a reader of committed records is told of no other."""
    store = MemoryStore()
    shard = FakeShard([batch(0, 2, time=100), batch(2, 2, time=200), batch(4, 2, time=300)])
    sealing = sealing_of(store, shard, manifest)
    assert sealing.seal_undecided(PLACE, 0, 6, 1 << 20) == 6
    assert sealing.seal(PLACE, 0, 2, 1 << 20) == 2
    reader = ColdReader(store, sealing.manifest, Cache(tmp_path, 1 << 20, lambda: 0, "a"))
    assert reader.offset_for_time(NUMBER, 101) == (1, 101)
    assert reader.offset_for_time(NUMBER, 201) == (3, 201)
    assert reader.offset_for_time(NUMBER, 250) == (4, 300)
    assert reader.offset_for_time(NUMBER, 250, limit=4) is None
    assert reader.offset_for_time(NUMBER, 302) is None
    assert reader.newest(NUMBER, 0) == (5, 301)
    assert reader.newest(NUMBER, 0, limit=4) == (3, 201)


def test_a_log_start_within_undecided_segments_drops_those_below_it(
    manifest: WritableManifest, tmp_path: Path
) -> None:
    """Use fault 2: DeleteRecords."""
    store, shard = MemoryStore(), FakeShard(made())
    sealing = sealing_of(store, shard, manifest)
    sealing.seal_undecided(PLACE, 0, END, SMALL)
    manifest.set_log_start(NUMBER, 5)
    manifest.drop_decided(NUMBER, 1)
    assert [each.base_offset for each in manifest.undecided(NUMBER)] == [4]
    assert sealing.seal(PLACE, 5, END, SMALL, log_start=5) == END
    assert manifest.undecided(NUMBER) == []
    found = read_back(store, sealing.manifest, tmp_path, offset=5)
    assert [offset for offset, _ in found] == [5, 6, 7]


def test_of_an_undecided_segment_is_read_what_is_within_reach(
    manifest: WritableManifest, tmp_path: Path
) -> None:
    """Use fault 2: nobody passes the last stable offset, and a first batch moves each client on."""
    store, shard = MemoryStore(), FakeShard(made())
    sealing = sealing_of(store, shard, manifest)
    sealing.seal_undecided(PLACE, 0, END, 1 << 20)
    reader = ColdReader(store, sealing.manifest, Cache(tmp_path, 1 << 20, lambda: 0, "a"))

    def end(offset: int, reach: SegmentReach) -> int:
        found = reader.read(NUMBER, offset, 1 << 20, reach=reach)
        return -1 if found is None else found.next_offset

    assert end(0, SegmentReach()) == END
    assert end(1, SegmentReach(limit=6)) == 6
    assert end(4, SegmentReach(limit=4)) == -1
    assert end(0, SegmentReach(6, told_end=4)) == 4
    assert end(4, SegmentReach(6, told_end=5)) == 6


ORPHAN_MS = 5000
OWNER = Owner(PLACE.namespace, PLACE.topic, ORPHAN_MS, [(NUMBER, 1)])


def payloads_after_a_sweep(
    store: MemoryStore, shard: FakeShard, manifest: WritableManifest
) -> set[str]:
    """The keys of the payloads that two sweeps leave, long after all uploads."""
    job, now_ms = PayloadSweep(store, lambda _: shard, manifest), 10 * ORPHAN_MS
    for late_ms in (0, ORPHAN_MS):
        keys = job.orphans(store.list(PREFIX), [OWNER], now_ms, 0)
        job.sweep(keys, [OWNER], now_ms + late_ms, 0)
    return {facts.key for facts in store.list(PREFIX)}


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
def test_a_payload_stays_while_an_undecided_segment_names_it(
    manifest: WritableManifest, *, committed: bool
) -> None:
    """Use fault 2: and behind the decision too, unless the transaction was aborted."""
    store = MemoryStore(lambda: 0)
    reference, nameless = (uploaded(store, PLACE.topic, each) for each in (b"named", b"nameless"))
    handle = transactional(0, 7, reference.handle(), HANDLE_HEADERS)
    shard = FakeShard([handle, batch(1), marker(2, 7, committed=committed)])
    shard.aborted_rows = [] if committed else [(7, 0, 2)]
    sealing = sealing_of(store, shard, manifest)
    assert sealing.seal_undecided(PLACE, 0, 3, 1 << 20) == 3
    key = reference.key(PLACE.topic)
    assert payloads_after_a_sweep(store, shard, manifest) == {key}
    unnamed(store, shard, manifest)
    assert sealing.seal(PLACE, 0, 3, 1 << 20) == 3
    forget_names(manifest)
    assert payloads_after_a_sweep(store, shard, manifest) == ({key} if committed else set())
    assert nameless.key(PLACE.topic) not in {facts.key for facts in store.list(PREFIX)}


@pytest.mark.parametrize("step", range(1, 4))
def test_its_payload_is_there_at_each_step_of_sealing_it_again(
    manifest: WritableManifest, step: int
) -> None:
    """Use fault 2: the new file names it before the undecided one lets it go."""
    store = FusedStore(lambda: 0)
    reference = uploaded(store, PLACE.topic, b"named")
    shard = FakeShard([transactional(0, 7, reference.handle(), HANDLE_HEADERS)])
    sealing_of(store, shard, manifest).seal_undecided(PLACE, 0, 1, 1 << 20)
    fuse = lit(store, shard, step, after=True)
    with pytest.raises(Killed):
        sealing_of(store, shard, manifest, fuse).seal(PLACE, 0, 1, 1 << 20)
    store.fuse = shard.fuse = Fuse()
    forget_names(manifest)
    assert payloads_after_a_sweep(store, shard, manifest) == {reference.key(PLACE.topic)}


class FullStore(MemoryStore):
    """A store that takes nothing for a while."""

    is_full = False

    def put(self, key: str, data: Data, mode: Mode = CREATE) -> Facts:
        if self.is_full:
            raise Unavailable(key, "no space left on device")
        return super().put(key, data, mode)


def test_a_full_disk_loses_nothing_of_it_and_is_tried_again(
    manifest: WritableManifest, tmp_path: Path
) -> None:
    """Use fault 2: before the decision and after it."""
    store, shard = FullStore(), FakeShard(made())
    sealing = sealing_of(store, shard, manifest)
    for seal in (sealing.seal_undecided, sealing.seal):
        store.is_full = True
        with pytest.raises(Unavailable, match="no space"):
            seal(PLACE, 0, END, SMALL)
        store.is_full = False
        assert seal(PLACE, 0, END, SMALL) == END
        assert all_of(store, manifest, tmp_path / seal.__name__) == [*range(END)]
    assert manifest.undecided(NUMBER) == []
