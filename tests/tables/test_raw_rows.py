"""Rows of raw segments."""

from pathlib import Path

import pytest

from shm.kernels.twin import records as plain
from smq.filer.local import LocalStore
from smq.tables.plan import SegmentPart
from smq.tables.raw_rows import RawRows, UndecodableRange, raw_rows
from smq.wire.compression import Codec
from smq.wire.records import Record, write_batch
from tests.sealer.sealed import batch
from tests.spark_jobs.conftest import SealTopic, seal_topic

__all__ = ["seal_topic"]

MiB = 1024 * 1024


def test_a_part_of_a_raw_segment_has_only_its_rows(tmp_path: Path, seal_topic: SealTopic) -> None:
    [segment] = seal_topic([batch(0, 6, key=b"\xff")])
    assert segment.kind == "raw"
    store = LocalStore(tmp_path / "filer")
    [found] = raw_rows(store, SegmentPart(0, segment, 2, 4), MiB)
    assert isinstance(found, RawRows)
    assert found.rows["_offset"].to_pylist() == [2, 3]
    assert not found.log_append_time


def test_records_that_cannot_be_decoded_are_named(tmp_path: Path, seal_topic: SealTopic) -> None:
    garbage = plain.batch([plain.PlainRecord(2, 0, None, None)], end_offset=5, inflated=b"garbage")
    [segment] = seal_topic([garbage])
    store = LocalStore(tmp_path / "filer")
    assert [*raw_rows(store, SegmentPart(0, segment, 2, 5), MiB)] == [UndecodableRange(2, 5)]
    assert [*raw_rows(store, SegmentPart(0, segment, 5, 9), MiB)] == []


@pytest.mark.parametrize(("records", "headers"), [(1, 2049), (911, 1)])
def test_a_batch_whose_columns_inflate_too_far_is_named(
    tmp_path: Path, seal_topic: SealTopic, records: int, headers: int
) -> None:
    odd, codecs = ((b"\xff", None),) * headers, (Codec.ZSTD, Codec.NONE)
    offsets = range(records), range(records, 2 * records)
    [segment] = seal_topic(
        [
            write_batch([Record(n, 0, None, None, odd) for n in each], compression=codec)
            for each, codec in zip(offsets, codecs, strict=True)
        ]
    )
    store, part = LocalStore(tmp_path / "filer"), SegmentPart(0, segment, 0, 2 * records)
    found = [*raw_rows(store, part, 64 << 10)]
    undecodable = [each for each in found if isinstance(each, UndecodableRange)]
    assert undecodable == found
    assert all(each.is_too_large for each in undecodable)
    assert sum(each.end - each.start for each in undecodable) == 2 * records
    found = [*raw_rows(store, part, 80 << 10)]
    assert sum(each.rows.num_rows for each in found if isinstance(each, RawRows)) == 2 * records


def test_a_batch_is_read_as_far_as_the_reader_lets_it_inflate(
    tmp_path: Path, seal_topic: SealTopic
) -> None:
    """Data fault 16."""
    values = b"a", bytes(65 * MiB), b"b"
    [segment] = seal_topic(
        [
            write_batch(
                [Record(offset, 0, None, value, ((b"\xff", None),))], compression=Codec.ZSTD
            )
            for offset, value in enumerate(values)
        ]
    )
    store, part = LocalStore(tmp_path / "filer"), SegmentPart(0, segment, 0, 3)
    found = [*raw_rows(store, part, 66 * MiB)]
    assert [
        n for each in found if isinstance(each, RawRows) for n in each.rows["_offset"].to_pylist()
    ] == [0, 1, 2]
    found = [*raw_rows(store, part, 64 * MiB)]
    assert found[1] == UndecodableRange(1, 2, is_too_large=True)
    assert [each.rows["_offset"].to_pylist() for each in found if isinstance(each, RawRows)] == [
        [0],
        [2],
    ]
