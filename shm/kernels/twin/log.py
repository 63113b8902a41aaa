"""The plain twins of the log's kernels: frames, placement, index, fetch, publish. Read them first.

crc32c, frame, read_frame, scan            shm.kernels.base.crc32c, frames, recover
Tail.place                                 shm.kernels.log.append: where the next frame goes
PlainIndex                                 shm.kernels.log.index, fetch, visible
"""

import struct
from dataclasses import dataclass, field
from typing import NamedTuple

from shm.kernels.base import words

_FRAME = struct.Struct("<IIqqIiIiq")
assert _FRAME.size == words.FRAME_HEADER_BYTES

_POLYNOMIAL = 0x82F63B78  # RFC 3720, appendix B.4, bits reversed.


def crc32c(data: bytes, crc: int = 0) -> int:
    """CRC-32C, a bit at a time; `crc` is that of the bytes before."""
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def batch_is_good(batch: bytes) -> bool:
    """Whether a batch has the CRC it says."""
    return crc32c(batch[21:]) == int.from_bytes(batch[17:21])


def batch_fits(batch: bytes) -> bool:
    """Whether a batch has a header that a log writes into a frame of so many bytes."""
    base_offset, length, _epoch, batch_format = struct.unpack_from(">qiib", batch)
    [last_delta] = struct.unpack_from(">i", batch, words.BATCH_LAST_OFFSET_DELTA_AT)
    is_whole = (length, batch_format) == (len(batch) - words.BATCH_OVERHEAD_BYTES, 2)
    return is_whole and last_delta >= 0 and 0 <= base_offset < 2**62 - last_delta


