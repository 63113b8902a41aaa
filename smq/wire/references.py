"""Finds handles among the records of a batch, as sent or cut into columns."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from shm.kernels.record.records import (
    C_HEADERS_FIRST,
    C_VALUE_AT,
    C_VALUE_LENGTH,
    H_KEY_AT,
    H_KEY_LENGTH,
    H_VALUE_AT,
    H_VALUE_LENGTH,
)
from shm.kernels.record.references import GOOD_HEADER, HEADER_KEY, R_FIELDS, find_handles
from smq.model.references import HEADER, HEADER_VALUE, NotAHandle, Reference

assert HEADER.encode() == HEADER_KEY
ROWS_FIRST = 64  # Handles of a batch; a batch with more takes a second pass.


class Handle(NamedTuple):
    """A record with the header: its index, and its reference or why it has none."""

    record: int
    reference: Reference | NotAHandle


def handle_rows(data: np.ndarray, at: int, end: int) -> np.ndarray | None:
    """A row (R_FIELDS) for each handle in the uncompressed batch data[at:end]; None if it is
    malformed."""
    rows = np.empty((ROWS_FIRST, R_FIELDS), np.int64)
    count = find_handles(data, at, end, rows)
    if count > ROWS_FIRST:
        rows = np.empty((count, R_FIELDS), np.int64)
        find_handles(data, at, end, rows)
    return None if count < 0 else rows[:count]


def handles_of_rows(data: np.ndarray, rows: np.ndarray) -> Iterator[Handle]:
    """The handles of these rows."""
    for record, value_at, length, said in rows.tolist():
        reference = _reference(data, value_at, length, is_good=said == GOOD_HEADER)
        yield Handle(record, reference)


def handles_of_batch(data: np.ndarray, at: int, end: int) -> list[Handle] | None:
    """The handles in the uncompressed batch data[at:end]; None if it is malformed."""
    rows = handle_rows(data, at, end)
    return None if rows is None else list(handles_of_rows(data, rows))


def handles_in(data: np.ndarray, columns: np.ndarray, headers: np.ndarray) -> Iterator[Handle]:
    """The records with the header, in order, after `fill_headers`."""
    for row in _named(data, headers).tolist():
        record = int(np.searchsorted(columns[C_HEADERS_FIRST], row, "right")) - 1
        value_at, length = columns[[C_VALUE_AT, C_VALUE_LENGTH], record].tolist()
        at, size = headers[[H_VALUE_AT, H_VALUE_LENGTH], row].tolist()
        is_good = size >= 0 and data[at : at + size].tobytes() == HEADER_VALUE
        yield Handle(record, _reference(data, value_at, length, is_good=is_good))


def _named(data: np.ndarray, headers: np.ndarray) -> np.ndarray:
    """The rows of headers with the key `smq-ref`."""
    rows = np.flatnonzero(headers[H_KEY_LENGTH] == len(HEADER_KEY))
    keys = data[headers[H_KEY_AT, rows][:, None] + np.arange(len(HEADER_KEY))]
    named: np.ndarray = rows[(keys == np.frombuffer(HEADER_KEY, np.uint8)).all(axis=1)]
    return named


def _reference(data: np.ndarray, at: int, length: int, *, is_good: bool) -> Reference | NotAHandle:
    if not is_good:
        return NotAHandle(f"the header {HEADER} must be {HEADER_VALUE.decode()}, and occur once")
    try:
        return Reference.of_handle(None if length < 0 else data[at : at + length].tobytes())
    except NotAHandle as reason:
        return reason
