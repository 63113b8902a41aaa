"""The look-up table filed beside a full WAL segment: its entries by partition, then by offset.

    0       8        16       24       32                 64
    +-------+--------+--------+--------+------------------+-----------------------------+
    |magic  |check   |start   |entries | boot id, disk    | entries, sorted             |
    +-------+--------+--------+--------+------------------+-----------------------------+

The last byte of the magic is the version of the format. A release that writes frames of a kind that
readers must know (shm.layout) raises it: an older SMQ then scans the segment as if there were no
table, and so meets these frames.

A start maps these instead of scanning the segments. The table claims that the segment's frames are
whole. A start believes this if the machine has not been booted since (the page cache survived) or
the segment lies below the position known to be synced; otherwise it scans the segment again.
"""

import os
import struct
from pathlib import Path

import numpy as np

from shm.kernels.base.crc32c import crc32c
from shm.kernels.base.entries import INDEX_DTYPES
from shm.kernels.base.words import FRAME_ALIGNMENT_BYTES, FRAME_HEADER_BYTES
from smq.log.files.disk import Disk, read_through
from smq.log.files.pieces import by_pieces

VERSION = 2  # Since frames of adoptions.
MAGIC = b"SMQIDX\0" + bytes([VERSION])
_MAGIC_BEFORE = MAGIC[:-1] + b"\1"  # Their segments have none of these frames.
_HEAD = struct.Struct("<8sI4x")
_FACTS = struct.Struct("<qq16sB15x")
HEAD_BYTES = 64
assert _HEAD.size + _FACTS.size == HEAD_BYTES
# Ordered to pack into whole words.
_ENTRY_COLUMNS = (
    "partition",
    "bytes",
    "base_offset",
    "position",
    "max_timestamp",
    "record_count",
    "attributes",
)
assert set(_ENTRY_COLUMNS) == set(INDEX_DTYPES)
ENTRY = np.dtype([(name, INDEX_DTYPES[name]) for name in _ENTRY_COLUMNS] + [("unused", "<i2")])
assert ENTRY.itemsize % 8 == 0
ENTRY_WORDS = ENTRY.itemsize // 8
PIECE_ENTRIES = 1024  # Copied per step: a tenth of a millisecond.
BLOCK_ENTRIES = 1024  # Share one largest timestamp: a full segment has some hundred blocks.


