"""Cuts record batches, as sent, into pieces that are sealed in the same way.

    ROWS     records cut into columns (`shm.kernels.record.records`), decompressed where needed
    CONTROL  transaction markers: no user records, but they have offsets and readers get them
    RAW      batches that Parquet cannot return unchanged; they are stored as sent

A batch is RAW if its CRC is wrong, it cannot be inflated within bounds, its records are malformed,
they are too many for the caller's memory, or a header key is not UTF-8. A piece is a run of
consecutive batches; the next piece may be of the same kind. Bounds hold for what is inflated: a
hundred bytes of a batch may be a megabyte of records, and a record of seven bytes takes 72 as a
column.
"""

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

import numpy as np

from shm.arrow import read_only
from shm.kernels.base.words import (
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_LOG_APPEND_TIME,
)
from shm.kernels.record.records import (
    B_AT,
    B_ATTRIBUTES,
    B_BASE_OFFSET,
    B_COUNT,
    B_END,
    B_INTACT,
    B_LAST_OFFSET,
    B_MAX_TIMESTAMP,
    B_RECORDS_AT,
    B_RECORDS_END,
    C_HEADER_COUNT,
    C_HEADERS_FIRST,
    C_KEY_LENGTH,
    C_OFFSET,
    C_TIMESTAMP,
    C_VALUE_LENGTH,
    H_KEY_AT,
    H_KEY_LENGTH,
    H_VALUE_LENGTH,
    INFLATED_BYTES_MAX,
    RECORD_BYTES_MIN,
    count_utf8,
    fill_headers,
    new_columns,
    new_facts,
    new_headers,
    scan_batches,
    walk_batches,
)
from smq.model.errors import PeerError
from smq.wire.inflate import ARENA_BYTES, inflate

MiB = 1024 * 1024
UNKNOWN_ATTRIBUTES = ~63


class InflationBounds(NamedTuple):
    """What is in memory at a time, of whatever is cut."""

    arena_bytes: int = ARENA_BYTES
    """Inflated, except for the last batch."""
    records: int = 1 << 18
    """Of a piece, except for one that is a single batch: 72 bytes each."""
    field_bytes: int = INFLATED_BYTES_MAX
    """Of a key, a value, or one of a header."""
    batch_records: int = 1 << 31
    headers: int = 1 << 31
    """Of a piece: 32 bytes each."""
    batch_bytes: int = INFLATED_BYTES_MAX
    """Of a batch, inflated."""


READER = InflationBounds()
# Parquet holds a value five times while it writes it, beside a file of 128 MiB.
SEALER = InflationBounds(8 * MiB, field_bytes=32 * MiB, batch_records=1 << 20, headers=1 << 19)


class Kind(Enum):
    """How a batch is sealed."""

    ROWS = 0
    CONTROL = 1
    RAW = 2


class Piece(NamedTuple):
    """A run of batches of one kind.

    `batches` are the bytes as sent, `facts` a column for each batch. ROWS only: `columns` and
    `headers`, whose positions are in `arena`.
    """

    kind: Kind
    log_append_time: bool
    batches: memoryview
    facts: np.ndarray
    arena: np.ndarray
    columns: np.ndarray
    headers: np.ndarray

    @property
    def base_offset(self) -> int:
        return int(self.facts[B_BASE_OFFSET, 0])

    @property
    def end_offset(self) -> int:
        return int(self.facts[B_LAST_OFFSET, -1]) + 1

    def since(self, offset: int) -> "Piece":
        """The piece without the rows below an offset, which may lie in its first batch.

        At least one row stays. Only ROWS can be cut.
        """
        if self.kind is not Kind.ROWS or self.base_offset >= offset:
            return self
        rows = self.columns.shape[1]
        first = min(int(np.searchsorted(self.columns[C_OFFSET], offset)), rows - 1)
        columns = self.columns[:, first:].copy()
        header = int(columns[C_HEADERS_FIRST, 0])
        columns[C_HEADERS_FIRST] -= header
        return self._replace(columns=columns, headers=self.headers[:, header:].copy())

    @property
    def inflated_bytes(self) -> int:
        """Of its records."""
        return int((self.facts[B_RECORDS_END] - self.facts[B_RECORDS_AT]).sum())

    @property
    def record_count(self) -> int:
        return self.columns.shape[1] if self.kind is Kind.ROWS else int(self.facts[B_COUNT].sum())


def cut(
    data: bytes | memoryview, *, lossy: bool = False, bounds: InflationBounds = SEALER
) -> Iterator[Piece]:
    """Cut the batches in `data`, all whole, into pieces.

    `lossy`: batches with header keys that are not UTF-8 become ROWS too, for readers that prefer
    escaped keys to none. Raises PeerError if these are no batches.
    """
    array = read_only(data)
    facts = new_facts(len(array))
    count = scan_batches(array, 0, len(array), facts)
    if count < 0:
        raise PeerError(f"not a record batch at byte {~count}")
    first = 0
    while first < count:
        arena, inflated, _ = inflate(
            array, facts[:, first:count], bounds.batch_bytes, bounds.arena_bytes
        )
        yield from _Cutter(array, arena, inflated, lossy=lossy, bounds=bounds).pieces()
        first += inflated.shape[1]


