"""Rows of raw segments."""

from pathlib import Path

from shm.kernels.twin import records as plain
from smq.filer.local import LocalStore
from smq.tables.plan import Part
from smq.tables.raw_rows import RawRows, Undecodable, raw_rows
from tests.sealer.sealed import batch
from tests.spark_jobs.conftest import SealTopic, seal_topic

__all__ = ["seal_topic"]


def test_a_part_of_a_raw_segment_has_only_its_rows(tmp_path: Path, seal_topic: SealTopic) -> None:
    [segment] = seal_topic([batch(0, 6, key=b"\xff")])
    assert segment.kind == "raw"
    store = LocalStore(tmp_path / "filer")
    [found] = raw_rows(store, Part(0, segment, 2, 4))
    assert isinstance(found, RawRows)
    assert found.rows["_offset"].to_pylist() == [2, 3]
    assert not found.log_append_time


def test_records_that_cannot_be_decoded_are_named(tmp_path: Path, seal_topic: SealTopic) -> None:
    garbage = plain.batch([plain.PlainRecord(2, 0, None, None)], end_offset=5, inflated=b"garbage")
    [segment] = seal_topic([garbage])
    store = LocalStore(tmp_path / "filer")
    assert [*raw_rows(store, Part(0, segment, 2, 5))] == [Undecodable(2, 5)]
    assert [*raw_rows(store, Part(0, segment, 5, 9))] == []
