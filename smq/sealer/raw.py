"""A raw segment: record batches as sent, followed by an index.

    0             body bytes             -48
    +-------------+----------------------+----------------------------------------------+
    | batches     | index, a row a batch | base offset, end offset, body bytes, rows,   |
    |             |                      | CRC-32C of the index and of these, magic     |
    +-------------+----------------------+----------------------------------------------+

Markers, and what is left of aborted batches, are not written: their offsets become a gap. Files of
earlier versions have some; they are not read.

Little endian. The index finds every batch even where one is unreadable. The manifest has the CRC of
the whole file; the one here allows reading a file without the manifest.
"""

import struct
from collections.abc import Iterator

import numpy as np

from shm.arrow import read_only
from shm.kernels.base.crc32c import crc32c
from shm.kernels.base.words import ATTRIBUTE_CONTROL, BATCH_ATTRIBUTES_AT
from shm.kernels.record.records import B_AT, B_BASE_OFFSET, B_END, B_LAST_OFFSET, B_MAX_TIMESTAMP
from smq.model.segments import NO_LIMIT
from smq.sealer.decode import Kind, Piece
from smq.sealer.read_back import PLACE, ReadBack
from smq.sealer.room import Room
from smq.wire.batch_search import WantedRecord, find_in_batch

MAGIC = b"SMQ\x01raw\n"
INDEX_DTYPE = np.dtype(
    [
        ("base_offset", "<i8"),
        ("last_offset", "<i8"),
        ("max_timestamp", "<i8"),
        ("at", "<i8"),
        ("end", "<i8"),
    ]
)
_FACTS = struct.Struct("<qqqq")
_CHECK = struct.Struct("<Q8s")
INFLATED_BYTES_MAX = 1 << 30  # For one look-up: a second or two.
FOOTER_BYTES = _FACTS.size + _CHECK.size


class NotRaw(ValueError):
    """These bytes are not a whole raw segment."""


def index_of(facts: np.ndarray, shift: int) -> np.ndarray:
    """The index rows of batches with these facts, moved by `shift` bytes."""
    index = np.empty(facts.shape[1], INDEX_DTYPE)
    index["base_offset"] = facts[B_BASE_OFFSET]
    index["last_offset"] = facts[B_LAST_OFFSET]
    index["max_timestamp"] = facts[B_MAX_TIMESTAMP]
    index["at"] = facts[B_AT] + shift
    index["end"] = facts[B_END] + shift
    return index


def _runs(starts: np.ndarray, ends: np.ndarray) -> Iterator[tuple[int, int]]:
    """Neighbouring ranges joined, in order."""
    if len(starts):
        cuts = np.flatnonzero(starts[1:] != ends[:-1]) + 1
        firsts, lasts = np.r_[0, cuts], np.r_[cuts, len(starts)] - 1
        yield from zip(starts[firsts].tolist(), ends[lasts].tolist(), strict=True)


class RawWriter:
    """Collects the batches of one raw segment: in a room of its own, or one that other writers have
    used."""

    untyped_count = 0  # Its values are not parsed.

    def __init__(self, room: Room | None = None, *, as_sent: bool = False) -> None:
        """`as_sent`: it keeps markers too, for an undecided segment."""
        self._as_sent = as_sent
        self._file = room or Room()
        self._file.begin()
        self._index: list[np.ndarray] = []

    @property
    def size(self) -> int:
        """The approximate size of the segment."""
        return self._file.tell()

    def add(self, piece: Piece) -> None:
        """Add the batches of a piece, of any kind, unless they are markers."""
        if piece.kind is Kind.CONTROL and not self._as_sent:
            return
        self._index.append(index_of(piece.facts, self.size - int(piece.facts[B_AT, 0])))
        self._file.write(piece.batches)

    def add_segment(self, segment: "RawSegment") -> None:
        """Add all batches of another segment."""
        back, index = segment.batches(), segment.index.copy()
        for name in ("at", "end"):
            index[name] = back.places[name] + self.size
        self._index.append(index)
        for piece in back.pieces:
            self._file.write(piece)

    def finish(self, base_offset: int, end_offset: int) -> memoryview:
        """The segment's bytes, valid until the room has another writer."""
        index = np.concatenate(self._index)
        assert base_offset <= int(index["last_offset"][0]), "it may begin inside a batch"
        assert int(index["last_offset"][-1]) < end_offset
        facts = _FACTS.pack(base_offset, end_offset, self.size, len(index))
        checked = index.tobytes() + facts
        check = int(crc32c(read_only(checked), 0, len(checked)))
        self._file.write(checked + _CHECK.pack(check, MAGIC))
        return self._file.written().data


