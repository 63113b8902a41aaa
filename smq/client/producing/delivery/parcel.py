"""A parcel: rows of one topic that are sent together, and the state of each.

    open      rows are added one at a time, by `send`
    closed    columns, sorted by partition; the accumulator cuts batches from them
    resolved  every row has an offset or an error; the columns are dropped

A row keeps the number under which it was added, whatever its partition: `_order` names the row that
stands in each place of the sorted columns.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from shm.kernels.record.partition import assign_partitions
from shm.kernels.record.records import C_OFFSET, C_TIMESTAMP
from shm.kernels.record.records_encode import RecordRows, ValueRows
from smq.client.producing.delivery.delivery_state import (
    FAILED,
    PENDING,
    UNKNOWN_OFFSET,
    Delivery,
    DeliveryState,
    Failure,
    Resolver,
)
from smq.client.producing.encode.columns import (
    bounds_of,
    field_of,
    headers_of,
    rows_of,
    values_bound,
    values_of,
)
from smq.wire.records import Headers


class Extras(NamedTuple):
    """Fields that few records have."""

    headers: Headers
    timestamp_ms: int | None
    partition: int | None


NO_EXTRAS = Extras((), None, None)


class Parcel(DeliveryState):
    """Rows and their state; `unresolved` is -1 while the parcel is open.

    `partitions` and timestamps are one number if all rows share it. `offsets` are created when the
    first is known. While the parcel is open, `send` counts `room` down: the bytes left of those it
    was `granted`. A row exists once its value does. All rows, some or none have `keys`; few have
    `extras`.
    """

    __slots__ = (
        "_bounds",
        "_order",
        "_timestamps",
        "extras",
        "granted",
        "keys",
        "offsets",
        "opened_ms",
        "partitions",
        "room",
        "rows",
        "values",
    )

    def __init__(
        self, topic: str, resolver: Resolver, now_ms: int, deadline_ms: int, room: int
    ) -> None:
        super().__init__(topic, resolver, deadline_ms)
        self.opened_ms = now_ms  # Wall time: the timestamp of rows without one of their own.
        self.room = room
        self.granted = max(room, 0)
        self.bytes = 0
        self.values: list[bytes | None] = []
        self.keys: dict[int, bytes] = {}
        self.extras: dict[int, Extras] = {}
        self.row_count = 0
        self.unresolved = -1
        self.rows: RecordRows | ValueRows | None = None
        self.offsets: np.ndarray | None = None
        self.partitions: np.ndarray | int = 0
        self._timestamps: np.ndarray | int = now_ms
        self._order: np.ndarray | None = None
        self._bounds = _NONE

    def close(self, partition_count: int, keyless: int) -> None:
        """Turn the rows that were added into columns. A second call does nothing."""
        if self.is_closed:
            return
        values, keys, extras = self.values, self.keys, self.extras
        row_count = len(values)
        field = field_of(values)
        if not keys and not extras and (plain := values_of(field, self.opened_ms)):
            self.fill_one(plain, keyless)
            return
        keyed = field_of(_keys_of(keys, row_count)) if keys else None
        headers = headers_of({row: each.headers for row, each in extras.items()}, row_count)
        timestamps = np.full(row_count, self.opened_ms, np.int64)
        wanted = np.full(row_count, -1, np.int64)
        for row, each in extras.items():
            if each.timestamp_ms is not None:
                timestamps[row] = each.timestamp_ms
            if each.partition is not None:
                wanted[row] = each.partition
        self.fill(rows_of(field, keyed, headers, timestamps), wanted, partition_count, keyless)

    @property
    def is_closed(self) -> bool:
        """Whether it is closed: it takes no more rows."""
        return self.unresolved >= 0

    def fill(
        self, rows: RecordRows, partitions: np.ndarray, partition_count: int, keyless: int
    ) -> None:
        """Take columns. A row goes to the partition it names; if that is negative, by its key."""
        assign_partitions(rows.columns, rows.keys, partition_count, keyless, partitions)
        self.partitions, self._timestamps = partitions, rows.columns[C_TIMESTAMP]
        if not (partitions == partitions[:1]).all():
            self._order = np.argsort(partitions.astype(np.int32), kind="stable")
            columns = rows.columns.take(self._order, axis=1)  # In C order, as kernels want it.
            columns[C_OFFSET] = np.arange(len(self._order))
            rows = rows._replace(columns=columns)
        self._bounds = bounds_of(rows)
        self._start(rows, len(partitions), int(self._bounds[-1]) if len(partitions) else 0)

    def fill_one(self, values: ValueRows, partition: int) -> None:
        """Take values for one partition. Common attributes are stored once."""
        row_count = len(values.offsets) - 1
        self.partitions, self._timestamps = partition, values.timestamp
        self._start(values, row_count, values_bound(values, 0, row_count))

    def _start(self, rows: RecordRows | ValueRows, row_count: int, size_bytes: int) -> None:
        self.rows, self.bytes = rows, size_bytes
        self.row_count = self.unresolved = row_count  # From here on it is closed.
        self.values, self.keys, self.extras = [], {}, {}

    def by_partition(self) -> Iterator[tuple[int, int, int]]:
        """The columns' rows by partition: (partition, first, end)."""
        if self._order is None:
            if self.row_count:
                yield _of(self.partitions, 0), 0, self.row_count
            return
        assert isinstance(self.partitions, np.ndarray)
        ordered = self.partitions[self._order]
        edges = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist(), len(ordered)]
        for first, end in pairwise(edges):
            yield int(ordered[first]), first, end

    def bound(self, first: int, end: int) -> int:
        """Bytes that suffice for the records [first, end) of the columns."""
        if end - first == self.row_count:
            return self.bytes
        if isinstance(self.rows, ValueRows):
            return values_bound(self.rows, first, end)
        before = self._bounds[first - 1] if first else 0
        return int(self._bounds[end - 1] - before)

    def resolve(self, first: int, end: int, base_offset: int, append_time_ms: int) -> None:
        """The records [first, end) of the columns are in the topic."""
        if append_time_ms >= 0:
            self._timestamps = _each(self._timestamps, self.row_count)
            self._timestamps[self._rows(first, end)] = append_time_ms
        is_known = base_offset >= 0
        found = np.arange(base_offset, base_offset + end - first) if is_known else UNKNOWN_OFFSET
        self._settle(first, end, found)

    def fail(self, first: int, end: int, error: Exception) -> None:
        """The records [first, end) of the columns are not in the topic, or their fate is
        unknown."""
        order = self._order  # Keep these rows only, not a view on all of them.
        rows = np.arange(first, end) if order is None else order[first:end].copy()
        self._settle(first, end, FAILED, Failure(rows, error))

    def give_up(self, error: Exception) -> None:
        """Fail all rows that are not resolved. An open parcel must not be closed afterwards."""
        if not self.is_closed:
            self.row_count = self.unresolved = len(self.values)
        known = self.offsets if self.offsets is not None else np.full(self.row_count, PENDING)
        rows = np.flatnonzero(known == PENDING)
        if len(rows):
            self.failures.append(Failure(rows, error))
            self.offsets, self.unresolved = np.where(known == PENDING, FAILED, known), 0
            self.rows, self._order = None, None

    def _rows(self, first: int, end: int) -> np.ndarray | slice:
        return slice(first, end) if self._order is None else self._order[first:end]

    def _settle(self, first: int, end: int, offsets: np.ndarray | int, *failures: Failure) -> None:
        rows, known = self._rows(first, end), self.offsets
        if known is None:
            known = np.full(self.row_count, PENDING, np.int64)
        # Uninterruptible from here on; see shm.interrupts. Other threads look without the lock.
        self.failures = [*self.failures, *failures]
        known[rows] = offsets
        self.offsets = known
        self.unresolved -= end - first
        assert self.unresolved >= 0
        if self.unresolved == 0:
            self.rows, self._order, self._bounds = None, None, _NONE

    def is_done(self, row: int) -> bool:
        """Whether a row is resolved."""
        return self.offsets is not None and bool(self.offsets[row] != PENDING)

    def is_settled(self, place: int) -> bool:
        """Whether a record is resolved, by its place in the columns."""
        if self.offsets is None or self.unresolved == 0:
            return self.unresolved == 0
        return bool(self.offsets[place if self._order is None else self._order[place]] != PENDING)

    def delivery(self, row: int) -> Delivery:
        """The place of a row that is done without an error."""
        assert self.offsets is not None
        partition, timestamp = _of(self.partitions, row), _of(self._timestamps, row)
        return Delivery(self.topic, partition, int(self.offsets[row]), timestamp)

    def deliveries(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Partitions, offsets and timestamps of all rows."""
        count, offsets = self.row_count, _NONE if self.offsets is None else self.offsets
        return _each(self.partitions, count), offsets, _each(self._timestamps, count)

    def first_error(self) -> Exception | None:
        """Why some row is not in the topic."""
        for failure in self.failures:
            failure.is_reported = True
        return self.failures[0].error if self.failures else None


def _keys_of(keys: dict[int, bytes], row_count: int) -> Sequence[bytes | None]:
    """Every row's key."""
    if len(keys) == row_count:
        return list(keys.values())
    return [keys.get(row) for row in range(row_count)]


def _of(numbers: np.ndarray | int, row: int) -> int:
    """A row's number."""
    return numbers if isinstance(numbers, int) else int(numbers[row])


def _each(numbers: np.ndarray | int, row_count: int) -> np.ndarray:
    """Every row's number."""
    return np.full(row_count, numbers, np.int64) if isinstance(numbers, int) else numbers


_NONE = np.zeros(0, np.int64)
