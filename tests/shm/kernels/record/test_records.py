"""Batches cut into columns: three voices say the same; garbage stops the walk."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shm.arrow import read_only
from shm.kernels.record.records import (
    B_ATTRIBUTES,
    B_BASE_OFFSET,
    B_BASE_TIMESTAMP,
    B_COUNT,
    B_END,
    B_FIELDS,
    B_INTACT,
    B_LAST_OFFSET,
    B_LEADER_EPOCH,
    B_MAX_TIMESTAMP,
    B_PRODUCER_ID,
    B_RECORDS_AT,
    B_RECORDS_END,
    C_HEADER_COUNT,
    C_HEADERS_FIRST,
    C_KEY_AT,
    C_KEY_LENGTH,
    C_OFFSET,
    C_TIMESTAMP,
    C_VALUE_AT,
    C_VALUE_LENGTH,
    count_utf8,
    delta_word,
    fill_headers,
    get_varint,
    get_varlong,
    new_columns,
    new_facts,
    new_headers,
    scan_batches,
    varint_end,
    walk_batches,
)
from shm.kernels.twin import records as plain
from smq.testing.records import plain_records, similar_records

VOICES = [pytest.param(False, id="compiled"), pytest.param(True, id="interpreted")]
BASE = 1000


def _voice(kernel: Any, interpreted: bool) -> Any:
    return kernel.py_func if interpreted else kernel


def _facts_of_payload(payload: bytes, count: int, last_offset: int) -> np.ndarray:
    facts = np.zeros((B_FIELDS, 1), np.int64)
    facts[B_BASE_OFFSET], facts[B_LAST_OFFSET], facts[B_COUNT] = BASE, last_offset, count
    facts[B_RECORDS_END] = len(payload)
    return facts


def _field(data: bytes, at: int, length: int) -> bytes | None:
    return None if length < 0 else data[at : at + length]


def _read_back(data: bytes, columns: np.ndarray, headers: np.ndarray) -> list[plain.PlainRecord]:
    read = []
    for row in columns.T.tolist():
        first = row[C_HEADERS_FIRST]
        own = headers[:, first : first + row[C_HEADER_COUNT]].T.tolist()
        pairs = tuple((data[k : k + n], _field(data, v, m)) for k, n, v, m in own)
        key = _field(data, row[C_KEY_AT], row[C_KEY_LENGTH])
        value = _field(data, row[C_VALUE_AT], row[C_VALUE_LENGTH])
        read.append(plain.PlainRecord(row[C_OFFSET], row[C_TIMESTAMP], key, value, pairs))
    return read


def _walk(data: bytes, facts: np.ndarray, *, interpreted: bool) -> list[plain.PlainRecord] | int:
    """The records as the kernels see them, or what they say of bad ones."""
    array, columns = read_only(data), new_columns(len(data) // 7 + 1)
    count = _voice(walk_batches, interpreted)(array, facts, 0, facts.shape[1], columns)
    if count < 0:
        return int(count)
    columns = columns[:, :count].copy()
    headers = new_headers(int(columns[C_HEADER_COUNT].sum()))
    filled = _voice(fill_headers, interpreted)(array, columns, headers)
    assert filled == headers.shape[1]
    return _read_back(data, columns, headers)


def _payload(records: list[plain.PlainRecord]) -> bytes:
    bodies = [plain.record_body(record, BASE, 0) for record in records]
    return b"".join(plain.varint(len(body)) + body for body in bodies)


@pytest.mark.parametrize("interpreted", VOICES)
@settings(deadline=None)
@given(st.data())
def test_records_are_cut_as_the_twin_cuts_them(interpreted: bool, data: st.DataObject) -> None:
    records = data.draw(plain_records(base_offset=BASE, base_timestamp=0))
    payload = _payload(records)
    facts = _facts_of_payload(payload, len(records), records[-1].offset)
    assert _walk(payload, facts, interpreted=interpreted) == records


@settings(deadline=None)
@given(similar_records(base_offset=BASE), st.binary(max_size=9))
def test_similar_records_are_cut_as_the_twin_cuts_them(
    records: list[plain.PlainRecord], behind: bytes
) -> None:
    payload = _payload(records)
    facts = _facts_of_payload(payload, len(records), records[-1].offset)
    assert _walk(payload + behind, facts, interpreted=False) == records


@settings(deadline=None, max_examples=300)
@given(similar_records(base_offset=BASE, most=12), st.data())
def test_of_garbage_among_similar_records_both_say_the_same(
    records: list[plain.PlainRecord], data: st.DataObject
) -> None:
    payload = bytearray(_payload(records))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(payload) - 1))
        payload[at] = (payload[at] + data.draw(st.sampled_from([1, 2, 128, 254]))) % 256
    count = data.draw(st.sampled_from([len(records), len(records), len(records) - 1]))
    cut = bytes(payload[: len(payload) - data.draw(st.sampled_from([0, 0, 1, 5]))])
    try:
        expected: list[plain.PlainRecord] | int = plain.records(cut, BASE, 0, count)
    except plain.MalformedRecord:
        expected = ~0
    facts = _facts_of_payload(cut, count, 2**40)
    assert _walk(cut, facts, interpreted=False) == expected


def test_a_varint_that_was_overwritten_ends_with_its_bytes() -> None:
    kernel: Any = varint_end
    data = np.full(9, 0x80, np.uint8)
    assert kernel(data, 2, 9) == kernel.py_func(data, 2, 9) == 10


def test_the_words_of_deltas_are_their_varints() -> None:
    for width in (1, 2, 3, 4):
        low, high = (1 << 7 * width - 8) if width > 1 else 0, (1 << 7 * width - 1) - 1
        for delta in {low, low + 1, (low + high) // 2, high}:
            assert int(delta_word(delta, width)).to_bytes(width, "little") == plain.varint(delta)


@pytest.mark.parametrize("interpreted", VOICES)
@settings(deadline=None)
@given(st.data())
def test_of_garbage_all_say_the_same(interpreted: bool, data: st.DataObject) -> None:
    records = data.draw(plain_records(base_offset=BASE, base_timestamp=0))
    payload = bytearray(_payload(records))
    for _ in range(data.draw(st.integers(0, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(payload[: data.draw(st.integers(0, len(payload)))])
    count = data.draw(st.integers(-1, 5))
    try:
        expected: list[plain.PlainRecord] | int = plain.records(cut, BASE, 0, count)
    except plain.MalformedRecord:
        expected = ~0
    facts = _facts_of_payload(cut, count, 2**40)
    assert _walk(cut, facts, interpreted=interpreted) == expected


@pytest.mark.parametrize("interpreted", VOICES)
@settings(deadline=None)
@given(st.binary(max_size=12), st.integers(-1, 12))
def test_varints_are_read_as_the_twin_reads_them(interpreted: bool, data: bytes, at: int) -> None:
    for kernel, bits in ((get_varint, 32), (get_varlong, 64)):
        reader = plain.FieldReader(data[at:] if at >= 0 else b"")
        try:
            expected = (reader.varint(bits), len(data) - len(reader.left))
        except plain.MalformedRecord:
            expected = (0, -1)
        assert _voice(kernel, interpreted)(read_only(data), at, len(data)) == expected


@settings(deadline=None)
@given(st.integers(-(2**63), 2**63 - 1))
def test_a_varint_of_any_int64_comes_back(value: int) -> None:
    data = plain.varint(value)
    assert get_varlong(read_only(data), 0, len(data)) == (value, len(data))
    fits = -(2**31) <= value < 2**31
    assert get_varint(read_only(data), 0, len(data)) == ((value, len(data)) if fits else (0, -1))


@pytest.mark.parametrize("interpreted", VOICES)
@settings(deadline=None, max_examples=300)
@given(st.lists(st.one_of(st.text(max_size=4).map(str.encode), st.binary(max_size=4)), max_size=4))
def test_utf8_is_what_python_decodes(interpreted: bool, strings: list[bytes]) -> None:
    data = b"".join(strings)
    lengths = np.array([len(each) for each in strings], np.int64)
    ats = np.cumsum(lengths) - lengths
    good = [plain.utf8(each) for each in strings]
    expected = good.index(False) if False in good else len(good)
    assert _voice(count_utf8, interpreted)(read_only(data), ats, lengths) == expected


def test_every_pair_of_bytes_and_the_edges_of_unicode() -> None:
    pairs = [bytes([first, second]) for first in range(256) for second in range(256)]
    edges = [pair + tail for pair in pairs for tail in (b"\x80", b"\xbf\xbf")]
    for string in pairs + edges:
        count = count_utf8(read_only(string), np.zeros(1, np.int64), np.full(1, len(string)))
        assert count == plain.utf8(string), string


def _batches() -> list[bytes]:
    one = [
        plain.PlainRecord(5, 77, b"k", b"v", ((b"h", None),)),
        plain.PlainRecord(7, 99, None, b""),
    ]
    two = [plain.PlainRecord(12, -1, b"", None)]
    return [
        plain.batch(one, end_offset=12, leader_epoch=3),
        plain.batch(two, end_offset=13, attributes=8, producer_id=42),
    ]


def test_the_facts_of_batches_are_their_headers() -> None:
    first, second = _batches()
    facts = new_facts(len(first + second))
    assert scan_batches(read_only(first + second), 0, len(first + second), facts) == 2
    assert facts[B_END, :2].tolist() == [len(first), len(first + second)]
    assert facts[B_BASE_OFFSET, :2].tolist() == [5, 12]
    assert facts[B_LAST_OFFSET, :2].tolist() == [11, 12]
    assert facts[B_LEADER_EPOCH, :2].tolist() == [3, 0]
    assert facts[B_ATTRIBUTES, :2].tolist() == [0, 8]
    assert facts[B_BASE_TIMESTAMP, :2].tolist() == [77, -1]
    assert facts[B_MAX_TIMESTAMP, :2].tolist() == [99, -1]
    assert facts[B_PRODUCER_ID, :2].tolist() == [-1, 42]
    assert facts[B_COUNT, :2].tolist() == [2, 1]
    assert facts[B_RECORDS_AT, :2].tolist() == [61, len(first) + 61]
    assert facts[B_RECORDS_END, :2].tolist() == [len(first), len(first + second)]


def test_a_full_table_of_facts_stops_the_scan() -> None:
    data = b"".join(_batches())
    facts = np.zeros((B_FIELDS, 1), np.int64)
    assert scan_batches(read_only(data), 0, len(data), facts) == 1


def test_any_cut_stops_the_scan_at_its_batch() -> None:
    first, second = _batches()
    data = first + second
    for end in range(len(first) + 1, len(data)):
        assert scan_batches(read_only(data), 0, end, new_facts(end)) == ~len(first)


def test_any_flipped_bit_behind_the_crc_is_seen_in_its_batch() -> None:
    first, second = _batches()
    data = first + second
    for byte in range(len(first) + 17, len(data)):
        flipped, facts = bytearray(data), new_facts(len(data))
        flipped[byte] ^= 4
        assert scan_batches(read_only(flipped), 0, len(data), facts) == 2
        assert facts[B_INTACT, :2].tolist() == [1, 0]


@pytest.mark.parametrize("length", [-(2**31), -13, -1, 0, 48, 2**31 - 1])
def test_an_impossible_batch_length_stops_the_scan(length: int) -> None:
    data = bytearray(_batches()[0])
    data[8:12] = length.to_bytes(4, "big", signed=True)
    assert scan_batches(read_only(data), 0, len(data), new_facts(len(data))) == ~0


def test_a_malformed_batch_is_named_by_its_row() -> None:
    records = [plain.PlainRecord(5, 0, b"k", b"v")]
    good = plain.batch(records, end_offset=6)
    data = good + plain.batch(records, end_offset=6, inflated=b"garbage with a good CRC") + good
    facts = new_facts(len(data))
    assert scan_batches(read_only(data), 0, len(data), facts) == 3
    assert walk_batches(read_only(data), facts, 0, 3, new_columns(10)) == ~1
    assert walk_batches(read_only(data), facts, 2, 3, new_columns(10)) == 1


def test_records_do_not_overflow_the_columns() -> None:
    data = _batches()[0]
    facts = new_facts(len(data))
    scan_batches(read_only(data), 0, len(data), facts)
    assert walk_batches(read_only(data), facts, 0, 1, new_columns(1)) == ~0


def test_an_offset_beyond_the_batchs_last_is_malformed() -> None:
    payload = _payload([plain.PlainRecord(BASE + 3, 0, None, None)])
    assert _walk(payload, _facts_of_payload(payload, 1, BASE + 2), interpreted=False) == ~0


def test_a_hostile_header_count_costs_nothing() -> None:
    body = b"\0\0\0\1\1" + plain.varint(2**31 - 1)
    payload = plain.varint(len(body)) + body
    assert _walk(payload, _facts_of_payload(payload, 1, BASE), interpreted=True) == ~0
