"""Parquet segments: every record comes back unchanged, and engines can read them."""

from datetime import UTC, datetime
from pathlib import Path
from random import Random

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from shm.arrow import read_only
from shm.kernels.twin import records as plain
from smq.model.segments import ANY_SIZE, BatchLimits
from smq.sealer import parquet, years
from smq.sealer.decode import Kind, cut
from smq.sealer.parquet import (
    LEVEL,
    QUICK_LEVEL,
    ParquetWriter,
    _level_for,
    table_of,
)
from smq.sealer.parquet_segment import ParquetSegment
from smq.sealer.room import Room
from smq.sealer.years import TIME_MS_MAX, TIME_MS_MIN
from smq.testing.records import INT64_MAX, YEAR_2263_MS, plain_batches
from smq.wire.compression import Codec
from smq.wire.markers import write_empty
from smq.wire.records import read_batches

LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 8, 16, 32
BEGIN_US = 1_700_000_000_000_000  # Of 2023, sent as if it were milliseconds.
LABELS = {"topic": "orders", "partition": "3"}


def _sealed(data: bytes, *, base: int = 0, end: int | None = None) -> bytes:
    writer, last, stamped = None, base, False
    for piece in cut(data):
        stamped = stamped or piece.log_append_time
        writer = writer or ParquetWriter(LABELS, log_append_time=stamped)
        writer.add(piece)
        last = piece.end_offset
    assert writer is not None
    return bytes(writer.finish(base, end or last))


def _read(sealed: bytes) -> list[plain.PlainRecord]:
    return [record for batch in _batches(sealed) for record in _records(batch)]


def _batches(sealed: bytes, limits: BatchLimits = ANY_SIZE) -> list[bytes]:
    segment = ParquetSegment(read_only(sealed))
    return [
        bytes(batch) for span in segment.spans for batch in segment.batches(span, limits).pieces
    ]


def _records(batch: bytes) -> list[plain.PlainRecord]:
    [read] = read_batches(batch)
    return [plain.PlainRecord(*record) for record in read.records()]


def _sent(
    records: list[plain.PlainRecord],
    *,
    end_offset: int | None = None,
    attributes: int = 0,
    leader_epoch: int = 0,
    producer_id: int = -1,
) -> bytes:
    return plain.batch(
        records,
        end_offset=end_offset or records[-1].offset + 1,
        attributes=attributes,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
    )


def _one(offset: int, timestamp: int = 0, value: bytes | None = b"v") -> plain.PlainRecord:
    return plain.PlainRecord(offset, timestamp, None, value)


@settings(deadline=None)
@given(plain_batches())
def test_records_come_back_unchanged(batches: list[bytes]) -> None:
    sent = [record for batch in batches for record in _records(batch)]
    assert _read(_sealed(b"".join(batches))) == sent


def test_null_and_empty_stay_apart() -> None:
    fields = [None, b"", b"x"]
    records = [
        plain.PlainRecord(
            i, 0, fields[i % 3], fields[i // 3], ((b"", None), (b"", b""), (b"a", b"a"))
        )
        for i in range(9)
    ]
    assert _read(_sealed(_sent(records))) == records


@pytest.mark.parametrize(
    "time", [-1, 0, YEAR_2263_MS, INT64_MAX, -(2**62), TIME_MS_MIN, TIME_MS_MAX]
)
def test_any_timestamp_comes_back(time: int) -> None:
    sealed = _sealed(_sent([_one(5, time)]))
    assert _read(sealed) == [_one(5, time)]
    table = pq.read_table(pa.BufferReader(sealed))
    assert table["_ts_ms"].to_pylist() == [time]
    fits = TIME_MS_MIN <= time <= TIME_MS_MAX
    assert table["_ts"].cast(pa.int64()).to_pylist() == [time * 1000 if fits else None]


def test_the_timestamps_are_those_that_python_has() -> None:
    """Use fault 5: lake libraries end with OverflowError where they meet others."""
    within = [TIME_MS_MIN, 0, TIME_MS_MAX]
    sealed = _sealed(b"".join(_sent([_one(i, time)]) for i, time in enumerate(within)))
    found = pq.read_table(pa.BufferReader(sealed))["_ts"].to_pylist()
    assert [found[0], found[-1]] == [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_000, UTC),
    ]
    outside = [TIME_MS_MIN - 1, TIME_MS_MAX + 1, BEGIN_US, INT64_MAX]
    sealed = _sealed(b"".join(_sent([_one(i, time)]) for i, time in enumerate(outside)))
    table = pq.read_table(pa.BufferReader(sealed))
    assert table["_ts"].to_pylist() == [None] * len(outside)
    assert table["_ts_ms"].to_pylist() == outside


