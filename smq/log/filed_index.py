"""The look-up table filed beside a full WAL segment: its entries by partition, then by offset.

    0       8        16       24       32                 64
    +-------+--------+--------+--------+------------------+-----------------------------+
    |magic  |start   |entries |check   | boot id, disk    | entries, sorted             |
    +-------+--------+--------+--------+------------------+-----------------------------+

A start maps these instead of scanning the segments. The table says that the segment's frames are
whole; that is believed when the machine has not been booted since (the page cache survived) or the
segment lies below the position known to be synced, and otherwise the segment is scanned again.
"""

import struct
from pathlib import Path

import numpy as np

from shm.kernels.crc32c import crc32c
from shm.kernels.words import FRAME_HEADER_BYTES
from shm.segment import LogMemory
from smq.log.disk import Disk

MAGIC = b"SMQIDX\0\1"
_HEAD = struct.Struct("<8sqqI16sB")
HEAD_BYTES = 64
ENTRY = np.dtype(
    [
        ("partition", "<u4"),
        ("bytes", "<i4"),
        ("base_offset", "<i8"),
        ("position", "<i8"),
        ("max_timestamp", "<i8"),
        ("record_count", "<i4"),
        ("attributes", "<i2"),
        ("unused", "<i2"),
    ]
)


class FiledIndex:
    """The entries of one full segment.

    `first_offsets` and `ends` give, for each partition number in it, the base offset of its first
    batch and the offset after its last.
    """

    def __init__(self, entries: np.ndarray, *, has_disk_frames: bool) -> None:
        self.entries = entries
        self.has_disk_frames = has_disk_frames
        numbers, starts = np.unique(entries["partition"], return_index=True)
        stops = [*starts[1:], len(entries)]
        self._ranges = {
            int(number): (int(start), int(stop))
            for number, start, stop in zip(numbers, starts, stops, strict=True)
        }
        self.first_offsets = {
            number: int(entries["base_offset"][start])
            for number, (start, _) in self._ranges.items()
        }
        self.ends = {
            number: int(entries["base_offset"][stop - 1] + entries["record_count"][stop - 1])
            for number, (_, stop) in self._ranges.items()
        }

    @classmethod
    def from_memory(
        cls, memory: LogMemory, first_entry: int, end_entry: int, *, has_disk_frames: bool
    ) -> "FiledIndex":
        """Sort the entries [first_entry, end_entry) of a log's index; all must be in its window."""
        slots = np.arange(first_entry, end_entry) % memory.layout.index_capacity
        order = slots[np.argsort(memory.column("partition")[slots], kind="stable")]
        entries = np.zeros(len(slots), ENTRY)
        for name in memory.layout.index_columns():
            entries[name] = memory.column(name)[order]
        return cls(entries, has_disk_frames=has_disk_frames)

    def choose(
        self, number: int, offset: int, limit: int, bytes_max: int, spans: np.ndarray
    ) -> tuple[int, int]:
        """As shm.kernels.fetch.choose_batches, for the batches in this segment."""
        start, stop = self._ranges[number]
        mine = self.entries[start:stop]
        first = max(0, int(np.searchsorted(mine["base_offset"], offset, "right")) - 1)
        if int(mine["base_offset"][first] + mine["record_count"][first]) <= offset:
            first += 1
        last = min(int(np.searchsorted(mine["base_offset"], limit, "left")), first + len(spans))
        if first >= last:
            return 0, 0
        sizes = np.cumsum(mine["bytes"][first:last], dtype=np.int64)
        count = max(1, int(np.searchsorted(sizes, bytes_max, "right")))
        spans[:count, 0] = mine["position"][first : first + count] + FRAME_HEADER_BYTES
        spans[:count, 1] = mine["bytes"][first : first + count]
        return count, int(sizes[count - 1])

    def of_partition(self, number: int) -> np.ndarray:
        """The entries of one partition, by offset."""
        start, stop = self._ranges.get(number, (0, 0))
        return self.entries[start:stop]

    def save(self, disk: Disk, path: Path, segment_start: int, boot_id: bytes) -> None:
        """Write the table beside its segment."""
        body = self.entries.tobytes()
        check = int(crc32c(np.frombuffer(body, np.uint8), 0, len(body)))
        head = _HEAD.pack(
            MAGIC, segment_start, len(self.entries), check, boot_id, self.has_disk_frames
        )
        disk.replace(path, head.ljust(HEAD_BYTES, b"\0") + body)

    @classmethod
    def load(cls, path: Path, segment_start: int) -> tuple["FiledIndex", bytes] | None:
        """The table at `path` and the boot id it was written under; None: absent or damaged."""
        try:
            data = np.fromfile(path, np.uint8)
        except OSError:
            return None
        if len(data) < HEAD_BYTES:
            return None
        magic, start, count, check, boot_id, has_disk = _HEAD.unpack_from(data)
        body = data[HEAD_BYTES:]
        if magic != MAGIC or start != segment_start or len(body) != count * ENTRY.itemsize:
            return None
        if int(crc32c(body, 0, len(body))) != check:
            return None
        return cls(body.view(ENTRY), has_disk_frames=bool(has_disk)), boot_id
