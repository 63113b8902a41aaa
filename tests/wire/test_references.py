"""Handles among records, whatever else stands in the batch."""

import numpy as np

from smq.model.references import NotAHandle
from smq.testing.payloads import HANDLE_HEADERS, handle_batch, reference_to
from smq.wire.records import Headers, Record, write_batch
from smq.wire.references import handles_of_batch

REFERENCE = reference_to(b"payload")


def of(batch: bytes) -> list[tuple[int, object]] | None:
    data = np.frombuffer(b"before" + batch + b"behind", np.uint8)
    found = handles_of_batch(data, 6, 6 + len(batch))
    return None if found is None else [tuple(each) for each in found]


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


def test_a_header_of_another_format_is_told() -> None:
    for header in (b"2", b"", None):
        [(place, reason)] = of(one(REFERENCE.handle(), ((b"smq-ref", header),))) or []
        assert place == 0
        assert isinstance(reason, NotAHandle)
        assert str(reason) == "the header smq-ref must be 1"


def test_a_value_that_is_no_handle_is_told() -> None:
    for value in (None, b"", b"{}"):
        [(_, reason)] = of(one(value, HANDLE_HEADERS)) or []
        assert isinstance(reason, NotAHandle)


def test_a_malformed_batch_has_no_handles_to_be_told_of() -> None:
    batch = bytearray(handle_batch([REFERENCE]))
    batch[61] ^= 0x40  # The record's length.
    assert of(bytes(batch)) is None