def test_rows_of_earlier_versions_get_the_timestamps_of_today(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Use fault 5: they have each that microseconds can hold, until they are merged."""
    with monkeypatch.context() as before:
        before.setattr(years, "TIME_MS_MAX", (2**63 - 1) // 1000)
        old = _sealed(_sent([_one(0, 7)]) + _sent([_one(1, BEGIN_US)]))
    assert pq.read_table(pa.BufferReader(old))["_ts"].null_count == 0
    writer = ParquetWriter(LABELS, log_append_time=False)
    for rows in ParquetSegment(read_only(old)).tables():
        writer.add_rows(rows)
    new = pq.read_table(pa.BufferReader(bytes(writer.finish(0, 2))))
    assert new["_ts"].cast(pa.int64()).to_pylist() == [7000, None]
    assert new["_ts_ms"].to_pylist() == [7, BEGIN_US]


def test_log_append_time_comes_back_as_such() -> None:
    stamped = [_sent([_one(i, 100 + i), _one(i + 1, 50)], attributes=8) for i in (0, 2)]
    back = _batches(_sealed(b"".join(stamped)))
    assert [batch[22] & 8 for batch in back] == [8, 8]
    assert [each.timestamp for batch in back for each in _records(batch)] == [100, 100, 102, 102]


def test_gaps_belong_to_the_batch_before_them() -> None:
    data = _sent([_one(12), _one(15)], end_offset=20) + _sent([_one(30)])
    back = _batches(_sealed(data, base=10, end=40))
    spans = [(each.base_offset, each.last_offset) for batch in back for each in read_batches(batch)]
    assert spans == [(12, 39)]


def test_leader_epochs_come_back() -> None:
    sent = [_sent([_one(i), _one(i + 1)], leader_epoch=i // 4) for i in range(0, 12, 2)]
    back = _batches(_sealed(b"".join(sent)))
    assert [int.from_bytes(batch[12:16], "big") for batch in back] == [0, 1, 2]
    assert [batch.last_offset for each in back for batch in read_batches(each)] == [3, 7, 11]


def test_a_gap_at_the_end_is_covered_across_leader_epochs() -> None:
    aborted = write_empty(2, 28, 1, -1) + write_empty(28, 30, 2, -1)
    sealed = _sealed(_sent([_one(0), _one(1)], leader_epoch=1) + aborted)
    assert ParquetSegment(read_only(sealed)).epochs == [[0, 1], [28, 2]]
    [batch] = read_batches(b"".join(_batches(sealed)))
    assert ([record.offset for record in batch.records()], batch.last_offset) == ([0, 1], 29)


def test_markers_and_what_was_aborted_leave_gaps_that_readers_pass_over() -> None:
    markers = [
        _sent([_one(at)], attributes=TRANSACTIONAL | CONTROL, producer_id=77, leader_epoch=1)
        for at in (0, 3, 4, 7)
    ]
    rows = [_sent([_one(at), _one(at + 1)], leader_epoch=1) for at in (1, 5)]
    aborted = write_empty(8, 12, 1, -1)
    data = markers[0] + rows[0] + markers[1] + markers[2] + rows[1] + markers[3] + aborted
    segment = _sealed(data)
    [batch] = read_batches(b"".join(_batches(segment)))
    assert [record.offset for record in batch.records()] == [1, 2, 5, 6]
    assert batch.last_offset == 11
    assert ParquetSegment(read_only(segment)).control == b""


def test_a_segment_may_be_nothing_but_a_gap() -> None:
    marker = _sent([_one(4)], attributes=TRANSACTIONAL | CONTROL)
    sealed = _sealed(marker, base=4)
    assert _batches(sealed) == []
    assert ParquetSegment(read_only(sealed)).find_time(-1) is None


def test_markers_that_earlier_versions_have_kept_come_back_where_they_were() -> None:
    marker = _sent([_one(2)], attributes=TRANSACTIONAL | CONTROL)
    writer = ParquetWriter(LABELS, log_append_time=False)
    before = _sent([_one(0), _one(1)])
    for piece in cut(before):
        writer.add(piece)
    writer._control += marker
    assert _batches(bytes(writer.finish(0, 3))) == [before, marker]


def test_row_groups_are_bounded_and_each_is_read_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 4)
    data = b"".join(_sent([_one(i, 10 * i)]) for i in range(10))
    segment = ParquetSegment(read_only(_sealed(data, end=12)))
    assert [(span.start, span.end, span.max_timestamp) for span in segment.spans] == [
        (0, 4, 30),
        (4, 8, 70),
        (8, 12, 90),
    ]
    assert [segment.span_of(offset).group for offset in (0, 3, 4, 9, 11)] == [0, 0, 1, 2, 2]
    assert [segment.find_time(time) for time in (-5, 31, 90, 91)] == [
        (0, 0),
        (4, 40),
        (9, 90),
        None,
    ]


def test_rows_between_offsets_skip_other_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 4)
    data = b"".join(_sent([_one(i, 10 * i)]) for i in range(10))
    segment = ParquetSegment(read_only(_sealed(data, end=12)))
    tables = list(segment.rows(3, 6, ["_ts_ms"]))
    assert [table.to_pydict() for table in tables] == [{"_ts_ms": [30]}, {"_ts_ms": [40, 50]}]
    assert [table["_offset"].to_pylist() for table in segment.rows(8, 12, ["_offset"])] == [[8, 9]]
    assert list(segment.rows(12, 20, ["_offset"])) == []


@pytest.mark.parametrize(
    ("values", "codec"),
    [
        ([Random(i).randbytes(5000) for i in range(9)], "UNCOMPRESSED"),
        ([b"the same again " * 300] * 9, "ZSTD"),
        ([None, b"", None], "UNCOMPRESSED"),
    ],
)
def test_values_are_compressed_where_a_sample_of_them_shrinks(
    values: list[bytes | None], codec: str
) -> None:
    records = [_one(i, 0, value) for i, value in enumerate(values)]
    sealed = _sealed(_sent(records))
    columns = pq.ParquetFile(pa.BufferReader(sealed)).metadata.row_group(0)
    codecs = {
        columns.column(i).path_in_schema: columns.column(i).compression
        for i in range(columns.num_columns)
    }
    assert codecs.pop("_value") == codec
    assert set(codecs.values()) == {"ZSTD"}
    assert _read(sealed) == records


@pytest.mark.parametrize(
    ("values", "level"),
    [
        ([Random(i).randbytes(500) + bytes(500) for i in range(99)], QUICK_LEVEL),
        ([b"%d apples, %d pears, and a nut " % (i, i * i) * 20 for i in range(999)], LEVEL),
        ([Random(i).randbytes(1000) for i in range(99)], None),
    ],
)
def test_a_thorough_compression_is_chosen_where_it_saves_more_than_a_quick_one(
    values: list[bytes], level: int | None
) -> None:
    assert _level_for(pa.chunked_array([values])) == level


def test_a_room_holds_one_segment_after_the_other() -> None:
    room = Room()
    for number in range(3):
        records = [_one(i, i, Random(number).randbytes(99)) for i in range(9)]
        writer = ParquetWriter(LABELS, log_append_time=False, room=room)
        for piece in cut(_sent(records)):
            writer.add(piece)
        assert _read(bytes(writer.finish(0, 9))) == records


def test_a_row_group_ends_where_its_bytes_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 10_000)
    records = [_one(i, 0, b"x" * 3000) for i in range(12)]
    writer = ParquetWriter(LABELS, log_append_time=False)
    for record in records:
        for piece in cut(_sent([record])):
            writer.add(piece)
    sealed = bytes(writer.finish(0, 12))
    spans = ParquetSegment(read_only(sealed)).spans
    assert [(span.start, span.end) for span in spans] == [(0, 4), (4, 8), (8, 12)]
    assert _read(sealed) == records


@pytest.mark.parametrize("has_checks", [True, False])
def test_a_row_group_that_has_changed_since_the_file_was_opened_is_refused(
    monkeypatch: pytest.MonkeyPatch, has_checks: bool
) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 2)
    if not has_checks:  # As earlier versions wrote them.
        monkeypatch.setattr(ParquetWriter, "_check", lambda _: None)
    values = [Random(i).randbytes(5000) for i in range(8)]
    writer = ParquetWriter(LABELS, log_append_time=False)
    for i, value in enumerate(values):
        for piece in cut(_sent([_one(i, 0, value)])):
            writer.add(piece)
    sealed = np.frombuffer(bytearray(writer.finish(0, 8)), np.uint8)
    opened = sealed.view()
    opened.flags.writeable = False
    segment = ParquetSegment(opened)
    sealed[bytes(sealed).index(values[5]) + 77] ^= 1
    assert [span.start for span in segment.spans] == [0, 2, 4, 6]
    for span in segment.spans:
        if has_checks and span.start == 4:
            with pytest.raises(pa.ArrowInvalid, match="row group 2 has changed"):
                segment.batches(span)
        else:
            assert len(b"".join(segment.batches(span).pieces)) > 10_000


def test_the_file_does_not_say_that_its_values_were_views() -> None:
    sealed = _sealed(_sent([_one(0)]))
    schema = pq.ParquetFile(pa.BufferReader(sealed)).schema_arrow
    assert schema.remove_metadata() == parquet.SCHEMA


@pytest.mark.parametrize("shared_bytes", [100, 1000])
def test_batches_are_bounded(shared_bytes: int) -> None:
    records = [_one(i, 0, b"x" * 30) for i in range(50)]
    back = _batches(_sealed(_sent(records)), BatchLimits(shared_bytes))
    assert max(map(len, back)) <= shared_bytes
    assert [record for batch in back for record in _records(batch)] == records


def test_a_record_that_fits_the_topic_only_compressed_comes_back_compressed() -> None:
    """Use fault 4."""
    records = [_one(0), _one(1, 0, b"x" * 5000), _one(2)]
    back = _batches(_sealed(_sent(records)), BatchLimits(512, 1000))
    assert [next(read_batches(batch)).codec for batch in back] == [0, Codec.GZIP, 0]
    assert max(map(len, back)) <= 1000
    assert [record for batch in back for record in _records(batch)] == records


def test_the_file_says_what_it_is(tmp_path: Path) -> None:
    records = [plain.PlainRecord(0, 86_400_000, b"key", b"value", ((b"h", b"1"),))]
    path = tmp_path / "segment.parquet"
    path.write_bytes(_sealed(_sent(records)))
    metadata = pq.read_metadata(path)
    facts = {key: value for key, value in metadata.metadata.items() if key.startswith(b"smq.")}
    assert facts[b"smq.topic"] == b"orders"
    assert facts[b"smq.timestamp_type"] == b"CreateTime"
    columns = {
        metadata.row_group(0).column(i).path_in_schema: i for i in range(metadata.num_columns)
    }
    key, offset = (metadata.row_group(0).column(columns[name]) for name in ("_key", "_offset"))
    assert not key.has_dictionary_page
    assert (key.compression, offset.encodings[-1]) == ("ZSTD", "DELTA_BINARY_PACKED")
    assert (offset.statistics.min, offset.has_column_index) == (0, True)
    query = f"SELECT _ts::VARCHAR, decode(_value), _headers FROM '{path}'"
    [row] = duckdb.execute(query).fetchall()
    assert row == ("1970-01-02 00:00:00+00", "value", [{"key": "h", "value": b"1"}])


def test_header_keys_that_are_no_text_are_escaped_for_lossy_readers() -> None:
    record = plain.PlainRecord(0, 0, None, None, ((b"a\xff", b"1"),))
    [piece] = cut(_sent([record]), lossy=True)
    assert piece.kind is Kind.ROWS
    assert table_of(piece)["_headers"].to_pylist() == [[{"key": "a\\xff", "value": b"1"}]]


def test_no_cut_is_taken_for_a_segment() -> None:
    sealed = _sealed(_sent([_one(0), _one(1)]))
    for end in [0, 3, 4, 8, 100, *range(len(sealed) - 12, len(sealed))]:
        with pytest.raises(pa.ArrowInvalid):
            ParquetSegment(read_only(sealed[:end]))


def test_another_parquet_file_is_no_segment(tmp_path: Path) -> None:
    path = tmp_path / "other.parquet"
    pq.write_table(pa.table({"x": [1]}), path)
    with pytest.raises(pa.ArrowInvalid, match="not a segment"):
        ParquetSegment(read_only(path.read_bytes()))