class PlainFrame(NamedTuple):
    """A frame's header, and the batch or padding behind it."""

    position: int
    synced: int
    generation: int
    partition: int
    kind: int
    level: int
    content: bytes

    @property
    def frame_bytes(self) -> int:
        """The frame's bytes in the log: padding fills its stated length, all others are aligned."""
        size = words.FRAME_HEADER_BYTES + len(self.content)
        if self.kind == words.FRAME_KIND_PADDING:
            return size
        return -(-size // words.FRAME_ALIGNMENT_BYTES) * words.FRAME_ALIGNMENT_BYTES

    def header(self) -> bytes:
        """Its first 48 bytes, check included."""
        fields = (self.position, self.synced, self.generation, len(self.content))
        checked = _FRAME.pack(0, 0, *fields, self.partition, self.kind, self.level)[8:]
        ends = {words.FRAME_KIND_BATCH: words.BATCH_HEADER_BYTES, words.FRAME_KIND_PADDING: 0}
        covered = self.content[: ends.get(self.kind)]  # Of an unknown kind: all of it.
        return struct.pack("<II", words.FRAME_MAGIC, crc32c(checked + covered)) + checked

    def encode(self) -> bytes:
        """The frame's bytes, as in ring and WAL."""
        return (self.header() + self.content).ljust(self.frame_bytes, b"\0")


def read_frame(data: bytes, position: int) -> PlainFrame | None:
    """The frame that `data` begins with, if it is whole, of this position, its check right, and its
    content what a log writes."""
    if len(data) < words.FRAME_HEADER_BYTES:
        return None
    _magic, _check, at, synced, generation, size, *rest = _FRAME.unpack_from(data)
    partition, kind, level = rest
    smallest = words.BATCH_HEADER_BYTES if kind == words.FRAME_KIND_BATCH else 0
    if at != position or kind <= 0 or size < smallest:
        return None
    content = data[words.FRAME_HEADER_BYTES : words.FRAME_HEADER_BYTES + size]
    frame = PlainFrame(at, synced, generation, partition, kind, level, content)
    is_whole = len(content) == size and frame.frame_bytes <= len(data)
    if not is_whole or not data.startswith(frame.header()):
        return None
    if kind == words.FRAME_KIND_PADDING and frame.frame_bytes % words.FRAME_ALIGNMENT_BYTES:
        return None
    return frame if kind != words.FRAME_KIND_BATCH or batch_fits(content) else None


def scan(data: bytes, first_position: int, generation: int) -> tuple[list[PlainFrame], int, int]:
    """The good frames from the start of WAL bytes on: (frames, where they end, generation).

    They end at the first whose header, CRC or generation is not right.
    """
    frames, at = list[PlainFrame](), 0
    while (frame := read_frame(data[at:], first_position + at)) is not None:
        if frame.generation < generation:
            break
        if frame.kind == words.FRAME_KIND_BATCH and not batch_is_good(frame.content):
            break
        frames.append(frame)
        generation, at = frame.generation, at + frame.frame_bytes
    return frames, at, generation


@dataclass
class Tail:
    """Where a log's next frame goes: never over the end of the ring or of a WAL segment."""

    ring_bytes: int
    segment_bytes: int
    tail: int = 0
    segment_end: int = 0
    written: int = 0

    def place(self, size: int) -> tuple[list[tuple[int, int]], int | None]:
        """Padding frames (position, end) to write first, and the frame's position.

        None if the WAL must be written first: bytes that it lacks are not overwritten.
        """
        paddings = list[tuple[int, int]]()
        while True:
            if self.tail == self.segment_end:
                self.segment_end += self.segment_bytes
            limit = min(self.segment_end, (self.tail // self.ring_bytes + 1) * self.ring_bytes)
            fits = self.tail + size <= limit
            end = self.tail + size if fits else limit
            if end - self.written > self.ring_bytes:
                return paddings, None
            position, self.tail = self.tail, end
            if fits:
                return paddings, position
            paddings.append((position, end))


class PlainEntry(NamedTuple):
    """A frame in the index."""

    slot: int
    position: int
    base_offset: int
    record_count: int
    batch_bytes: int
    max_timestamp: int

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.record_count


@dataclass
class PlainIndex:
    """Entries in a list; the last `capacity` of them can be found."""

    capacity: int
    entries: list[PlainEntry] = field(default_factory=list)

    def of(self, slot: int) -> list[tuple[int, PlainEntry]]:
        """A partition's entries in the window, with their numbers."""
        start = max(0, len(self.entries) - self.capacity)
        numbered = list(enumerate(self.entries))[start:]
        return [(number, entry) for number, entry in numbered if entry.slot == slot]

    def find(self, slot: int, offset: int) -> int:
        """The newest entry with base_offset <= offset, -1: none."""
        found = [number for number, entry in self.of(slot) if entry.base_offset <= offset]
        return max(found, default=-1)

    def first(self, slot: int) -> int:
        """The oldest entry of a partition, -1: none."""
        return min((number for number, _ in self.of(slot)), default=-1)

    def find_time(self, slot: int, entry: int, limit: int, timestamp: int) -> int:
        """From an entry on, the first below offset `limit` that reaches a timestamp, -1: none."""
        reached = (
            number
            for number, each in self.of(slot)
            if number >= entry and each.base_offset < limit and each.max_timestamp >= timestamp
        )
        return next(reached, -1)

    def choose(
        self, slot: int, offset: int, limit: int, bytes_max: int, count_max: int
    ) -> list[tuple[int, int]] | None:
        """(position, bytes) of the batches of a fetch; None: older than the window."""
        known = self.of(slot)
        if self.find(slot, offset) < 0:
            return None
        chosen, total = list[tuple[int, int]](), 0
        for _, entry in known:
            if entry.end_offset <= offset:
                continue
            total += entry.batch_bytes
            too_much = chosen and total > bytes_max
            if too_much or entry.base_offset >= limit or len(chosen) == count_max:
                break
            chosen.append((entry.position + words.FRAME_HEADER_BYTES, entry.batch_bytes))
        return chosen

    def publish(self, levels: dict[int, int], level: int, upto: int) -> dict[int, int]:
        """The HWM of each slot of this level once everything below position `upto` has reached it.

        `levels` gives a slot's level.
        """
        return {
            entry.slot: entry.end_offset
            for entry in self.entries
            if levels[entry.slot] == level and entry.position < upto
        }