class _Cutter:
    """Cuts batches whose records are inflated.

    The header gives a first kind; batches whose records turn out malformed become RAW, and the
    batches before them are walked again.
    """

    def __init__(
        self,
        array: np.ndarray,
        arena: np.ndarray,
        facts: np.ndarray,
        *,
        lossy: bool,
        bounds: InflationBounds,
    ) -> None:
        self._array, self._arena, self._facts, self._lossy = array, arena, facts, lossy
        self._bounds = bounds
        attributes = facts[B_ATTRIBUTES]
        room = (facts[B_RECORDS_END] - facts[B_RECORDS_AT]) // RECORD_BYTES_MIN
        room = np.minimum(room, bounds.batch_records)
        raw = (facts[B_COUNT] <= 0) | (facts[B_COUNT] > room)
        raw |= (facts[B_INTACT] == 0) | (attributes & UNKNOWN_ATTRIBUTES != 0)
        control = attributes & ATTRIBUTE_CONTROL != 0
        # Damaged markers count too: clients cannot send batches that look like one.
        self._kinds = np.where(control, Kind.CONTROL.value, np.where(raw, Kind.RAW.value, 0))
        self._times = attributes & ATTRIBUTE_LOG_APPEND_TIME

    def pieces(self) -> Iterator[Piece]:
        """All of them, in order."""
        first, count = 0, self._facts.shape[1]
        while first < count:
            end = self._run_end(first)
            if self._kinds[first] != Kind.ROWS.value:
                yield self._piece(first, end, new_columns(0), new_headers(0))
            else:
                end, columns, headers, bad = self._walk(first, end)
                if bad >= 0:
                    self._kinds[bad] = Kind.RAW.value
                    continue
                yield self._piece(first, end, columns, headers)
            first = end

    def _run_end(self, first: int) -> int:
        differs = (self._kinds[first:] != self._kinds[first]) | (
            self._times[first:] != self._times[first]
        )
        end = first + int(differs.argmax()) if differs.any() else len(self._kinds)
        if self._kinds[first] != Kind.ROWS.value:
            return end
        records = self._facts[B_COUNT, first:end].cumsum()
        return first + max(1, int(np.searchsorted(records, self._bounds.records, "right")))

    def _piece(self, first: int, end: int, columns: np.ndarray, headers: np.ndarray) -> Piece:
        facts = self._facts[:, first:end]
        return Piece(
            Kind(int(self._kinds[first])),
            bool(self._times[first]),
            self._array.data[facts[B_AT, 0] : facts[B_END, -1]],
            facts,
            self._arena,
            columns,
            headers,
        )

    def _walk(self, first: int, end: int) -> tuple[int, np.ndarray, np.ndarray, int]:
        """Columns and headers of some batches, and where they end: at `end` or, for their headers'
        sake, before; the last is the number of one that must go raw, else -1."""
        facts, counts = self._facts, self._facts[B_COUNT, first:end]
        columns, none = new_columns(int(counts.sum())), new_headers(0)
        rows = walk_batches(self._arena, facts, first, end, columns)
        if rows < 0:
            return end, columns, none, ~rows
        # Columns and headers begin as other memory, and the log frees what is sealed of it.
        assert rows == columns.shape[1]
        headers = none
        if not columns[C_HEADER_COUNT].any():
            columns[C_HEADERS_FIRST] = 0
        else:
            fitting = _fitting(columns[C_HEADER_COUNT], counts, self._bounds.headers)
            if fitting < len(counts):
                end, counts = first + fitting, counts[:fitting]
                columns = columns[:, : int(counts.sum())]
            if not fitting:
                return end, columns, none, first
            headers = new_headers(int(columns[C_HEADER_COUNT].sum()))
            filled = fill_headers(self._arena, columns, headers)
            assert filled == headers.shape[1]
        record = self._bad_record(columns, headers)
        if record >= 0:
            bad = first + int(np.searchsorted(counts.cumsum(), record, "right"))
            return end, columns, headers, bad
        if self._times[first]:
            columns[C_TIMESTAMP] = np.repeat(facts[B_MAX_TIMESTAMP, first:end], counts)
        return end, columns, headers, -1

    def _bad_record(self, columns: np.ndarray, headers: np.ndarray) -> int:
        """The first of these records that Parquet cannot hold, or not in this memory; -1: none."""
        good, bytes_max = headers.shape[1], self._bounds.field_bytes
        if not self._lossy:
            good = count_utf8(self._arena, headers[H_KEY_AT], headers[H_KEY_LENGTH])
        large = (headers[[H_KEY_LENGTH, H_VALUE_LENGTH]] > bytes_max).any(axis=0)
        if large.any():
            good = min(good, int(large.argmax()))
        record = columns.shape[1]
        if good < headers.shape[1]:
            record = int(np.searchsorted(columns[C_HEADERS_FIRST], good, side="right")) - 1
        longest = max(int(columns[each].max()) for each in (C_KEY_LENGTH, C_VALUE_LENGTH))
        if longest > bytes_max:
            large = (columns[[C_KEY_LENGTH, C_VALUE_LENGTH]] > bytes_max).any(axis=0)
            record = min(record, int(large.argmax()))
        return record if record < columns.shape[1] else -1


def _fitting(header_counts: np.ndarray, counts: np.ndarray, headers_max: int) -> int:
    """How many of the first batches have at most `headers_max` headers together; `counts` are the
    batches' record counts."""
    headers = np.concatenate([[0], header_counts.cumsum()])[counts.cumsum()]
    return int(np.searchsorted(headers, headers_max, "right"))
