"""Batches from columns: compiled and plain make the same bytes."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shm.arrow import read_only
from shm.kernels.record.records import C_FIELDS, H_FIELDS
from shm.kernels.record.records_encode import (
    One,
    RecordRows,
    Run,
    ValueRows,
    are_offsets,
    encode_batch,
    encode_one,
    encode_values,
    varint_bytes,
)
from shm.kernels.twin import records as plain
from smq.testing.records import plain_records
from smq.wire.records import write_headers

LOG_APPEND_TIME = 8


class _Bytes:
    """Collects fields; remembers where each lies."""

    def __init__(self) -> None:
        self.data = bytearray()

    def add(self, field: bytes | None) -> tuple[int, int]:
        at = len(self.data)
        self.data += field or b""
        return at, -1 if field is None else len(field)


def rows_of(records: list[plain.PlainRecord]) -> RecordRows:
    """Records as columns, keys, values and headers each in bytes of their own."""
    keys, values, header_keys, header_values = _Bytes(), _Bytes(), _Bytes(), _Bytes()
    columns, headers = list[list[int]](), list[list[int]]()
    for record in records:
        first = len(headers)
        for key, value in record.headers:
            headers.append([*header_keys.add(key), *header_values.add(value)])
        times = [record.offset, record.timestamp]
        fields = [*keys.add(record.key), *values.add(record.value)]
        columns.append([*times, *fields, 0, first, len(record.headers)])
    return RecordRows(
        np.array(columns, np.int64).reshape(-1, C_FIELDS).T.copy(),
        np.array(headers, np.int64).reshape(-1, H_FIELDS).T.copy(),
        *(read_only(bytes(each.data)) for each in (keys, values, header_keys, header_values)),
    )


def _encode(records: list[plain.PlainRecord], run: Run, bytes_max: int) -> list[bytes]:
    rows, out = rows_of(records), np.zeros(100_000, np.uint8)
    batches, row = [], 0
    while row < run.end:
        after, end = encode_batch(rows, row, run, bytes_max, out, 7)
        assert after > row
        batches.append(out[7:end].tobytes())
        row = after
    return batches


@settings(deadline=None)
@given(
    plain_records(base_offset=10),
    st.integers(0, 200),
    st.sampled_from([0, LOG_APPEND_TIME]),
    st.sampled_from([0, 1, 2**31]),
)
def test_batches_are_those_of_the_twin(
    records: list[plain.PlainRecord], bytes_max: int, attributes: int, gap: int
) -> None:
    end_offset = records[-1].offset + 1 + gap
    run = Run(len(records), end_offset, attributes, 5)
    assert _encode(records, run, bytes_max) == plain.encode(
        records,
        end_offset=end_offset,
        bytes_max=bytes_max,
        attributes=attributes,
        leader_epoch=5,
    )


@settings(deadline=None)
@given(
    st.lists(st.one_of(st.binary(max_size=80), st.binary(min_size=300, max_size=400)), min_size=1),
    st.integers(0, 70),
    st.integers(1, 3),
    st.integers(61, 2000),
)
def test_batches_of_values_are_those_of_rows(
    values: list[bytes], before: int, times: int, bytes_max: int
) -> None:
    values, time, start = values * times, 1_700_000_000_000, before % 8
    records = [plain.PlainRecord(i, time, None, value) for i, value in enumerate(values)]
    ends = np.cumsum([start, *map(len, values)]).astype(np.int32)
    data = read_only(bytes(start) + b"".join(values) + bytes(before))
    run, row = Run(len(values), len(values), 0, -1, 7, 1, 5), 0
    while row < len(values):
        expected, found = np.zeros(100_000, np.uint8), np.zeros(100_000, np.uint8)
        whole = encode_batch(rows_of(records), row, run, bytes_max, expected, before)
        assert (
            encode_values(ValueRows(data, ends, time), row, run, bytes_max, found, before) == whole
        )
        row, end = whole
        assert found[:end].tobytes() == expected[:end].tobytes()


@pytest.mark.parametrize("attributes", [0, LOG_APPEND_TIME])
def test_records_further_apart_than_a_batch_spans_are_in_two(attributes: int) -> None:
    """Data fault 18: with log append time they shared one, with an offset delta beyond 32 bits."""
    records = [plain.PlainRecord(offset, 5, None, b"v") for offset in (10, 10 + 2**31)]
    run = Run(2, 11 + 2**31, attributes, 5)
    made = _encode(records, run, 1000)
    assert [int.from_bytes(each[:8]) for each in made] == [10, 10 + 2**31]
    assert made == plain.encode(
        records, end_offset=11 + 2**31, bytes_max=1000, attributes=attributes, leader_epoch=5
    )


def test_values_without_room_are_not_begun() -> None:
    values, run = ValueRows(read_only(b"value"), np.array([0, 5]), 0), Run(1, 1, 0, 0)
    whole = len(plain.batch([plain.PlainRecord(0, 0, None, b"value")], end_offset=1))
    for room in range(whole):
        assert encode_values(values, 0, run, 1000, np.zeros(room, np.uint8), 0) == (0, 0)
    assert encode_values(values, 0, run, 1000, np.zeros(whole, np.uint8), 0) == (1, whole)


def test_a_batch_without_room_is_not_begun() -> None:
    rows = rows_of([plain.PlainRecord(0, 0, b"key", b"value")])
    whole = len(plain.batch([plain.PlainRecord(0, 0, b"key", b"value")], end_offset=1))
    for room in range(whole):
        out = np.zeros(room, np.uint8)
        assert encode_batch(rows, 0, Run(1, 1, 0, 0), 1000, out, 0) == (0, 0)
    assert encode_batch(rows, 0, Run(1, 1, 0, 0), 1000, np.zeros(whole, np.uint8), 0) == (1, whole)


def test_under_log_append_time_a_batch_has_one_timestamp() -> None:
    times = [5, 5, 6, 6, 5]
    records = [plain.PlainRecord(i, time, None, b"x") for i, time in enumerate(times)]
    batches = _encode(records, Run(5, 5, LOG_APPEND_TIME, 0), 10_000)
    assert [int.from_bytes(batch[57:61], "big") for batch in batches] == [2, 2, 1]


def test_timestamps_too_far_apart_get_batches_of_their_own() -> None:
    times = [-1, 2**63 - 1, -(2**63)]
    records = [plain.PlainRecord(i, time, None, b"x") for i, time in enumerate(times)]
    assert len(_encode(records, Run(3, 3, 0, 0), 10_000)) == 3


@pytest.mark.parametrize("shift", range(64))
def test_varints_have_the_twins_length(shift: int) -> None:
    for value in (1 << shift, (1 << shift) - 1, -(1 << shift)):
        if value < 2**63:
            assert varint_bytes(value) == len(plain.varint(value))


def test_a_producers_batch_bears_its_id_epoch_and_sequence() -> None:
    records = [plain.PlainRecord(i, 7, b"key", b"x") for i in range(3)]
    run = Run(3, 3, 0, -1, 2**40, 3, 2**31 - 2)
    assert _encode(records, run, 10_000) == [
        plain.batch(
            records,
            end_offset=3,
            leader_epoch=-1,
            producer_id=2**40,
            producer_epoch=3,
            base_sequence=2**31 - 2,
        )
    ]


FIELD = st.none() | st.binary(max_size=300)


@settings(deadline=None)
@given(
    FIELD,
    FIELD,
    st.lists(st.tuples(st.binary(max_size=9), FIELD), max_size=3).map(tuple),
    st.integers(0, 2**62),
    st.integers(0, 20),
)
def test_a_single_record_is_a_batch_as_of_columns(
    value: bytes | None,
    key: bytes | None,
    headers: tuple[tuple[bytes, bytes | None], ...],
    time: int,
    before: int,
) -> None:
    record = plain.PlainRecord(0, time, key, value, headers)
    run = Run(1, 1, 3, -1, 2**40, 7, 2**31 - 1)
    expected, found = np.zeros(3000, np.uint8), np.zeros(3000, np.uint8)
    whole = encode_batch(rows_of([record]), 0, run, 3000, expected, before)
    lengths = [-1 if field is None else len(field) for field in (value, key)]
    tail = read_only(write_headers(headers))
    one = One(read_only(value or b""), lengths[0], read_only(key or b""), lengths[1], tail, time)
    end = encode_one(*one, 3, 2**40, 7, 2**31 - 1, found, before)
    assert (1, end) == whole
    assert found[before:end].tobytes() == expected[before:end].tobytes()


@pytest.mark.parametrize(
    ("offsets", "are"),
    [
        ([0], True), ([0, 0, 7], True), ([3, 5, 7], True), ([0, 8], False), ([0, 5, 4, 7], False),
        ([-1, 3], False), ([8], False),
    ],
)  # fmt: skip
def test_offsets_rise_within_their_bytes(offsets: list[int], *, are: bool) -> None:
    assert are_offsets(read_only(np.array(offsets, np.int32)).view(np.int32), 7) == are
