"""Payloads live as long as a record names them, whichever process is killed at any step.

The property: at every moment each handle that can be read has its payload, and when all has come to
rest nothing is in the filer that no record names.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings, strategies as st

from shm.kernels.twin import records as plain
from smq.filer.local import LocalStore
from smq.filer.store import CREATE, Data, Facts, Mode
from smq.model.config import Config
from smq.model.errors import PeerError, Unavailable
from smq.model.now import Now
from smq.model.references import PREFIX, SETTLED_MS, Reference
from smq.model.topic_settings import TopicSettings
from smq.sealer.decode import cut
from smq.sealer.housekeeping import Housekeeping
from smq.sealer.pages import Pages
from smq.sealer.payloads import CLOCK_STEP_MS, LOOKS_AT_ONCE, PayloadSweep, look_up, payloads_of
from smq.store.manifest import WritableManifest
from smq.testing.memory_store import MemoryStore
from smq.testing.payloads import HANDLE_HEADERS, handle_batch, reference_to, uploaded
from smq.testing.sealing import FakeShard, Fuse, FusedManifest, HangingManifest, Killed
from smq.wire.compression import Codec
from smq.wire.internal.messages import Ends, Owner, PartitionState
from smq.wire.records import Record, write_batch
from tests.sealer.sealed import PLACE, batch, forget_names, manifest_in, read_back, seal, swept

ORPHAN_MS = 5000
OLD_MS = ORPHAN_MS + CLOCK_STEP_MS + 1
RETENTION_MS = 20_000
OWNER = Owner(PLACE.namespace, PLACE.topic, ORPHAN_MS, [(PLACE.number, 1)])
SETTINGS = TopicSettings.of({"retention.ms": str(RETENTION_MS)}, Config(shards=1))


@pytest.fixture
def manifest(tmp_path: Path) -> Iterator[WritableManifest]:
    with manifest_in(tmp_path) as manifest:
        yield manifest


def sweep(
    store: MemoryStore, shard: FakeShard, manifest: WritableManifest, now_ms: int = OLD_MS
) -> list[str]:
    """What two sweeps delete of a topic's payloads that were uploaded at 0."""
    job = PayloadSweep(store, lambda _: shard, manifest)
    keys = job.orphans(store.list(PREFIX), [OWNER], now_ms, 0)
    assert job.sweep(keys, [OWNER], now_ms, 0) == [], "what was just condemned may be in a check"
    return job.sweep(keys, [OWNER], now_ms + ORPHAN_MS, 0)


# What there is of payloads.


class Flaky(MemoryStore):
    """A store that cannot be asked for some keys."""

    def __init__(self, away: set[str]) -> None:
        super().__init__(lambda: 7)
        self._away = away

    def head(self, key: str) -> Facts:
        if key in self._away:
            raise Unavailable(key, "it is away")
        return super().head(key)


def test_payloads_are_looked_up_together() -> None:
    store, keys = MemoryStore(lambda: 7), [str(number) for number in range(3 * LOOKS_AT_ONCE)]
    for key in keys:
        store.put(key, key.encode())
    found = look_up(store, ["none", *keys])
    assert found == {"none": None, **{key: (len(key), 7) for key in keys}}


def test_a_key_whose_lookup_fails_is_left_out() -> None:
    store = Flaky({"away"})
    store.put("there", b"1234")
    assert look_up(store, ["there", "away"]) == {"there": (4, 7)}
    with pytest.raises(Unavailable):
        look_up(store, ["away"])


# Which payloads records name.


def named(data: bytes) -> list[str]:
    return [each for piece in cut(data) for each in payloads_of(piece)]


def test_handles_of_every_kind_of_piece_are_found() -> None:
    first, second, third = (reference_to(b"x", i) for i in range(3))
    rows = handle_batch([first, b"plain"])
    not_text = Record(2, 0, None, second.handle(), ((b"\xff", b""), *HANDLE_HEADERS))
    raw = write_batch([not_text])
    compressed = write_batch(
        [Record(3, 0, None, third.handle(), HANDLE_HEADERS)], compression=Codec.ZSTD
    )
    assert named(rows + raw + compressed) == [first.id, second.id, third.id]


def test_malformed_handles_name_no_payload() -> None:
    bad = write_batch([Record(0, 0, None, b"no handle", HANDLE_HEADERS)])
    looks = handle_batch([b"\x0esmq-ref"], offset=1)
    malformed = plain.batch(
        [plain.PlainRecord(2, 0, None, None)], end_offset=3, inflated=b"\x0esmq-ref"
    )
    assert named(bad + looks + malformed) == []


