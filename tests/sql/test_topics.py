"""The SQL that reads a topic's segments."""

from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

import duckdb
import pyarrow as pa
import pytest

from shm.kernels.twin import records as plain
from smq.client.client import Client
from smq.filer.location import Location
from smq.model.errors import StoreError
from smq.sealer import years
from smq.sql.topics import text_select, topic_rows, topics_of
from smq.sql.typed import quoted
from smq.store.manifest import Manifest, open_manifest
from smq.store.store import FILE_NAME
from smq.tables import live
from smq.tables.plan import Unreadable
from tests.sealer.sealed import batch
from tests.spark_jobs.conftest import SealTopic, seal_topic

__all__ = ["seal_topic"]


def offsets_in(data_dir: Path, log_start: int = 0) -> list[int]:
    with (
        open_manifest(data_dir / FILE_NAME) as manifest,
        pytest.MonkeyPatch.context() as monkeypatch,
    ):
        if log_start:
            monkeypatch.setattr(manifest, "log_start", lambda _number: log_start)
        topic = topics_of(manifest)["orders"]
        rows = topic_rows(manifest, Location(str(data_dir / "filer")), topic, None, 1 << 20)
    with duckdb.connect() as database:
        database.register("a", rows.arrow)
        found = database.execute(f'SELECT "offset" FROM ({rows.select("a")}) ORDER BY 1').fetchall()
    return [offset for (offset,) in found]


def test_records_before_the_log_start_are_left_out(  # retention may have passed half a segment
    tmp_path: Path,
    seal_topic: SealTopic,
) -> None:
    seal_topic([batch(0, 4), batch(4, 2, key=b"\xff"), batch(6, 4)])
    assert offsets_in(tmp_path) == list(range(10))
    assert offsets_in(tmp_path, log_start=3) == list(range(3, 10))
    assert offsets_in(tmp_path, log_start=5) == list(range(5, 10))
    assert offsets_in(tmp_path, log_start=8) == [8, 9]


def test_rows_between_raw_batches_are_read_wherever_they_lie(
    tmp_path: Path, seal_topic: SealTopic
) -> None:
    seal_topic([batch(i, key=b"\xff" if i % 3 == 2 else b"h") for i in range(60)])
    assert offsets_in(tmp_path) == list(range(60))


def test_undecodable_records_raise_an_error_that_names_them(
    tmp_path: Path,
    seal_topic: SealTopic,
) -> None:
    garbage = plain.batch([plain.PlainRecord(0, 0, None, None)], end_offset=3, inflated=b"garbage")
    seal_topic([garbage])
    with pytest.raises(Unreadable, match="orders-0: the records at offsets 0 to 2"):
        offsets_in(tmp_path)


def test_a_raw_segment_that_is_gone_is_a_store_error(
    tmp_path: Path,
    seal_topic: SealTopic,
) -> None:
    [segment] = seal_topic([batch(0, 2, key=b"\xff")])
    (tmp_path / "filer" / segment.path).unlink()
    with pytest.raises(StoreError, match=segment.path):
        offsets_in(tmp_path)


def test_a_file_of_an_earlier_version_has_no_times_outside_the_years_1_to_9999(
    tmp_path: Path, seal_topic: SealTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Use fault 5: Python has no such times, so its readers ended with a traceback."""
    with monkeypatch.context() as before:
        before.setattr(years, "TIME_MS_MAX", (2**63 - 1) // 1000)
        seal_topic([batch(0, 2), batch(2, time=2**52), batch(3, time=2**60), batch(4)])
    with open_manifest(tmp_path / FILE_NAME) as manifest:
        topic = topics_of(manifest)["orders"]
        rows = topic_rows(manifest, Location(str(tmp_path / "filer")), topic, None, 1 << 20)
    with duckdb.connect() as database:
        database.register("a", rows.arrow)
        found = database.execute(
            f'SELECT "offset", timestamp FROM ({rows.select("a")}) ORDER BY 1'
        ).fetchall()
    epoch = datetime(1970, 1, 1)  # noqa: DTZ001  (DuckDB's TIMESTAMP has no zone.)
    assert [each[1] for each in found] == [
        epoch, epoch + timedelta(milliseconds=1), None, None, epoch
    ]  # fmt: skip


def test_records_sealed_after_the_segments_were_found_are_read_from_the_broker(
    tmp_path: Path, seal_topic: SealTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    seal_topic([batch(0, 4)])
    asked: list[dict[int, int]] = []

    def live_rows(
        _client: Client, _topic: str, _id: UUID, starts: dict[int, int], *, bytes_max: int
    ) -> tuple[pa.Table, dict[int, int]]:
        asked.append(starts)
        return live.SCHEMA.empty_table(), {0: 10}

    monkeypatch.setattr(live, "live_rows", live_rows)
    monkeypatch.setattr(Manifest, "sealed_end", lambda _manifest, _number: 7)  # As of now.
    with open_manifest(tmp_path / FILE_NAME) as manifest:
        topic, place = topics_of(manifest)["orders"], Location(str(tmp_path / "filer"))
        rows = topic_rows(manifest, place, topic, object(), 1 << 20)  # type: ignore[arg-type]
    assert asked[0][0] == 4
    assert rows.live_ranges[0] == (4, 10)


def test_names_and_text() -> None:
    assert quoted('a"b') == '"a""b"'
    with duckdb.connect() as database:
        database.execute(
            'CREATE TABLE t AS SELECT 0 AS partition, 0 AS "offset", '
            "now()::TIMESTAMP AS timestamp, NULL::BLOB AS key, encode('é') AS value, "
            "[] AS headers"
        )
        assert database.execute(f"SELECT key, value FROM ({text_select('t')})").fetchall() == [
            (None, "é")
        ]
