"""Reading a log: bytes at positions, from the ring while it has them, else from the WAL, checked.

A frame of the WAL that is not what was written there is damage: its bytes are put aside under
quarantine/, it is told once, and finding passes over it from then on, so that no reader is stuck.
"""

from itertools import pairwise
from pathlib import Path

import numpy as np

from shm.kernels.fetch import gather, gather_checked
from shm.kernels.frames import batch_crc_is_good, frame_is_good
from shm.kernels.words import (
    FRAME_ALIGNMENT_BYTES,
    FRAME_HEADER_BYTES,
    P_SEALED_END,
    WORD_RING_START,
    WORD_TAIL,
)
from shm.segment import LogMemory
from smq.log.filed_index import FiledIndex
from smq.log.lookup import Found, Lookup
from smq.log.partitions import Partitions
from smq.log.wal import Segment, Wal

READ_GAP_BYTES_MAX = 64 * 1024  # Of other partitions' frames, read over in one read of the WAL.
QUARANTINE = "quarantine"


class DamagedFrame(Exception):
    """Bytes of the WAL are not what was written there, or are gone. Names file and position."""


def put_aside(directory: Path, position: int, data: np.ndarray) -> Path:
    """Keep damaged bytes of a log for who wants to look at them. Raises OSError."""
    path = directory / QUARANTINE / f"{position:020d}.frame"
    path.parent.mkdir(exist_ok=True, mode=0o700)
    path.write_bytes(data.tobytes())
    return path


