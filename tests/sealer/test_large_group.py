"""Row groups that are large in memory: read in slices, in little memory, and equal to what was
sent."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from shm.arrow import read_only
from smq.filer.local import LocalStore
from smq.model.config import Config
from smq.model.now import Now
from smq.model.segments import Segment
from smq.model.topic_settings import TopicSettings
from smq.sealer import large_group, parquet
from smq.sealer.cold import Cache, ColdReader, open_segment
from smq.sealer.compact import Compaction, Ports
from smq.sealer.decode import cut
from smq.sealer.merge import Merging
from smq.sealer.parquet import SCHEMA, ParquetWriter
from smq.sealer.parquet_segment import ParquetSegment
from smq.store.manifest import WritableManifest
from smq.testing.sealing import FakeShard
from smq.wire.compression import Codec
from smq.wire.records import Headers, Record, read_batches, write_batch
from tests.sealer.memory import MiB, peak_bytes
from tests.sealer.sealed import PLACE, manifest_in, seal

LABELS = {"topic": "orders", "partition": "3"}
LIMIT_BYTES = 200 * MiB  # Beside what a worker takes that does nothing: 512 MiB in all.
ROWS_A_BATCH, BATCHES = 40, 6

ONE = bytes(MiB)
SHAPES: dict[str, Any] = {
    "values": lambda row: Record(row, row, b"%d" % row, ONE),
    "keys": lambda row: Record(row, row, ONE, None if row % 3 else b"%d" % row),
    "values of headers": lambda row: Record(row, row, None, b"%d" % row, _headers(row, ONE)),
    "keys of headers": lambda row: Record(row, row, None, b"%d" % row, ((ONE[:-1], b"1"),)),
}


def _headers(row: int, value: bytes) -> Headers:
    return (*((b"k%d" % i, None) for i in range(row % 3)), (b"large", value))


@pytest.fixture(params=SHAPES.keys())
def shape(request: pytest.FixtureRequest) -> Any:
    return SHAPES[request.param]


@pytest.fixture
def as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are written as by earlier versions, which counted what is compressed."""
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 1 << 40)


def _batches(shape: Any, count: int = BATCHES) -> list[bytes]:
    made = []
    for first in range(0, count * ROWS_A_BATCH, ROWS_A_BATCH):
        records = [shape(row)._replace(offset=row) for row in range(first, first + ROWS_A_BATCH)]
        made.append(write_batch(records, compression=Codec.ZSTD))
    return made


def _old_segment(batches: list[bytes], end: int) -> ParquetSegment:
    writer = ParquetWriter(LABELS, log_append_time=False)
    for piece in cut(b"".join(batches)):
        writer.add(piece)
    return ParquetSegment(read_only(bytes(writer.finish(0, end))))


@pytest.mark.slow
@pytest.mark.usefixtures("as_before")
def test_slices_from_any_start_have_the_sent_records(shape: Any) -> None:
    """Data fault 12: files of earlier versions, of any content."""
    end = 3 * ROWS_A_BATCH
    segment = _old_segment(_batches(shape, 3), end)
    assert len(segment.spans) == 1
    for start in (0, 17, end - 1, 16, 0):
        at, seen = start, list[Record]()
        while at < end:
            span = segment.span_of(at)
            back = segment.batches(span)
            data = b"".join(back.pieces)
            assert len(data) < large_group.SLICE_BYTES + 2 * MiB
            seen += [record for each in read_batches(data) for record in each.records()]
            at = segment.end_of(span, int(back.places["last_record"][-1]))
            assert at == seen[-1].offset + 1
        assert seen[0].offset <= start
        assert seen == [shape(record.offset) for record in seen]
        assert [after.offset - before.offset for before, after in pairwise(seen)].count(1) == (
            len(seen) - 1
        )


@pytest.mark.usefixtures("as_before")
def test_tables_of_slices_are_the_rows(shape: Any) -> None:
    """Data fault 12: what merges and compaction read."""
    segment = _old_segment(_batches(shape, 2), 2 * ROWS_A_BATCH)
    tables = list(segment.tables())
    assert len(tables) > 1
    assert all(each.schema == SCHEMA for each in tables)
    rows = pa.concat_tables(tables).to_pylist()
    for number, row in enumerate(rows):
        record = shape(number)
        headers = tuple((each["key"].encode(), each["value"]) for each in row["_headers"])
        found = Record(row["_offset"], row["_ts_ms"], row["_key"], row["_value"], headers)
        assert found == record
    few = list(segment.rows(13, 31, ["_offset", "_value"]))
    assert np.concatenate([each["_offset"].to_numpy() for each in few]).tolist() == [*range(13, 31)]


