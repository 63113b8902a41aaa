"""The transactions of a log's partitions: which are open, and which were aborted (KIP-98).

    batch      ─▶ open: (partition, producer) → first offset, epoch        bounds what is stable
    marker     ─▶ ended; if aborted: (producer, first offset, marker)      told to read_committed

The partition's row holds what kernels must know, P_OPEN_FROM and P_ABORTED_END; the producer's row
holds R_OPEN. An aborted transaction is remembered as long as the log may serve its records: sealed
segments contain none of them. A first offset is that of a batch, whatever was deleted since:
clients compare it with batches. What is stable is bounded from the decided end on.
"""

from collections.abc import Iterator, Sequence
from operator import attrgetter

import numpy as np

from shm.kernels.base.words import (
    P_ABORTED_END,
    P_DECIDED_END,
    P_HIGH_WATERMARK,
    P_LAST_STABLE,
    P_OPEN_FROM,
)
from shm.kernels.log.producers import (
    R_COORDINATOR_EPOCH,
    R_EPOCH,
    R_OPEN,
    fence_producer,
    producer_row,
)
from smq.log.aborted import LAST, NONE, AbortedIn, AbortedRows
from smq.log.files.checkpoint import Aborted, Open, TransactionsCopy
from smq.log.partitions import Partitions
from smq.log.producers import Producers
from smq.wire.markers import Marker

_first_offset = attrgetter("first_offset")


