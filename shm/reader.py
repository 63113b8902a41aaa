"""A log read by another process: index and frames as Arrow, at the addresses of the mapping.

Nothing is copied or locked, so bytes may be overwritten while they are read. A reader takes a
snapshot, reads, then checks that it still holds (`is_intact`). A race, step by step:

    reader takes entries [a, b) → reads frame a → shard announces a claim that covers a's place →
    shard overwrites it → reader asks: the claim is more than a ring above a: not intact

Records below the partition's high watermark are visible; the index also has those only appended.
A reader that may not see every topic of a log must not be handed the log's memory.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from shm.kernels.base.entries import INDEX_DTYPES
from shm.kernels.base.words import (
    FRAME_HEADER_BYTES,
    P_HIGH_WATERMARK,
    P_NUMBER,
    WORD_INDEX_TAIL,
    WORD_PARTITION_COUNT,
)
from shm.kernels.reader.glance import acquire_word
from shm.kernels.reader.lend import first_whole_entry, oldest_entry, oldest_position
from shm.segment import LogMemory

VIEW_DTYPE = np.dtype([("length", "<i4"), ("prefix", "V4"), ("buffer", "<i4"), ("offset", "<i4")])
"""An element of Arrow's binary_view layout that points into a buffer: longer than 12 bytes."""


class RingBatch(NamedTuple):
    """A batch in the ring."""

    position: int
    base_offset: int
    data: np.ndarray


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The index entries [first, end) of a log as they were when it was taken."""

    reader: "LogReader"
    first: int
    end: int

    def slots(self) -> np.ndarray:
        """The entries' slots in the columns, in order."""
        return np.arange(self.first, self.end) % self.reader.memory.layout.index_capacity

    def record_batches(self) -> list[Any]:
        """The entries as pyarrow record batches: at most two, before and after the wrap.

        Columns are those of shm.layout, their buffers the mapping itself, and `frame`, a
        binary_view whose data buffer is the ring: each value is a record batch as it was sent.
        """
        capacity = self.reader.memory.layout.index_capacity
        start, stop = self.first % capacity, self.first % capacity + self.end - self.first
        pieces = [(start, min(stop, capacity)), (0, stop - capacity)]
        return [self._piece(a, b) for a, b in pieces if b > a]

    def _piece(self, start: int, stop: int) -> Any:  # noqa: ANN401  (pyarrow has no types)
        import pyarrow as pa  # noqa: PLC0415  (only for callers that want Arrow)

        columns = {}
        for name, dtype in INDEX_DTYPES.items():
            values = self.reader.memory.column(name)[start:stop]
            kind = pa.from_numpy_dtype(dtype)
            columns[name] = pa.Array.from_buffers(kind, stop - start, [None, pa.py_buffer(values)])
        columns["frame"] = self._frames(pa, start, stop)
        return pa.RecordBatch.from_pydict(columns)

    def _frames(self, pa: Any, start: int, stop: int) -> Any:  # noqa: ANN401
        memory = self.reader.memory
        views = np.zeros(stop - start, VIEW_DTYPE)
        places = memory.column("position")[start:stop] % memory.layout.ring_bytes
        views["length"] = memory.column("bytes")[start:stop]
        views["offset"] = places + FRAME_HEADER_BYTES
        prefix_at = views["offset"][:, None] + np.arange(4)
        views["prefix"] = memory.ring[prefix_at].view("V4").ravel()
        buffers = [None, pa.py_buffer(views.view(np.uint8)), pa.py_buffer(memory.ring)]
        return pa.Array.from_buffers(pa.binary_view(), stop - start, buffers)

    def is_intact(self) -> bool:
        """Whether nothing of the snapshot has been overwritten so far."""
        reader = self.reader
        if self.first == self.end:
            return True
        i = self.first % reader.memory.layout.index_capacity
        position = int(reader.memory.column("position")[i])
        return self.first >= reader.oldest_entry() and position >= reader.oldest_position()


class LogReader:
    """Reads a log's memory that was attached read-only (LogMemory.attach)."""

    def __init__(self, memory: LogMemory) -> None:
        self.memory = memory

    def oldest_position(self) -> int:
        """The position from which the ring still has every frame, even while one is being
        written."""
        return int(oldest_position(self.memory.memory))

    def oldest_entry(self) -> int:
        """The entry from which the index still has every entry, even while one is being written."""
        return int(oldest_entry(self.memory.memory))

    def snapshot(self, first: int = 0) -> Snapshot:
        """The entries from `first` on whose frames are in the ring now."""
        end = int(acquire_word(self.memory.memory, WORD_INDEX_TAIL))
        return Snapshot(self, int(first_whole_entry(self.memory.memory, first, end)), end)

    def high_watermarks(self) -> dict[int, int]:
        """The HWM of each partition, by its number."""
        count = int(acquire_word(self.memory.memory, WORD_PARTITION_COUNT))
        rows = self.memory.partitions[:count]
        return {int(row[P_NUMBER]): int(row[P_HIGH_WATERMARK]) for row in rows}

    def visible(self, snapshot: Snapshot, number: int) -> Iterator[RingBatch]:
        """The visible batches of a partition in a snapshot, in place, oldest first.

        Ask `snapshot.is_intact()` after having read them.
        """
        limit = self.high_watermarks().get(number, 0)
        for place in self.places(snapshot, number):
            if place.base_offset >= limit:
                return
            yield place

    def places(self, snapshot: Snapshot, number: int) -> Iterator[RingBatch]:
        """All batches of a partition in a snapshot, oldest first, visible or not."""
        memory, slots = self.memory, snapshot.slots()
        for slot in slots[memory.column("partition")[slots] == number]:
            position = int(memory.column("position")[slot])
            at = position % memory.layout.ring_bytes + FRAME_HEADER_BYTES
            data = memory.ring[at : at + memory.column("bytes")[slot]]
            yield RingBatch(position, int(memory.column("base_offset")[slot]), data)