def _seal_old(
    tmp_path: Path, manifest: WritableManifest, batches: list[bytes]
) -> tuple[LocalStore, list[Segment]]:
    store, shard = LocalStore(tmp_path / "filer"), FakeShard(batches)
    seal(store, shard, manifest, sealed_end=0, end=shard.end)
    return store, manifest.segments(1)


@pytest.mark.slow
@pytest.mark.usefixtures("as_before")
def test_a_fetch_of_few_bytes_takes_little_memory_and_cache(
    shape: Any,
    tmp_path: Path,
) -> None:
    """Data fault 12: a fetch of 1,000 bytes took 3.8 GB, and 1.3 GB of cache."""
    with manifest_in(tmp_path) as manifest:
        store, segments = _seal_old(tmp_path, manifest, _batches(shape))
        assert len(segments) == 1
        assert segments[0].bytes < MiB

        def read() -> None:
            cache = Cache(tmp_path / "cache", 1 << 30, lambda: 0, "life")
            reader, at = ColdReader(store, manifest, cache), 0
            while at < segments[0].end_offset:
                found = reader.read(1, at, 1000)
                assert found is not None
                assert found.path.stat().st_size < 2 * large_group.SLICE_BYTES
                at = found.next_offset

        assert peak_bytes(read) < LIMIT_BYTES


@pytest.mark.slow
@pytest.mark.usefixtures("as_before")
def test_a_merge_of_such_files_takes_little_memory_and_mends_them(
    shape: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Data fault 12: a merge inflated whole row groups."""
    with manifest_in(tmp_path) as manifest:
        store, shard, end = LocalStore(tmp_path / "filer"), FakeShard([]), 0
        for each in _batches(shape, 4):
            shard.append(each)
            seal(store, shard, manifest, sealed_end=end, end=shard.end)
            end = shard.end
        assert len(manifest.segments(1)) == 4
        monkeypatch.undo()
        settings = TopicSettings.of({"retention.ms": "-1"}, Config(shards=1))
        merging = Merging(store, manifest, lambda: 7)

        def merge() -> None:
            assert merging.merge(PLACE, settings) == 4
            [merged] = manifest.segments(1)
            opened = open_segment(store, merged)
            assert isinstance(opened, ParquetSegment)
            assert len(opened.spans) > 4 * ROWS_A_BATCH * MiB // (2 * parquet.ROW_GROUP_BYTES)

        assert peak_bytes(merge) < LIMIT_BYTES


@pytest.mark.slow
def test_sealing_takes_little_memory_and_leaves_small_row_groups(
    shape: Any,
    tmp_path: Path,
) -> None:
    """Data fault 12: 255 KB took 3.5 GB in the sealing worker, which then died for ever."""
    batches = _batches(shape)

    def seal_all() -> None:
        with manifest_in(tmp_path) as manifest:
            store, segments = _seal_old(tmp_path, manifest, batches)
            opened = open_segment(store, segments[0])
            assert isinstance(opened, ParquetSegment)
            assert len(opened.spans) >= BATCHES

    assert peak_bytes(seal_all) < LIMIT_BYTES


@pytest.mark.usefixtures("as_before")
def test_compaction_of_such_files_takes_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data fault 12: compaction inflated whole row groups, for the values of tombstones too."""
    with manifest_in(tmp_path) as manifest:
        store, _ = _seal_old(tmp_path, manifest, _batches(SHAPES["values"]))
        monkeypatch.undo()
        settings = TopicSettings.of({"cleanup.policy": "compact"}, Config(shards=1))

        def compact() -> None:
            now_ms = 10**13
            now = Now(now_ms, now_ms)
            ports = Ports(store, FakeShard([]), manifest, lambda: now, lambda: 7, bytes(16))
            compaction = Compaction(ports, PLACE, settings)
            while compaction.step():
                pass
            assert manifest.segments(1)[0].compacted_ms == now_ms

        assert peak_bytes(compact) < LIMIT_BYTES
