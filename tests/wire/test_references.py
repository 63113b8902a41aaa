"""Handles among records, whatever else stands in the batch."""

import numpy as np
from hypothesis import given, settings, strategies as st

from shm.kernels.record.records import (
    C_HEADER_COUNT,
    fill_headers,
    new_columns,
    new_facts,
    new_headers,
    scan_batches,
    walk_batches,
)
from shm.kernels.record.references import may_refer
from smq.model.references import NotAHandle
from smq.testing.payloads import HANDLE_HEADERS, handle_batch, reference_to
from smq.wire.records import Headers, Record, write_batch
from smq.wire.references import ROWS_FIRST, handles_in, handles_of_batch

REFERENCE = reference_to(b"payload")


def of(batch: bytes) -> list[tuple[int, object]] | None:
    data = np.frombuffer(b"before" + batch + b"behind", np.uint8)
    found = handles_of_batch(data, 6, 6 + len(batch))
    return None if found is None else [(each.record, each.reference) for each in found]


def one(value: bytes | None, headers: Headers) -> bytes:
    return write_batch([Record(0, 0, None, value, headers)])


def test_handles_are_found_by_their_places() -> None:
    second = reference_to(b"other", 2)
    batch = handle_batch([b"plain", REFERENCE, b"\x0esmq-ref", second])
    assert of(batch) == [(1, REFERENCE), (3, second)]


def test_a_batch_without_headers_has_none() -> None:
    assert of(handle_batch([b"a", b"b"])) == []


def test_other_headers_of_seven_bytes_are_not_it() -> None:
    headers = ((b"traceid", b"1"), (b"smq-rex", b"1"), *HANDLE_HEADERS, (b"x", None))
    assert of(one(REFERENCE.handle(), headers)) == [(0, REFERENCE)]


def test_a_header_of_another_version_is_refused() -> None:
    for header in (b"2", b"", None):
        [(place, reason)] = of(one(REFERENCE.handle(), ((b"smq-ref", header),))) or []
        assert place == 0
        assert isinstance(reason, NotAHandle)
        assert str(reason) == "the header smq-ref must be 1, and occur once"


def test_an_invalid_handle_is_refused() -> None:
    for value in (None, b"", b"{}"):
        [(_, reason)] = of(one(value, HANDLE_HEADERS)) or []
        assert isinstance(reason, NotAHandle)


def test_a_malformed_batch_has_no_handles() -> None:
    batch = bytearray(handle_batch([REFERENCE]))
    batch[61] ^= 0x40  # The record's length.
    assert of(bytes(batch)) is None


def test_a_key_whose_length_is_written_in_more_bytes_is_one_too() -> None:
    plain_batch = one(REFERENCE.handle(), HANDLE_HEADERS)
    at = plain_batch.index(b"\x0esmq-ref")
    record = plain_batch[61:]
    size, rest = record[:2], record[2 : at - 61] + b"\x8e\x00" + plain_batch[at + 1 :]
    length = ((size[0] & 0x7F) | size[1] << 7) // 2 + 1
    longer = bytes([(2 * length) & 0x7F | 0x80, (2 * length) >> 7]) + rest
    batch = plain_batch[:61] + longer
    assert may_refer(np.frombuffer(with_length(batch), np.uint8), 0, len(batch))
    assert of(with_length(batch)) == [(0, REFERENCE)]


def with_length(batch: bytes) -> bytes:
    """The batch, its length what it is."""
    return batch[:8] + (len(batch) - 12).to_bytes(4) + batch[12:]


def test_the_header_twice_is_nothing_to_rely_on() -> None:
    [(_, reason)] = of(one(REFERENCE.handle(), HANDLE_HEADERS * 2)) or []
    assert isinstance(reason, NotAHandle)


def test_more_handles_than_rows_are_all_found() -> None:
    references = [reference_to(b"x", number) for number in range(2 * ROWS_FIRST)]
    assert of(handle_batch(references)) == list(enumerate(references))


KEYS = st.sampled_from([b"smq-ref", b"smq-re", b"smq-rex", b"xsmq-ref", b"", b"traceid"])
VALUES = st.sampled_from([None, b"", b"1", b"2", REFERENCE.handle(), b"smq-ref"])
RECORDS = st.lists(
    st.tuples(
        VALUES, st.lists(st.tuples(KEYS, VALUES), max_size=4, unique_by=lambda header: header[0])
    ),
    min_size=1,
    max_size=5,
)


@settings(deadline=None)
@given(RECORDS)
def test_it_finds_what_is_found_among_columns(
    records: list[tuple[bytes | None, list[tuple[bytes, bytes | None]]]],
) -> None:
    batch = write_batch(
        [Record(i, 0, None, value, tuple(headers)) for i, (value, headers) in enumerate(records)]
    )
    data, facts = np.frombuffer(batch, np.uint8), new_facts(0)
    assert scan_batches(data, 0, len(data), facts) == 1
    columns = new_columns(len(records))
    assert walk_batches(data, facts, 0, 1, columns) == len(records)
    headers = new_headers(int(columns[C_HEADER_COUNT].sum()))
    fill_headers(data, columns, headers)
    among = [(each.record, str(each.reference)) for each in handles_in(data, columns, headers)]
    found = handles_of_batch(data, 0, len(data))
    assert found is not None
    assert [(each.record, str(each.reference)) for each in found] == among


@settings(deadline=None)
@given(st.binary(max_size=200), st.integers(0, 3))
def test_garbage_raises_nothing(garbage: bytes, count: int) -> None:
    header = bytearray(handle_batch([REFERENCE])[:61])
    header[57:61] = count.to_bytes(4)
    handles_of_batch(np.frombuffer(bytes(header) + garbage, np.uint8), 0, 61 + len(garbage))