# What is swept.


def test_an_unnamed_payload_is_deleted_once_no_record_may_name_it(
    manifest: WritableManifest,
) -> None:
    store, shard = MemoryStore(), FakeShard([batch(0)])
    reference = uploaded(store, PLACE.topic, b"payload")
    assert sweep(store, shard, manifest, ORPHAN_MS) == []
    assert sweep(store, shard, manifest) == [reference.key(PLACE.topic)]
    assert list(store.list()) == []


def test_a_named_payload_stays_until_its_record_is_deleted(
    manifest: WritableManifest,
) -> None:
    store = MemoryStore()
    reference = uploaded(store, PLACE.topic, b"payload")
    shard = FakeShard([batch(0), handle_batch([reference], offset=1), batch(2)])
    assert sweep(store, shard, manifest) == []
    seal(store, shard, manifest, sealed_end=0, end=3, segment_bytes=1)
    first, second, _ = manifest.segments(PLACE.number)
    assert sweep(store, shard, manifest) == []
    manifest.delete_segments([first.path])
    assert sweep(store, shard, manifest) == []
    manifest.delete_segments([second.path])
    assert sweep(store, shard, manifest) == []
    forget_names(manifest)
    assert sweep(store, shard, manifest) == [reference.key(PLACE.topic)]


def test_any_file_among_the_payloads_is_swept_like_a_payload(manifest: WritableManifest) -> None:
    store, shard = MemoryStore(), FakeShard([batch(0)])
    store.put(f"{PREFIX}kafka/{PLACE.topic}/notes.txt", b"x")
    store.put("topics/kafka/orders/a", b"x")
    assert len(sweep(store, shard, manifest)) == 1
    assert [facts.key for facts in store.list()] == ["topics/kafka/orders/a"]


def test_a_topic_that_cannot_be_swept_raises_and_does_not_stop_others(
    manifest: WritableManifest,
) -> None:
    store = MemoryStore()
    held_up = uploaded(store, "a-topic", b"payload").key("a-topic")
    orphan = uploaded(store, PLACE.topic, b"payload").key(PLACE.topic)
    damaged = Owner(PLACE.namespace, "a-topic", ORPHAN_MS, [(PLACE.number + 1, 2)])

    def shard_of(node: int) -> FakeShard:
        return FakeShard([batch(0) if node == 1 else b"no batch".ljust(100)])

    job = PayloadSweep(store, shard_of, manifest)
    with pytest.raises(PeerError, match="not a record batch at byte 0"):
        job.orphans(store.list(PREFIX), [damaged, OWNER], OLD_MS, 0)
    assert job.sweep([held_up, orphan], [damaged, OWNER], 0, 0) == []
    with pytest.raises(PeerError, match="not a record batch at byte 0"):
        job.sweep([held_up, orphan], [damaged, OWNER], OLD_MS, 0)
    assert [facts.key for facts in store.list()] == [held_up]
    assert held_up < orphan, "the one that fails comes first"


def test_payloads_of_a_topic_that_is_gone_go_with_it(manifest: WritableManifest) -> None:
    store = MemoryStore(lambda: 100)
    reference = uploaded(store, "gone", b"payload")
    job = PayloadSweep(store, lambda _: FakeShard([]), manifest)
    assert job.orphans(store.list(PREFIX), [OWNER], 200, 100) == []
    keys = job.orphans(store.list(PREFIX), [OWNER], 200, 101)
    assert keys == [reference.key("gone")]
    assert job.sweep(keys, [OWNER], 200, 50) == []
    assert job.sweep(keys, [OWNER], 250, 50) == keys


def test_payloads_of_a_topic_that_was_made_since_the_sweep_was_ordered_stay(
    manifest: WritableManifest,
) -> None:
    store = MemoryStore()
    uploaded(store, PLACE.topic, b"payload")
    uploaded(store, PLACE.topic, b"another", 1)
    gone = uploaded(store, "gone", b"payload").key("gone")
    job = PayloadSweep(store, lambda _: FakeShard([]), manifest)
    assert job.orphans(store.list(PREFIX), [], OLD_MS, OLD_MS) == [gone]
    keys = [facts.key for facts in store.list()]
    assert job.sweep(keys, [], OLD_MS, 0) == [gone]
    assert len(list(store.list())) == 2