class ReadableLog:
    """What of a log can be found and read.

    `notices` are sentences for the operator that nobody has taken yet.
    """

    def __init__(self, memory: LogMemory, wal: Wal) -> None:
        self.memory, self.words = memory, memory.words
        self.wal, self.directory = wal, wal.directory
        self.partitions = Partitions(memory)
        self.lookup = Lookup(memory)
        self.links = self.lookup.links
        self.notices: list[str] = []

    def find(self, number: int, offset: int, limit: int, bytes_max: int) -> Found | None:
        """The whole batches of a partition from `offset` on and below offset `limit`.

        None: what holds the offset has left the WAL; the sealed segments have it.
        """
        slot = self.partitions.slots[number]
        sealed_end = int(self.partitions.table[slot, P_SEALED_END])
        found = self.lookup.choose(number, slot, offset, limit, bytes_max, sealed_end)
        if found is None or not len(found.spans) or self.in_ring(int(found.spans[0, 0])):
            return found
        held = self._held(found.spans)
        return held if len(held.spans) else None

    def _held(self, spans: np.ndarray) -> Found:
        """The spans before the first whose segment was freed (sealed data may go in any order)."""
        starts = np.array([segment.start for segment in self.wal.segments])
        ends = np.array([segment.end for segment in self.wal.segments])
        at = np.searchsorted(starts, spans[:, 0], "right") - 1
        gone = (spans[:, 0] >= ends[at]) | (at < 0)
        gone &= spans[:, 0] < self._ring_oldest()
        count = int(np.argmax(gone)) if gone.any() else len(spans)
        return Found(spans[:count], int(spans[:count, 1].sum()))

    def filed_indexes(self, number: int) -> list[FiledIndex]:
        """The filed tables that have the partition, oldest first."""
        filed = self.lookup.filed.get(number, ())
        return [segment.index for _, segment in filed if segment.index is not None]

    def in_ring(self, position: int) -> bool:
        """Whether the ring still has the bytes at a position."""
        return position >= self._ring_oldest()

    def _ring_oldest(self) -> int:
        words = self.words
        return max(words[WORD_RING_START], words[WORD_TAIL] - self.memory.layout.ring_bytes)

    def view(self, position: int, length: int) -> memoryview | None:
        """Bytes in the ring, lent until the next append; None when the ring has moved on."""
        if not self.in_ring(position):
            return None
        place = position % self.memory.layout.ring_bytes
        return self.memory.ring_view[place : place + length]

    def read_batch(self, position: int, length: int) -> memoryview:
        """A batch from ring or WAL. Raises DamagedFrame."""
        view = self.view(position, length)
        if view is not None:
            return view
        size = FRAME_HEADER_BYTES + length + FRAME_ALIGNMENT_BYTES - 1
        frame = self._read_wal(position - FRAME_HEADER_BYTES, size)
        if (
            len(frame) < FRAME_HEADER_BYTES + length
            or not frame_is_good(frame, 0, len(frame), position - FRAME_HEADER_BYTES)
            or not batch_crc_is_good(frame, FRAME_HEADER_BYTES, length)
        ):
            raise self._damage(position - FRAME_HEADER_BYTES, frame)
        return frame.data[FRAME_HEADER_BYTES : FRAME_HEADER_BYTES + length]

    def read_batches(self, spans: np.ndarray) -> list[memoryview]:
        """Batches from ring or WAL, each as read_batch gives it. Raises DamagedFrame."""
        places: list[tuple[int, int]] = spans.tolist()
        if not self.in_ring(places[0][0]):
            return [self.read_batch(position, size) for position, size in places]
        ring, ring_bytes = self.memory.ring_view, self.memory.layout.ring_bytes
        return [ring[(at := position % ring_bytes) : at + size] for position, size in places]

    def _read_wal(self, position: int, length: int) -> np.ndarray:
        """Bytes of the WAL; none where it cannot be read, which is damage like any other."""
        try:
            return self.wal.read(position, length)
        except OSError:
            return np.empty(0, np.uint8)

    def gather(self, spans: np.ndarray, out: np.ndarray) -> int:
        """Copy batches one after another into `out` (uint8); returns their bytes.

        Raises DamagedFrame.
        """
        split = int(np.searchsorted(spans[:, 0], self._ring_oldest()))
        at = 0
        for first, stop in self._runs(spans[:split]):
            at = self._gather_run(spans[first:stop], out, at)
        recent = spans[split:]
        return at + int(gather(self.memory.ring, recent, len(recent), out[at:]))

    def _runs(self, spans: np.ndarray) -> list[tuple[int, int]]:
        """Cut spans where one read of the WAL would bring more foreign bytes than wanted ones."""
        if not len(spans):
            return []
        starts = np.array([segment.start for segment in self.wal.segments])
        segments = np.searchsorted(starts, spans[:, 0], "right")
        gaps = spans[1:, 0] - (spans[:-1, 0] + spans[:-1, 1])
        cuts = np.flatnonzero((gaps > READ_GAP_BYTES_MAX) | (segments[1:] != segments[:-1])) + 1
        edges = [0, *cuts.tolist(), len(spans)]
        return list(pairwise(edges))

    def _gather_run(self, spans: np.ndarray, out: np.ndarray, at: int) -> int:
        start = int(spans[0, 0]) - FRAME_HEADER_BYTES
        length = int(spans[-1, 0] + spans[-1, 1]) - start + FRAME_ALIGNMENT_BYTES
        data = self._read_wal(start, length)
        end = int(gather_checked(data, start, spans, out, at))
        if end < 0:
            position, size = spans[-end - 1].tolist()
            frame = position - FRAME_HEADER_BYTES
            raise self._damage(frame, data[frame - start : position + size - start])
        return end

    # --- damage ----------------------------------------------------------------------------------

    def _damage(self, position: int, found: np.ndarray) -> DamagedFrame:
        """What to raise for the frame at a position. It is put aside, told and passed over."""
        segment = self.wal.find(position)
        if segment is None:
            return DamagedFrame(f"{self.directory}: position {position} has been freed")
        number = self.lookup.partition_at(position, segment)
        place = self.lookup.place_of(number, position)
        if (
            place is None
            or self.lookup.behind_damage(number, place.base_offset) != place.base_offset
        ):
            return DamagedFrame(f"{segment.path}: damaged frame at position {position}")
        self.lookup.lose(place)
        what = (
            f"{self._set_aside(segment, position, found)}: offsets {place.base_offset} to "
            f"{place.end_offset - 1} of partition {number} are lost, the others are served"
        )
        self.notices.append(what)
        return DamagedFrame(what)

    def _set_aside(self, segment: Segment, position: int, found: np.ndarray) -> str:
        try:
            where = f"set aside in {put_aside(self.directory, position, found)}"
        except OSError as error:
            where = f"not set aside ({error})"
        return f"the frame at position {position} of {segment.path} is damaged and {where}"