class RawSegment:
    """Reads a raw segment. Raises NotRaw if it is not one."""

    def __init__(self, data: np.ndarray, *, as_sent: bool = False) -> None:
        """`as_sent`: give its markers too."""
        self.data = data
        view = data.data
        if len(view) < FOOTER_BYTES or bytes(view[-len(MAGIC) :]) != MAGIC:
            raise NotRaw("it does not end like a raw segment")
        facts_at = len(view) - FOOTER_BYTES
        check_at = len(view) - _CHECK.size
        self.base_offset, self.end_offset, body_bytes, count = _FACTS.unpack(
            view[facts_at:check_at]
        )
        if body_bytes < 0 or body_bytes + count * INDEX_DTYPE.itemsize != facts_at:
            raise NotRaw("its length differs from its footer's")
        check, _ = _CHECK.unpack(view[check_at:])
        if int(crc32c(data, body_bytes, check_at)) != check:
            raise NotRaw("its index has a wrong CRC")
        index = data[body_bytes:facts_at].view(INDEX_DTYPE)
        attributes = data[index["at"] + BATCH_ATTRIBUTES_AT + 1]
        self._is_marker = attributes & ATTRIBUTE_CONTROL != 0
        if not as_sent:
            index = index[~self._is_marker]
            self._is_marker = self._is_marker[~self._is_marker]
        self.index = index
        self.body = view[:body_bytes]

    def batches(self) -> ReadBack:
        """All batches, as they were sent."""
        places = np.empty(len(self.index), PLACE)
        places["last_record"] = places["last_offset"] = self.index["last_offset"]
        places["end"] = (self.index["end"] - self.index["at"]).cumsum()
        places["at"] = places["end"] - (self.index["end"] - self.index["at"])
        runs = _runs(self.index["at"], self.index["end"])
        return ReadBack([self.body[at:end] for at, end in runs], places)

    def newest(self, from_offset: int, limit: int = NO_LIMIT) -> tuple[int, int] | None:
        """Offset and time of the first record with the largest time, at or after `from_offset`.

        As exact as `find_time`: its batches' headers tell which time to look for.
        """
        wanted = ~self._is_marker & (self.index["base_offset"] < limit)
        times = self.index["max_timestamp"][wanted & (self.index["last_offset"] >= from_offset)]
        found = (self.find_time(int(time), from_offset, limit) for time in np.unique(times)[::-1])
        return next(filter(None, found), None)

    def find_time(
        self, timestamp: int, from_offset: int = 0, limit: int = NO_LIMIT
    ) -> tuple[int, int] | None:
        """Offset and time of the first record at or after `from_offset` and this time, below a
        limit.

        Where a batch cannot be read, or claims more than may be inflated, its header answers.
        """
        late = self.index["max_timestamp"] >= timestamp
        late &= (self.index["last_offset"] >= from_offset) & ~self._is_marker
        late &= self.index["base_offset"] < limit
        end, bytes_left = min(self.end_offset, limit), INFLATED_BYTES_MAX
        wanted = WantedRecord(timestamp, from_offset, end)
        for row in self.index[late]:
            searched = find_in_batch(self.body[row["at"] : row["end"]], wanted, bytes_left)
            if searched.found is not None:
                return searched.found
            bytes_left = max(0, bytes_left - searched.bytes_looked_at)
        return None