class Unseen(FakeShard):
    """Has records that nobody may see yet."""

    def batches(self, number: int, offset: int, bytes_max: int, *, synced: bool = True) -> bytes:
        return b""


def test_records_not_yet_visible_protect_their_payloads(
    manifest: WritableManifest,
) -> None:
    store = MemoryStore()
    kept, orphan = (uploaded(store, PLACE.topic, b"payload", each) for each in (1, 2))
    shard = Unseen([batch(0), handle_batch([kept], offset=1)])
    assert sweep(store, shard, manifest) == [orphan.key(PLACE.topic)]
    assert [facts.key for facts in store.list()] == [kept.key(PLACE.topic)]


class Unread(FakeShard):
    """Has records that are not there to be read."""

    def tail(self, number: int, offset: int, bytes_max: int) -> bytes:
        return b""


def test_payloads_stay_while_records_cannot_be_read(manifest: WritableManifest) -> None:
    store = MemoryStore()
    uploaded(store, PLACE.topic, b"payload")
    assert sweep(store, Unread([batch(0)]), manifest) == []
    assert len(list(store.list())) == 1


class SealsMeanwhile(FakeShard):
    """Is sealed right after it has told its ends, by whoever; its log still has all."""

    def __init__(
        self, batches: list[bytes], store: MemoryStore, manifest: WritableManifest
    ) -> None:
        super().__init__(batches)
        self._seal = partial(seal, store, FakeShard(batches), manifest, sealed_end=0, end=self.end)

    def ends(self, number: int) -> Ends:
        ends = super().ends(number)
        self._seal()
        return ends


def test_a_payload_of_records_sealed_during_the_sweep_stays(manifest: WritableManifest) -> None:
    store = MemoryStore()
    handles = [handle_batch([uploaded(store, PLACE.topic, b"payload")])]
    assert sweep(store, SealsMeanwhile(handles, store, manifest), manifest) == []
    assert manifest.segments(PLACE.number)


class TakesMeanwhile(FakeShard):
    """Its clock is set back while a sweep runs: once it has told its ends, it takes a handle if
    what it may know of the payload makes it young."""

    def __init__(self, look: Callable[[], int], reference: Reference) -> None:
        super().__init__([batch(0)])
        self._look, self._reference = look, reference

    def ends(self, number: int) -> Ends:
        ends = super().ends(number)
        if 0 <= 1 - self._look() < 1:
            self.append(handle_batch([self._reference], offset=self.end))
        return ends


def test_a_condemned_payload_cannot_be_named_after_the_clock_was_set_back(
    manifest: WritableManifest,
) -> None:
    """Data fault 8: a clock that was set back between a sweep's look and its deletion let a new
    record name a payload that then was gone."""
    store = MemoryStore(lambda: 1)
    reference = uploaded(store, PLACE.topic, b"payload")
    key = reference.key(PLACE.topic)

    def look() -> int:
        return 0 if manifest.condemned_payloads([key]) else store.head(key).modified_ms

    assert sweep(store, TakesMeanwhile(look, reference), manifest, OLD_MS + 1) == []
    shard = FakeShard([batch(0)])
    assert sweep(store, shard, manifest, 2 * OLD_MS) == [key]
    assert manifest.condemned_payloads([key]) == set(), "it may be uploaded again"


def test_a_condemned_payload_that_others_deleted_is_forgotten(manifest: WritableManifest) -> None:
    """Data fault 8, its kind: its condemnation stayed for ever, and a page's list says that it is
    gone. Not so young ones, whose deletion may be on its way, and those of other pages."""
    store, owner = MemoryStore(lambda: 0), OWNER
    keys = sorted(uploaded(store, PLACE.topic, b"payload", i).key(PLACE.topic) for i in range(6))
    job = PayloadSweep(store, lambda _: FakeShard([batch(0)]), manifest)
    assert job.sweep(keys[:5], [owner], 0, 0) == []
    assert job.sweep(keys[5:], [owner], 1, 0) == []
    for gone in (keys[0], keys[1], keys[3], keys[5]):
        store.delete(gone)
    first = Pages(store, PREFIX, 1).take(keys[0])
    assert [facts.key for facts in first.files] == [keys[2]]
    job.forget_gone(first, keys[0], SETTLED_MS)
    assert manifest.condemned_payloads(keys) == set(keys) - {keys[1]}
    job.forget_gone(Pages(store, PREFIX).take(""), "", SETTLED_MS - 1)
    assert manifest.condemned_payloads(keys) == set(keys) - {keys[1]}
    job.forget_gone(Pages(store, PREFIX).take(""), "", SETTLED_MS)
    assert manifest.condemned_payloads(keys) == {keys[2], keys[4], keys[5]}


