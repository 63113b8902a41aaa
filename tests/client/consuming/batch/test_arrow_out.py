"""Arrow's columns say what the records say, over the memory they lie in."""

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from shm.kernels.twin import records as plain
from smq.client.consuming.batch.arrow_out import (
    SCHEMA,
    are_append_times,
    are_header_keys_text,
    to_table,
)
from smq.client.consuming.batch.chunk import Chunk, PollRoom, cut
from smq.testing.records import plain_batches
from smq.wire.compression import Codec
from smq.wire.records import Record, write_batch
from tests.client.batches import NAME, batches_of, expected


@settings(deadline=None)
@given(plain_batches(), st.integers(0, 10))
def test_columns_say_what_records_say(sent: list[bytes], start: int) -> None:
    data = b"".join(sent)
    chunks, _ = cut(batches_of(data, start), PollRoom(64 << 20))
    table = to_table(chunks)
    table.validate(full=True)
    assert table.schema == SCHEMA
    times = table.column("timestamp").cast(pa.int64())
    columns = ["offset", "key", "value", "headers"]
    rows = zip(
        times.to_pylist(), *(table.column(each).to_pylist() for each in columns), strict=True
    )
    found = [
        (offset, time, key, value, tuple((each["key"], each["value"]) for each in headers))
        for time, offset, key, value, headers in rows
    ]
    assert found == expected(data, start)
    assert set(table.column("topic").to_pylist()) <= {NAME.topic}
    assert set(table.column("partition").to_pylist()) <= {NAME.partition}


def test_a_chunk_is_a_record_batch_over_its_memory() -> None:
    sent = [Record(each, 1000, b"key", b"v" * 100, ((b"\xff", b"1"),)) for each in range(3)]
    data = write_batch(sent) + write_batch(sent, compression=Codec.LZ4)
    batches = batches_of(data)
    chunks, _ = cut(batches, PollRoom(64 << 20))
    table = to_table(chunks)
    assert [len(each) for each in table.to_batches()] == [3, 3]
    values = table.column("value").chunks
    assert values[0].buffers()[2].address == batches.memory.ctypes.data
    assert values[1].buffers()[2].address == chunks[1].memory.ctypes.data
    assert table.column("timestamp")[0].as_py() == datetime.fromtimestamp(1, UTC)
    assert table.column("headers")[0].as_py() == [{"key": "\\xff", "value": b"1"}]


def chunk_of(records: list[Record]) -> Chunk:
    [chunk], _ = cut(batches_of(write_batch(records)), PollRoom(64 << 20))
    return chunk


def test_only_the_named_columns_are_made() -> None:
    chunk = chunk_of([Record(0, 1000, b"key", b"value", ((b"h", b"1"),))])
    table = to_table([chunk], ["value", "offset"])
    assert table.to_pydict() == {"value": [b"value"], "offset": [0]}
    assert "headers" not in chunk.__dict__
    with pytest.raises(KeyError):
        to_table([chunk], ["values"])


def test_escaped_header_keys_are_made_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smq.client.consuming.batch.arrow_out.KEYS_ESCAPED", 2)
    keys = b"a", b"\xff", b"b" * 20, b"\xfe" * 20, b"c"
    chunk = chunk_of([Record(0, 0, None, None, tuple((each, None) for each in keys))])
    [[*headers]] = to_table([chunk])["headers"].to_pylist()
    assert [each["key"] for each in headers] == [
        each.decode(errors="backslashreplace") for each in keys
    ]


def test_nothing_is_a_table_without_rows() -> None:
    assert to_table([]).schema == SCHEMA


def test_are_append_times_marks_the_rows_of_log_append_time() -> None:
    log_append_time = 8
    sent = [plain.PlainRecord(each, 1, None, b"v") for each in range(3)]
    created = plain.batch(sent[:2], end_offset=2)
    appended = plain.batch(sent[2:], end_offset=3, attributes=log_append_time)
    chunks, _ = cut(batches_of(created + appended), PollRoom(64 << 20))
    assert are_append_times(chunks).tolist() == [False, False, True]
    assert are_append_times([]).tolist() == []


def test_a_ring_beyond_what_views_reach_is_cut_to_what_they_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent = [Record(each, 1000, b"key %d" % each, b"v" * 100, ((b"h", b"1"),)) for each in range(3)]
    data = write_batch(sent)
    batches = batches_of(data * 3, is_lent=True)
    (whole,), _ = cut(batches, PollRoom(64 << 20))
    (last,), _ = cut(
        batches._replace(facts=np.ascontiguousarray(batches.facts[:, 2:])), PollRoom(64 << 20)
    )
    expected_rows = to_table([whole]).to_pylist()
    monkeypatch.setattr("smq.client.consuming.batch.arrow_out.VIEW_OFFSET_MAX", len(data) + 10)
    for chunk in (whole, last):
        table = to_table([chunk])
        table.validate(full=True)
        assert table.to_pylist() == expected_rows[-len(chunk) :]
    (column,) = to_table([last]).column("value").chunks
    assert column.buffers()[2].address == batches.memory.ctypes.data + 2 * len(data)


def test_a_header_key_that_is_not_utf8_is_escaped_and_all_others_stay() -> None:
    """Awkward records: all of them lost what is not UTF-8, and `smq export` wrote it so."""
    keys = [b"a\xffb", b"\xfe", "k\u00e4se \ufffd".encode(), b"\\xff"]
    chunk = chunk_of([Record(0, 0, None, b"", tuple((key, None) for key in keys))])
    [headers] = to_table([chunk]).column("headers").to_pylist()
    assert [each["key"] for each in headers] == ["a\\xffb", "\\xfe", "k\u00e4se \ufffd", "\\xff"]
    assert not are_header_keys_text([chunk])
    assert are_header_keys_text([chunk_of([Record(0, 0, None, b"", ((keys[2], None),))])])
    assert are_header_keys_text([])
