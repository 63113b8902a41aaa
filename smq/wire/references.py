"""Handles among the records of a batch, which were cut into columns (`shm.kernels.records`)."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from shm.kernels.records import (
    B_COUNT,
    C_HEADER_COUNT,
    C_HEADERS_FIRST,
    C_VALUE_AT,
    C_VALUE_LENGTH,
    H_KEY_AT,
    H_KEY_LENGTH,
    H_VALUE_AT,
    H_VALUE_LENGTH,
    fill_headers,
    new_columns,
    new_facts,
    new_headers,
    scan_batches,
    walk_batches,
)
from shm.kernels.references import HEADER_KEY
from smq.model.references import HEADER, HEADER_VALUE, NotAHandle, Reference

assert HEADER.encode() == HEADER_KEY


class Handle(NamedTuple):
    """A record with the header: its place among the records, and what it stands for or is not."""

    record: int
    reference: Reference | NotAHandle


def handles_in(data: np.ndarray, columns: np.ndarray, headers: np.ndarray) -> Iterator[Handle]:
    """The records that have the header, in order; `fill_headers` has been here."""
    for row in _named(data, headers).tolist():
        record = int(np.searchsorted(columns[C_HEADERS_FIRST], row, "right")) - 1
        yield Handle(record, _reference(data, columns[:, record], headers[:, row]))


def handles_of_batch(data: np.ndarray, at: int, end: int) -> list[Handle] | None:
    """The handles in the one uncompressed batch data[at:end]; None: it is malformed."""
    facts = new_facts(0)
    if scan_batches(data, at, end, facts) != 1:
        return None
    columns = new_columns(int(facts[B_COUNT, 0]))
    if walk_batches(data, facts, 0, 1, columns) < 0:
        return None
    headers = new_headers(int(columns[C_HEADER_COUNT].sum()))
    fill_headers(data, columns, headers)
    return list(handles_in(data, columns, headers))


def _named(data: np.ndarray, headers: np.ndarray) -> np.ndarray:
    """The rows of headers that are called `smq-ref`."""
    rows = np.flatnonzero(headers[H_KEY_LENGTH] == len(HEADER_KEY))
    keys = data[headers[H_KEY_AT, rows][:, None] + np.arange(len(HEADER_KEY))]
    named: np.ndarray = rows[(keys == np.frombuffer(HEADER_KEY, np.uint8)).all(axis=1)]
    return named


def _reference(data: np.ndarray, record: np.ndarray, header: np.ndarray) -> Reference | NotAHandle:
    if _bytes(data, header[H_VALUE_AT], header[H_VALUE_LENGTH]) != HEADER_VALUE:
        return NotAHandle(f"the header {HEADER} must be {HEADER_VALUE.decode()}")
    try:
        return Reference.of_handle(_bytes(data, record[C_VALUE_AT], record[C_VALUE_LENGTH]))
    except NotAHandle as reason:
        return reason


def _bytes(data: np.ndarray, at: int, length: int) -> bytes | None:
    return None if length < 0 else data[at : at + length].tobytes()