def test_a_name_whose_end_may_not_be_durable_keeps_its_payload(manifest: WritableManifest) -> None:
    """Data fault 8, its kind: the line that named it may come back after a power loss."""
    store = MemoryStore(lambda: 0)
    key = uploaded(store, PLACE.topic, b"payload").key(PLACE.topic)
    job = PayloadSweep(store, lambda _: FakeShard([]), HangingManifest(manifest))
    assert job.sweep([key], [OWNER], 0, 0) == []
    with pytest.raises(Unavailable, match="does not answer"):
        job.sweep([key], [OWNER], ORPHAN_MS, 0)
    assert list(store.list(PREFIX))


def test_a_file_is_outdated_before_it_is_deleted(
    manifest: WritableManifest, tmp_path: Path
) -> None:
    """Data fault 8: shards look at files themselves."""
    store = LocalStore(tmp_path / "filer")
    key = uploaded(store, PLACE.topic, b"payload").key(PLACE.topic)
    job = PayloadSweep(store, lambda _: FakeShard([batch(0)]), manifest)
    assert job.sweep([key], [OWNER], 0, 0) == []
    assert store.head(key).modified_ms == 0
    assert job.sweep([key], [OWNER], ORPHAN_MS, 0) == [key]
    assert job.sweep([key], [OWNER], ORPHAN_MS, 0) == [], "another sweep was faster"


class Refusing(MemoryStore):
    """A store that refuses what is asked of some keys."""

    def __init__(self) -> None:
        super().__init__(lambda: 0)
        self.undated, self.kept = set[str](), set[str]()

    def outdate(self, key: str) -> None:
        if key in self.undated:
            raise Unavailable(key, "not permitted")

    def delete(self, key: str) -> None:
        if key in self.kept:
            raise Unavailable(key, "not permitted")
        super().delete(key)


def test_a_payload_that_fails_holds_up_no_other(manifest: WritableManifest) -> None:
    """Data fault 8, its kind: one file of another user ended a topic's sweeps for good."""
    store = Refusing()
    keys = [uploaded(store, PLACE.topic, b"payload", i).key(PLACE.topic) for i in range(4)]
    store.undated, store.kept = {keys[0]}, {keys[1]}
    job = PayloadSweep(store, lambda _: FakeShard([batch(0)]), manifest)
    for now_ms in (0, ORPHAN_MS):
        with pytest.raises(Unavailable, match="not permitted"):
            job.sweep(keys, [OWNER], now_ms, 0)
    assert [facts.key for facts in store.list()] == keys[:2]
    assert manifest.condemned_payloads(keys) == {keys[1]}, "what is deleted is forgotten"
    store.undated = set()
    with pytest.raises(Unavailable, match="not permitted"):
        job.sweep(keys[:2], [OWNER], ORPHAN_MS, 0)
    assert len(list(store.list())) == 2, "it has just been outdated"


# The property.


class FusedStore(MemoryStore):
    """A store that may be the last thing a process touches."""

    fuse = Fuse()

    def put(self, key: str, data: Data, mode: Mode = CREATE) -> Facts:
        facts: Facts = self.fuse.step(lambda: super(FusedStore, self).put(key, data, mode))
        return facts

    def delete(self, key: str) -> None:
        self.fuse.step(lambda: super(FusedStore, self).delete(key))