class FiledIndex:
    """The entries of one full segment, in the file's bytes; a file's head is filled by save().

    `first_offsets` and `ends` give, for each partition number in it, the base offset of its first
    batch and the offset after its last, `newest` its largest timestamp.

    Invariants: a partition's entries lie together, in the order of offsets and of positions; no
    offset is in two of them; positions are those of frames.
    """

    def __init__(self, data: np.ndarray, *, has_disk_frames: bool) -> None:
        self._data = data
        self.entries = entries = data[HEAD_BYTES:].view(ENTRY)
        self.has_disk_frames = has_disk_frames
        numbers = entries["partition"]
        edges = np.flatnonzero(numbers[1:] != numbers[:-1]) + 1
        starts = np.concatenate([[0], edges])[: len(entries)]
        stops = np.append(starts[1:], len(entries))[: len(starts)]
        lasts = entries[stops - 1]
        keys = numbers[starts].tolist()
        self._ranges = dict(
            zip(keys, zip(starts.tolist(), stops.tolist(), strict=True), strict=True)
        )
        self.first_offsets = dict(zip(keys, entries["base_offset"][starts].tolist(), strict=True))
        ends = lasts["base_offset"] + lasts["record_count"]
        self.ends = dict(zip(keys, ends.tolist(), strict=True))
        times = entries["max_timestamp"]
        newest = np.maximum.reduceat(times, starts) if len(times) else times
        self.newest = dict(zip(keys, newest.tolist(), strict=True))
        blocks = np.arange(0, len(times), BLOCK_ENTRIES)
        self._blocks_newest = np.maximum.reduceat(times, blocks) if len(times) else times.copy()
        self._sums: np.ndarray | None = None

    def invariants(self) -> None:
        """Raise AssertionError when the entries are not as the class says."""
        entries, numbers = self.entries, self.entries["partition"].astype(np.int64)
        assert (np.diff(numbers) >= 0).all()
        assert (entries["record_count"] > 0).all()
        assert (entries["position"] % FRAME_ALIGNMENT_BYTES == 0).all()
        follows = numbers[1:] == numbers[:-1]
        ends = entries["base_offset"] + entries["record_count"]
        assert (ends[:-1] <= entries["base_offset"][1:])[follows].all()
        assert (np.diff(entries["position"]) > 0)[follows].all()

    @classmethod
    def sorted(cls, entries: np.ndarray, *, has_disk_frames: bool) -> "FiledIndex":
        """A table of entries in log order, which is offset order within each partition."""
        order = np.argsort(entries["partition"], kind="stable")
        data = np.zeros(HEAD_BYTES + entries.nbytes, np.uint8)
        # Copy rows of words: copying field by field takes far longer.
        rows, ordered = (
            each.view(np.int64).reshape(-1, ENTRY_WORDS) for each in (entries, data[HEAD_BYTES:])
        )
        for piece in by_pieces(len(entries), PIECE_ENTRIES):
            rows.take(order[piece], axis=0, out=ordered[piece], mode="clip")
        return cls(data, has_disk_frames=has_disk_frames)

    def choose(
        self, number: int, offset: int, limit: int, bytes_max: int, spans: np.ndarray
    ) -> tuple[int, int]:
        """As shm.kernels.log.spans.choose_batches, for this segment's batches."""
        mine = self.of_partition(number)
        first = self._first_from(mine, offset)
        last = min(int(np.searchsorted(mine["base_offset"], limit, "left")), first + len(spans))
        if first >= last:
            return 0, 0
        sizes = np.cumsum(mine["bytes"][first:last], dtype=np.int64)
        count = max(1, int(np.searchsorted(sizes, bytes_max, "right")))
        spans[:count, 0] = mine["position"][first : first + count] + FRAME_HEADER_BYTES
        spans[:count, 1] = mine["bytes"][first : first + count]
        return count, int(sizes[count - 1])

    def bytes_from(self, number: int, offset: int) -> int:
        """The bytes of the partition's batches from the one that holds `offset`."""
        start, stop = self._ranges.get(number, (0, 0))
        if self._sums is None:
            self._sums = np.concatenate([[0], np.cumsum(self.entries["bytes"], dtype=np.int64)])
        if start < stop and offset > self.first_offsets[number]:
            start += self._first_from(self.entries[start:stop], offset)
        return int(self._sums[stop] - self._sums[start])

    def at_position(self, number: int, position: int) -> int:
        """Which of the partition's entries is the frame at a position; -1: none."""
        positions = self.of_partition(number)["position"]
        i = int(np.searchsorted(positions, position))
        return i if i < len(positions) and int(positions[i]) == position else -1

    def of_partition(self, number: int) -> np.ndarray:
        """The entries of one partition, by offset."""
        start, stop = self._ranges.get(number, (0, 0))
        return self.entries[start:stop]

    def first_reaching(
        self, number: int, offset: int, limit: int, timestamp: int
    ) -> np.void | None:
        """The first entry of a partition with offsets in [offset, limit) and a largest timestamp
        of at least `timestamp`. Looks at two blocks of entries and at the maxima between them."""
        if self.newest.get(number, timestamp - 1) < timestamp:
            return None
        start, stop = self._ranges[number]
        mine = self.entries[start:stop]
        stop = start + int(np.searchsorted(mine["base_offset"], limit, "left"))
        start += self._first_from(mine, offset)
        while start < stop:
            block = start // BLOCK_ENTRIES
            end = min(stop, (block + 1) * BLOCK_ENTRIES)
            reaching = self.entries["max_timestamp"][start:end] >= timestamp
            if reaching.any():
                entry: np.void = self.entries[start + int(reaching.argmax())]
                return entry
            later = self._blocks_newest[block + 1 : -(-stop // BLOCK_ENTRIES)] >= timestamp
            if not later.any():
                return None
            start = (block + 1 + int(later.argmax())) * BLOCK_ENTRIES
        return None

    @staticmethod
    def _first_from(mine: np.ndarray, offset: int) -> int:
        """The first of a partition's entries that reaches beyond `offset`."""
        first = max(0, int(np.searchsorted(mine["base_offset"], offset, "right")) - 1)
        if len(mine) and int(mine["base_offset"][first] + mine["record_count"][first]) <= offset:
            first += 1
        return first

    def save(self, disk: Disk, path: Path, segment_start: int, boot_id: bytes) -> None:
        """Write the table beside its segment."""
        positions = self.entries["position"]
        assert not len(positions) or segment_start <= int(positions.min())
        facts = (segment_start, len(self.entries), boot_id, self.has_disk_frames)
        _FACTS.pack_into(self._data.data, _HEAD.size, *facts)
        _HEAD.pack_into(self._data.data, 0, MAGIC, _check(self._data[_HEAD.size :]))
        disk.replace(path, self._data.data)

    @classmethod
    def load(cls, path: Path, segment_start: int) -> tuple["FiledIndex", bytes] | None:
        """The table at `path`, and the boot id under which it was written.

        None: it is absent, damaged or of another version; then scan the segment.
        """
        try:
            # Mapped privately: many small batches make long tables, and the page cache has them.
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size < HEAD_BYTES:
                    return None
                read_through(file.fileno(), size)
                data = np.asarray(np.memmap(file, np.uint8, "c"))
        except OSError:
            return None
        magic, check = _HEAD.unpack_from(data.data)
        if magic not in {MAGIC, _MAGIC_BEFORE} or _check(data[_HEAD.size :]) != check:
            return None
        start, count, boot_id, has_disk = _FACTS.unpack_from(data.data, _HEAD.size)
        if start != segment_start or len(data) != HEAD_BYTES + count * ENTRY.itemsize:
            return None
        return cls(data, has_disk_frames=bool(has_disk)), boot_id


def is_of_our_version(path: Path) -> bool:
    """Whether there is a table at `path` of a version that we know; it may be damaged."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) in {MAGIC, _MAGIC_BEFORE}
    except OSError:
        return False


def _check(data: np.ndarray) -> int:
    return int(crc32c(data, 0, len(data)))