class LogTransactions:
    """The transactions of one log.

    `open` ones are ordered by their first offsets, aborted ones by their markers. Invariant: each
    partition's row agrees with them.
    """

    def __init__(self, partitions: Partitions, producers: Producers) -> None:
        self._partitions, self._producers = partitions, producers
        self._open: dict[int, dict[int, Open]] = {}
        self._aborted: dict[int, AbortedRows] = {}

    def invariants(self) -> None:
        """Raise AssertionError if a partition's row disagrees."""
        for number, slot in self._partitions.slots.items():
            row = self._partitions.table[slot]
            opened = [each.first_offset for each in self._open.get(number, {}).values()]
            assert opened == sorted(opened), number
            open_from = max(opened[0], int(row[P_DECIDED_END])) if opened else -1
            assert row[P_OPEN_FROM] == open_from + 1, number
            assert not opened or row[P_LAST_STABLE] <= open_from, number
            aborted = self._aborted.get(number)
            assert row[P_ABORTED_END] == (aborted.end if aborted else 0), number
            if aborted:
                aborted.invariants()

    # --- questions -------------------------------------------------------------------------------

    def open_of(self, number: int, producer_id: int) -> Open | None:
        """A producer's open transaction in a partition, if there is one."""
        return self._open.get(number, {}).get(producer_id)

    def opened(self) -> Iterator[Open]:
        """All open transactions."""
        for by_producer in self._open.values():
            yield from by_producer.values()

    def numbers_with_open(self) -> list[int]:
        """The partitions with open transactions."""
        return list(self._open)

    def open_in(self, number: int) -> list[Open]:
        """The open transactions of a partition."""
        return list(self._open.get(number, {}).values())

    def aborted_rows(self, number: int) -> np.ndarray:
        """All aborted ones of a partition: int64 [n, 5], the fields of Aborted."""
        aborted = self._aborted.get(number)
        return NONE if aborted is None else np.concatenate(aborted.copies())

    def has_aborted(self, number: int, start: int) -> bool:
        """Whether a partition has aborted ones with records or markers from an offset on."""
        aborted = self._aborted.get(number)
        return aborted is not None and aborted.end > start

    def aborted_in(self, number: int, start: int, end: int, count_max: int) -> AbortedIn:
        """The aborted ones with records or markers in [start, end), in the order of their markers.

        If there are more than `count_max`, of a range that ends earlier.
        """
        aborted = self._aborted.get(number)
        if aborted is None or aborted.end <= start:
            return AbortedIn(NONE, end)
        return aborted.overlapping(start, end, count_max)

    def overlaps_aborted(self, number: int, start: int, end: int) -> bool:
        """Whether aborted ones have records or markers in [start, end)."""
        return self.has_aborted(number, start) and self._aborted[number].overlaps(start, end)

    def aborted_of(
        self, number: int, start: int, end: int, producers: Sequence[int]
    ) -> list[Aborted]:
        """Those of these producers that have records or markers in [start, end), in the order of
        their markers. They are at most some more than the producers' batches there."""
        aborted = self._aborted.get(number)
        found = NONE if aborted is None else aborted.of_producers(start, end, producers)
        return [Aborted._make(row) for row in found.tolist()]

    def coordinator_epoch(self, number: int, producer_id: int) -> int:
        """The epoch of the coordinator that wrote a producer's last marker; -1: unknown."""
        table = self._producers.table
        row = producer_row(table, number, producer_id)
        return int(table[row, R_COORDINATOR_EPOCH]) - 1 if row else -1

    # --- events ----------------------------------------------------------------------------------

    def wrote(self, opened: Open) -> None:
        """A producer has appended a transactional batch: its transaction is open."""
        by_producer = self._open.setdefault(opened.number, {})
        known = by_producer.get(opened.producer_id)
        if known is None or known.epoch != opened.epoch:
            first = opened if known is None else opened._replace(first_offset=known.first_offset)
            by_producer[opened.producer_id] = first
            self._show(opened.number)
        self._mark_producer(opened.number, opened.producer_id, is_open=True)

    def ended(self, number: int, marker: Marker, offset: int, now_ms: int) -> None:
        """A marker was appended at an offset."""
        by_producer = self._open.get(number, {})
        known = by_producer.pop(marker.producer_id, None)
        if not by_producer:
            self._open.pop(number, None)
        if known is not None and not marker.committed:
            aborted = Aborted(number, known.producer_id, known.epoch, known.first_offset, offset)
            self._add(aborted)
        self._show(number)
        self.fence(number, marker, now_ms)
        self._mark_producer(number, marker.producer_id, is_open=False)

    def fence(self, number: int, marker: Marker, now_ms: int) -> None:
        """A marker's epochs are the producer's from now on.

        A start enters all batches of a piece of the log before its markers: a late marker must not
        hide the producer's newer batches, or a retry of them would be appended again.
        """
        table = self._producers.table
        row = producer_row(table, number, marker.producer_id)
        if row and table[row, R_EPOCH] > marker.producer_epoch:
            return
        producer = marker.producer_id, marker.producer_epoch
        fence_producer(table, number, *producer, marker.coordinator_epoch, now_ms)

    def forget(self, number: int, offset: int) -> None:
        """Forget what lies below `offset`, from where on the log serves a partition."""
        aborted = self._aborted.get(number)
        if aborted is not None and aborted.first_marker < offset:
            if aborted.forget(offset) is None:
                del self._aborted[number]
            self._show(number)

    def drop(self, number: int) -> None:
        """A partition is gone."""
        self._open.pop(number, None)
        self._aborted.pop(number, None)

    # --- checkpoints -----------------------------------------------------------------------------

    def copy(self) -> TransactionsCopy:
        """The checkpoint's data, as of now."""
        aborted = [rows for each in self._aborted.values() for rows in each.copies()]
        return TransactionsCopy(list(self.opened()), aborted)

    def restore(self, kept: TransactionsCopy) -> None:
        """Restore the transactions from a checkpoint."""
        rows = np.concatenate([NONE, *kept.aborted])
        starts = np.flatnonzero(np.diff(rows[:, 0], prepend=-1))
        for of_partition in np.split(rows, starts[1:]) if len(rows) else ():
            self._aborted[int(of_partition[0, 0])] = AbortedRows.of(of_partition)
        for opened in kept.open:
            self._open.setdefault(opened.number, {})[opened.producer_id] = opened
            self._mark_producer(opened.number, opened.producer_id, is_open=True)
        for number in self._open.keys() | self._aborted.keys():
            self._show(number)

    def clip(self, numbers: np.ndarray, ends: np.ndarray) -> None:
        """Forget transactions that the log lost; one whose marker is lost is open again.

        `numbers` are those of all partitions, `ends` their log ends.
        """
        for number, end in zip(numbers.tolist(), ends.tolist(), strict=True):
            rows = self.aborted_rows(number)
            kept, lost = rows[rows[:, LAST] < end], rows[rows[:, LAST] >= end]
            again = [Open._make((*each[:4], 0)) for each in lost.tolist()]
            found = again + list(self._open.get(number, {}).values())
            if not found:
                continue
            self._aborted.pop(number, None)
            if len(kept):
                self._aborted[number] = AbortedRows.of(kept)
            found = sorted((each for each in found if each.first_offset < end), key=_first_offset)
            self._open[number] = {each.producer_id: each for each in found}
            self._show(number)

    def decided(self, number: int) -> None:
        """All below the decided end is sealed and decided, or deleted: move the last stable offset
        up to it, as Kafka does."""
        self._show(number)
        row = self._partitions.table[self._partitions.slots[number]]
        stable = min(int(row[P_HIGH_WATERMARK]), int(row[P_DECIDED_END]))
        row[P_LAST_STABLE] = max(int(row[P_LAST_STABLE]), stable)

    def _add(self, aborted: Aborted) -> None:
        self._aborted.setdefault(aborted.number, AbortedRows()).add(aborted)

    def _mark_producer(self, number: int, producer_id: int, *, is_open: bool) -> None:
        table = self._producers.table
        row = producer_row(table, number, producer_id)
        if row:
            table[row, R_OPEN] = is_open

    def _show(self, number: int) -> None:
        """Update the partition's row."""
        slot = self._partitions.slots.get(number)
        if slot is None:
            return
        row = self._partitions.table[slot]
        opened = next(iter(self._open.get(number, {}).values()), None)
        row[P_OPEN_FROM] = 0
        if opened is not None:
            open_from = max(opened.first_offset, int(row[P_DECIDED_END]))
            row[P_OPEN_FROM] = open_from + 1
            # For recovered rows: no kernel has bounded these.
            row[P_LAST_STABLE] = min(int(row[P_LAST_STABLE]), open_from)
        aborted = self._aborted.get(number)
        row[P_ABORTED_END] = aborted.end if aborted else 0