class World:
    """A topic of one partition, its filer and its manifest; a clock that is turned."""

    def __init__(self, manifest: WritableManifest) -> None:
        self.now_ms = self.back_ms = 0  # The shard's wall clock may be behind.
        self.manifest, self.shard = manifest, FakeShard([])
        self.store = FusedStore(lambda: self.now_ms)
        self.uploads: list[Reference] = []
        self.handles: dict[int, Reference] = {}

    def upload(self) -> None:
        number = len(self.uploads)
        self.uploads.append(uploaded(self.store, PLACE.topic, b"payload %d" % number, number))

    def submit(self, which: int) -> None:
        """What a shard takes (smq.shard.references)."""
        if not self.uploads:
            return
        reference = self.uploads[which % len(self.uploads)]
        found = [each for each in self.store.list() if each.key == reference.key(PLACE.topic)]
        if self.manifest.condemned_payloads([each.key for each in found]):
            return
        if found and 0 <= self.now_ms - self.back_ms - found[0].modified_ms < ORPHAN_MS:
            offset = self.shard.end
            made = handle_batch([reference], offset=offset, time_ms=self.now_ms)
            self.shard.append(made)
            self.handles[offset] = reference

    def job(self, name: str, fuse: Fuse) -> None:
        """A job of the sealer's, which may end anywhere."""
        manifest = FusedManifest(self.manifest, fuse)
        self.store.fuse = self.shard.fuse = fuse
        try:
            if name == "seal" and self.shard.end > self.shard.sealed_end:
                start, end = self.shard.sealed_end, self.shard.end
                first_ms = 1000 + self.now_ms
                seal(self.store, self.shard, manifest, sealed_end=start, end=end, first_ms=first_ms)
            elif name == "retain":
                job = Housekeeping(self.store, self.shard, manifest)
                start, unsealed = self.shard.start, self.shard.unsealed(1)
                state = PartitionState(1, 0, start, unsealed.sealed_end, 0, unsealed.bytes, 0)
                job.retain(PLACE, SETTINGS, Now(self.now_ms, self.now_ms), state)
            elif name == "sweep":
                payloads = PayloadSweep(self.store, lambda _: self.shard, manifest)
                keys = payloads.orphans(self.store.list(PREFIX), [OWNER], self.now_ms, 0)
                payloads.sweep(keys, [OWNER], self.now_ms, 0)
        except (Killed, Unavailable):
            pass
        finally:
            self.store.fuse = self.shard.fuse = Fuse()

    def readable(self) -> dict[int, Reference]:
        """The handles that a consumer can read, by their offsets."""
        start = max(self.manifest.log_start(PLACE.number), self.shard.start)
        return {offset: each for offset, each in self.handles.items() if offset >= start}

    def named(self) -> set[str]:
        """The payloads that these name."""
        return {each.key(PLACE.topic) for each in self.readable().values()}

    def there(self) -> set[str]:
        return {facts.key for facts in self.store.list(PREFIX)}

    def rest(self) -> None:
        """Let everything that is due happen."""
        self.now_ms += OLD_MS
        for name in ("seal", "retain"):
            self.job(name, Fuse())
        swept(Housekeeping(self.store, self.shard, self.manifest), self.now_ms)
        forget_names(self.manifest)
        self.job("sweep", Fuse())
        self.now_ms += ORPHAN_MS
        self.job("sweep", Fuse())


STEPS = st.one_of(
    st.tuples(st.just("upload")),
    st.tuples(st.just("forget")),
    st.tuples(st.just("submit"), st.integers(0, 5)),
    st.tuples(st.just("back"), st.sampled_from([0, 1, OLD_MS, 3 * OLD_MS])),
    st.tuples(st.just("wait"), st.sampled_from([1, ORPHAN_MS - 1, OLD_MS, RETENTION_MS])),
    st.tuples(st.sampled_from(["seal", "retain", "sweep"]), st.integers(-1, 8), st.booleans()),
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.lists(STEPS, max_size=25))
@example([("upload",), ("submit", 0), ("wait", 20_001), ("seal", 2, True), ("retain", 0, False)])
def test_any_order_of_kills_leaves_neither_orphans_nor_dangling_handles(
    steps: list[tuple[object, ...]],
) -> None:
    with TemporaryDirectory() as directory, manifest_in(Path(directory)) as manifest:
        world = World(manifest)
        for name, *given_ in steps:
            match name, given_:
                case "upload", _:
                    world.upload()
                case "forget", _:
                    manifest.names.forget_some()
                case "submit", [int(which)]:
                    world.submit(which)
                case "wait", [int(ms)]:
                    world.now_ms += ms
                case str(job), [int(at), bool(after)]:
                    world.job(job, Fuse(at, after=after))
            assert world.named() <= world.there(), "a handle dangles"
        world.rest()
        assert world.named() == world.there()
        for offset, reference in world.readable().items():
            [(at, value), *_] = read_back(
                world.store, manifest, Path(directory) / "cache", offset=offset
            )
            assert (at, value) == (offset, reference.handle())
