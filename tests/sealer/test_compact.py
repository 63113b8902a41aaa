"""Of each key the last record stays at its offset, whatever dies in between."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st

from shm.kernels.record.last_of_key import SLOT_WORDS
from shm.kernels.twin import records as plain
from smq.model.config import Config
from smq.model.errors import PreconditionFailed, Unavailable
from smq.model.now import Now
from smq.model.topic_settings import TopicSettings
from smq.sealer.cold import Cache, ColdReader, Damaged
from smq.sealer.compact import Compaction, Ports
from smq.sealer.housekeeping import Housekeeping
from smq.sealer.key_table import FILL_PERCENT, SLOTS_MIN, KeyTable, OwnMemory, PassMemory
from smq.sealer.merge import Merging
from smq.store.manifest import WritableManifest
from smq.testing.memory_store import MemoryStore
from smq.testing.payloads import handle_batch, reference_to
from smq.testing.sealing import FakeShard, Fuse, FusedManifest, HangingManifest, Killed, draw
from smq.wire.records import read_batches
from tests.sealer.sealed import PLACE, forget_names, manifest_in, seal, swept

NOW_MS = 100_000
SETTINGS = TopicSettings.of(
    {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}, Config(shards=1)
)
AT_ONCE = SETTINGS._replace(tombstone_ms=0)
Row = tuple[int, bytes | None, bytes | None]
"""Offset, key and value."""
Pairs = list[tuple[bytes | None, bytes | None]]


@pytest.fixture
def manifest(tmp_path: Path) -> Iterator[WritableManifest]:
    with manifest_in(tmp_path) as manifest:
        yield manifest


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(lambda: 50)


SECRET = b"a secret of ours"


class Log:
    """A partition: records are appended and sealed, compacted and read."""

    def __init__(
        self, store: MemoryStore, manifest: WritableManifest, directory: Path, slots_max: int = 0
    ) -> None:
        self.store, self.manifest, self._directory = store, manifest, directory
        self.shard = FakeShard([])
        self.rows: list[Row] = []
        self._slots_max = slots_max or SLOTS_MIN
        self.memory: PassMemory | None = None

    def append(
        self, *pairs: tuple[bytes | None, bytes | None], header: bytes | None = None
    ) -> None:
        """Seal a segment of these keys and values; `header` is the key of a header of each."""
        base = len(self.rows)
        rows = [(base + i, key, value) for i, (key, value) in enumerate(pairs)]
        headers = () if header is None else ((header, None),)
        made = [
            plain.PlainRecord(offset, offset, key, value, headers) for offset, key, value in rows
        ]
        end = base + len(rows)
        self.shard.append(plain.batch(made, end_offset=end))
        self.rows += rows
        seal(self.store, self.shard, self.manifest, sealed_end=base, end=end)

    def compaction(
        self, settings: TopicSettings = SETTINGS, fuse: Fuse | None = None, now_ms: int = NOW_MS
    ) -> Compaction:
        ports = Ports(
            self.store,
            self.shard,
            FusedManifest(self.manifest, fuse),
            lambda: Now(now_ms, NOW_MS),
            draw,
            SECRET,
            slots_max=self._slots_max,
            memory=self.memory,
        )
        return Compaction(ports, PLACE, settings)

    def compact(
        self, settings: TopicSettings = SETTINGS, fuse: Fuse | None = None, now_ms: int = NOW_MS
    ) -> int:
        """Until nothing is due; how many steps it took."""
        steps = 0
        while (compaction := self.compaction(settings, fuse, now_ms)).step():
            steps += 1
            while compaction.step():
                steps += 1
        return steps

    def read(self, offset: int = 0) -> list[Row]:
        """What a consumer gets that begins at an offset; it must reach the end."""
        cache = self._directory / f"cache-{len(list(self._directory.iterdir()))}"
        reader = ColdReader(self.store, self.manifest, Cache(cache, 1 << 20, lambda: 0, "a"))
        found, end = [], self.manifest.sealed_end(1)
        while offset < end:
            batches = reader.read(1, offset, 200)
            assert batches is not None, f"nothing from {offset} on, the end is {end}"
            data = batches.path.read_bytes()[batches.at : batches.at + batches.length]
            for batch in read_batches(data):
                records = [(r.offset, r.key, r.value) for r in batch.records()]
                found += [record for record in records if record[0] >= offset]
            assert batches.next_offset > offset
            offset = batches.next_offset
        return found

    def last(self) -> list[Row]:
        """What must be left: the last of each key."""
        last = {key: offset for offset, key, _ in self.rows if key is not None}
        return [row for row in self.rows if last.get(row[1], -1) == row[0]]  # type: ignore[arg-type]

    def counts(self) -> list[int]:
        return [segment.record_count for segment in self.manifest.segments(1)]


@pytest.fixture
def log(tmp_path: Path, store: MemoryStore, manifest: WritableManifest) -> Log:
    return Log(store, manifest, tmp_path)


def pairs(keys: bytes, value: bytes = b"v") -> Pairs:
    """A record for each byte: its key."""
    return [(keys[i : i + 1], value + b"%d" % i) for i in range(len(keys))]


def test_the_last_of_each_key_stays_at_its_offset(log: Log) -> None:
    log.append(*pairs(b"aabc"))
    log.append(*pairs(b"abd"))
    before = log.manifest.segments(1)
    assert log.compact() == 4, "two are read, two written"
    assert log.read() == log.last()
    assert log.counts() == [1, 3]
    for old, new in zip(before, log.manifest.segments(1), strict=True):
        assert (new.base_offset, new.end_offset) == (old.base_offset, old.end_offset)
        assert new.compacted_ms == NOW_MS
        assert new.path != old.path
    assert log.manifest.replaced_files([each.path for each in before], 0)
    assert log.shard.compacted_end == len(log.rows)
    assert log.compact() == 0, "nothing is left to do"


def test_a_pass_goes_on_only_while_its_memory_has_it(log: Log) -> None:
    """The sealer clears it when a topic is no longer compacted: a table without a file is the end
    of the worker that looks into it."""
    log.memory = OwnMemory()
    log.append(*pairs(b"aabc"))
    log.append(*pairs(b"abd"))
    compaction = log.compaction()
    assert compaction.step()
    assert compaction.may_go_on()
    log.memory.clear()
    assert not compaction.may_go_on()
    other = log.compaction(AT_ONCE)
    assert other.step()
    assert other.may_go_on()
    assert not compaction.may_go_on()


def test_the_shard_durably_reads_segments_before_the_first_record_goes(log: Log) -> None:
    """Data fault 22: the shard is restarted while a pass is at work."""
    log.append(*pairs(b"aabc"))
    log.append(*pairs(b"abd"))
    before = log.manifest.segments(1)
    log.shard.fuse = Fuse(1)
    with pytest.raises(Killed):
        log.compact()
    assert log.manifest.segments(1) == before
    assert log.read() == log.rows


def test_lines_that_may_not_be_durable_replace_no_log(log: Log) -> None:
    """Data fault 8, its kind: the shard would no longer serve copies of its own for lines that a
    power loss takes."""
    log.append(*pairs(b"aabc"))
    log.append(*pairs(b"abd"))
    ports = log.compaction()._ports._replace(manifest=HangingManifest(log.manifest))
    compaction = Compaction(ports, PLACE, SETTINGS)
    with pytest.raises(Unavailable, match="does not answer"):
        list(iter(compaction.step, False))
    assert log.shard.compacted_end == 0


def test_a_reader_passes_gaps_wherever_it_begins(log: Log) -> None:
    for _ in range(4):
        log.append(*pairs(b"abc"))
    log.append(*pairs(b"x"))
    log.compact()
    assert log.counts() == [0, 0, 0, 3, 1]
    for offset in range(len(log.rows)):
        assert log.read(offset) == [row for row in log.last() if row[0] >= offset]


def test_a_time_is_found_behind_a_gap(log: Log, tmp_path: Path) -> None:
    log.append(*pairs(b"ab"))
    log.append(*pairs(b"abc"))
    log.compact()
    reader = ColdReader(log.store, log.manifest, Cache(tmp_path / "times", 1 << 20, lambda: 0, "a"))
    assert reader.offset_for_time(1, 0) == (2, 2)
    assert reader.offset_for_time(1, 4) == (4, 4)
    assert reader.offset_for_time(1, 5) is None


def test_segments_that_are_compacted_are_written_again_only_if_something_goes(log: Log) -> None:
    log.append(*pairs(b"ab"))
    log.append(*pairs(b"cd"))
    log.compact()
    before = log.manifest.segments(1)
    log.append(*pairs(b"c"))
    log.compact(now_ms=NOW_MS + 1)
    after = log.manifest.segments(1)
    assert after[0] == before[0]
    assert after[1] != before[1]
    assert [each.compacted_ms for each in after] == [NOW_MS, NOW_MS, NOW_MS + 1]


def test_a_tombstone_hides_its_key_and_goes_later(log: Log) -> None:
    log.append(*pairs(b"ab"))
    log.append((b"a", None))
    log.append(*pairs(b"c"))
    log.compact(AT_ONCE)
    assert log.read() == log.last(), "its segment was not compacted before"
    log.append(*pairs(b"d"))
    log.compact(AT_ONCE._replace(tombstone_ms=10), now_ms=NOW_MS + 9)
    assert (2, b"a", None) in log.read()
    log.append(*pairs(b"e"))
    log.compact(AT_ONCE._replace(tombstone_ms=10), now_ms=NOW_MS + 10)
    assert log.read() == [row for row in log.last() if row[1] != b"a"]
    assert log.counts() == [1, 0, 1, 1, 1]


def test_the_last_record_stays_for_readers_that_wait_for_it(log: Log) -> None:
    log.append((b"a", b"v"), (b"a", None))
    log.compact(AT_ONCE)
    log.append((b"b", b"v"), (b"b", None))
    log.compact(AT_ONCE)
    log.manifest.set_log_start(1, 0)
    ports = Ports(
        log.store,
        log.shard,
        FusedManifest(log.manifest),
        lambda: Now(NOW_MS + 5, NOW_MS),
        draw,
        SECRET,
    )
    table = KeyTable(np.zeros((SLOTS_MIN, SLOT_WORDS), np.uint64), SECRET)
    last = log.manifest.segments(1)[-1]
    assert last.compacted_ms
    Compaction(ports, PLACE, AT_ONCE)._compact(last, table, drops=True, is_last=True)
    assert log.read(2) == [(3, b"b", None)]


def test_records_without_a_key_go_as_in_kafka(log: Log) -> None:
    log.append((None, b"v"), (b"a", b"v"), (None, b"w"))
    log.compact()
    assert log.read() == [(1, b"a", b"v"), (2, None, b"w")], "the last one is waited for"
    log.append(*pairs(b"a"))
    log.compact()
    assert log.read() == [(3, b"a", b"v0")]


def test_young_or_few_dirty_records_are_not_compacted(log: Log) -> None:
    log.append(*pairs(b"aa"))
    young = SETTINGS._replace(compaction_lag_min_ms=NOW_MS)
    assert log.compact(young) == 0
    assert log.compact(SETTINGS._replace(dirty_min_ppm=1_000_000)) == 0
    assert log.read() == log.rows


def test_a_raw_segment_stays_as_it_is(log: Log) -> None:
    log.append(*pairs(b"a"))
    log.append(*pairs(b"aab"), header=b"\xff")
    log.append((b"a", None))
    log.compact(AT_ONCE)
    log.append(*pairs(b"c"))
    log.compact(AT_ONCE)
    log.append(*pairs(b"d"))
    log.compact(AT_ONCE)
    kinds = [each.kind for each in log.manifest.segments(1)]
    assert kinds == ["parquet", "raw", "parquet", "parquet", "parquet"]
    assert [row[0] for row in log.read()] == [1, 2, 3, 4, 5, 6], "the tombstone hides what is raw"


def test_payloads_of_records_that_have_gone_are_named_no_more(log: Log) -> None:
    references = [reference_to(b"payload %d" % number) for number in range(3)]
    for number, reference in enumerate(references):
        log.shard.append(handle_batch([reference], offset=number))
        seal(log.store, log.shard, log.manifest, sealed_end=number, end=number + 1)
    ids = [reference.id for reference in references]
    assert log.manifest.named_payloads(ids) == set(ids)
    log.compact()
    assert [segment.record_count for segment in log.manifest.segments(1)] == [0, 0, 1]
    forget_names(log.manifest)
    assert log.manifest.named_payloads(ids) == set(ids[2:])


def test_more_keys_than_the_table_holds_take_several_passes(
    tmp_path: Path, store: MemoryStore, manifest: WritableManifest
) -> None:
    log = Log(store, manifest, tmp_path, slots_max=SLOTS_MIN)
    fits = SLOTS_MIN * FILL_PERCENT // 100
    for part in range(4):
        keys = [b"%d" % (part * fits // 2 + i) for i in range(fits * 3 // 4)]
        log.append(*[(key, b"v") for key in keys])
    assert log.compact() > 8, "more than one to read and one to write each"
    assert log.read() == log.last()
    assert all(each.compacted_ms for each in log.manifest.segments(1))


@pytest.mark.parametrize("has_memory", [False, True], ids=["without", "with-memory"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", range(1, 5))
def test_a_kill_loses_nothing_and_the_next_one_goes_on(
    log: Log, step: int, *, has_memory: bool, after: bool
) -> None:
    log.memory = OwnMemory() if has_memory else None
    append_four(log)
    with pytest.raises(Killed):
        log.compact(fuse=Fuse(step, after=after))
    left, last = log.read(), log.last()
    assert set(last) <= set(left) <= set(log.rows)
    log.compact()
    assert log.read() == last
    swept(Housekeeping(log.store, log.shard, log.manifest), before_ms=NOW_MS + 1)
    assert log.read() == last
    assert {each.key for each in log.store.list()} == {e.path for e in log.manifest.segments(1)}


def append_four(log: Log) -> None:
    log.append(*pairs(b"aabc"))
    log.append(*pairs(b"bcd"), (b"a", None))
    log.append(*pairs(b"dce"))
    log.append(*pairs(b"f"))


def test_another_worker_goes_on_where_a_pass_was_left(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_four(log)
    log.memory = OwnMemory()
    noted: list[int] = []
    note = KeyTable.note

    def counted(table: KeyTable, rows: pa.Table) -> None:
        noted.append(rows.num_rows)
        note(table, rows)

    monkeypatch.setattr(KeyTable, "note", counted)
    steps = 0
    while log.compaction().step():  # Each in a worker of its own.
        steps += 1
    assert (steps, noted) == (8, [4, 4, 3, 1]), "each segment is read once, and written once"
    assert log.read() == log.last()
    assert log.memory.place() == b""


def test_a_pass_of_another_topic_or_by_other_settings_begins_anew(log: Log) -> None:
    append_four(log)
    log.memory = OwnMemory()
    assert log.compaction().step()
    place = log.memory.place()
    assert log.compaction(AT_ONCE).step()
    assert log.memory.place() != place
    log.compact(AT_ONCE)
    assert log.read() == log.last()


def test_a_worker_that_goes_on_sees_segments_that_came_and_went_meanwhile(log: Log) -> None:
    append_four(log)
    log.memory = OwnMemory()
    for _ in range(2):
        assert log.compaction().step()
    log.manifest.set_log_start(1, 4)
    log.manifest.delete_segments([log.manifest.segments(1)[0].path])
    log.append(*pairs(b"dg"))
    log.compact()
    assert log.read(4) == [row for row in log.last() if row[0] >= 4]


def test_a_full_disk_leaves_the_old_segments(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    log.append(*pairs(b"aab"))
    log.append(*pairs(b"ab"))
    before = log.manifest.segments(1)
    log.memory = OwnMemory()

    def full(key: str, _data: object) -> None:
        raise Unavailable(key, "no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(log.store, "put", full)
        with pytest.raises(Unavailable, match="no space left"):
            log.compact()
    assert log.memory.place() == b"", "it starts over"
    assert log.manifest.segments(1) == before
    assert log.read() == log.rows
    log.compact()
    assert log.read() == log.last()


def test_segments_that_retention_has_deleted_meanwhile_are_not_written_again(log: Log) -> None:
    log.append(*pairs(b"aab"))
    log.append(*pairs(b"ab"))
    compaction = log.compaction()
    assert compaction.step()
    assert compaction.step()
    log.manifest.set_log_start(1, 3)
    log.manifest.delete_segments([log.manifest.segments(1)[0].path])
    with pytest.raises(PreconditionFailed):
        compaction.step()
    log.compact()
    assert log.read(3) == log.last()


def test_a_damaged_file_is_named_and_nothing_is_compacted(log: Log) -> None:
    log.append(*pairs(b"ab"))
    log.append(*pairs(b"ab"))
    damaged = log.manifest.segments(1)[0]
    log.store.delete(damaged.path)
    with pytest.raises(Damaged, match="the file is missing"):
        log.compact()


def test_compacted_segments_are_merged_with_their_own(log: Log) -> None:
    for _ in range(4):
        log.append(*pairs(b"ab"))
    log.compact()
    log.append(*pairs(b"c"))
    merging = Merging(log.store, FusedManifest(log.manifest), draw, run_min=2)
    assert merging.merge(PLACE, SETTINGS) == 4
    [merged, new] = log.manifest.segments(1)
    assert (merged.compacted_ms, new.compacted_ms) == (NOW_MS, 0)
    assert log.read() == log.last()


Step = Callable[[Log], None]


@hypothesis_settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from(b"abcd"), st.booleans()), min_size=1, max_size=6)
        | st.sampled_from(["compact", "merge"]),
        max_size=12,
    )
)
def test_the_last_record_of_each_key_survives_any_order_of_steps(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str | list[tuple[int, bool]]]
) -> None:
    directory = tmp_path_factory.mktemp("log")
    with manifest_in(directory) as manifest:
        log = Log(MemoryStore(lambda: 50), manifest, directory)
        for number, step in enumerate(steps):
            if step == "compact":
                log.compact(AT_ONCE, now_ms=NOW_MS + number)
            elif step == "merge":
                merging = Merging(log.store, FusedManifest(manifest), draw, run_min=2)
                merging.merge(PLACE, SETTINGS)
            else:
                made = [(bytes([key]), b"v" if has else None) for key, has in step]  # type: ignore[str-unpack, list-item]
                log.append(*made)
        found = log.read()
        assert set(found) <= set(log.rows)
        values = [row for row in log.last() if row[2] is not None]
        assert set(values) <= set(found), "no value is lost"
        hidden = {key for _, key, value in log.last() if value is None}
        assert not hidden & _shown(found), "no key comes back"


def _shown(found: list[Row]) -> set[bytes | None]:
    """The keys with a value, for who reads all in order."""
    state = {key: value for _, key, value in found}
    return {key for key, value in state.items() if value is not None}


def test_offsets_stay_ascending_in_one_file(log: Log) -> None:
    log.append(*pairs(b"abcabcabx"))
    log.compact()
    offsets = np.array([row[0] for row in log.read()])
    assert (np.diff(offsets) > 0).all()
