"""Receive buffers: borrowed by a connection only while it holds a part of a request.

An idle connection holds no buffer. One with a part of a request keeps a short rest as bytes, and a
long one in place: new bytes cause no copy of earlier ones. Memory must be earned by received bytes:
it grows and shrinks with the rest. Beyond BUFFER_BYTES it grows in place: copying would hold the
loop. A few connections may keep a whole buffer, so that a batch of a megabyte is not copied on its
way to the ring. All parts of requests together are bounded too; beyond that the slowest connections
are dropped.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Protocol, TypeVar

import numpy as np

from shm.kernels.base.wire import SIZE_BYTES
from shm.kernels.turn.requests import RECEIVE_BYTES

BUFFER_BYTES = 4 * RECEIVE_BYTES
SHORT_REST_BYTES = 16 * 1024  # Cheaper to copy twice than to keep a buffer for.
LENT_MAX = 32  # Whole buffers kept for rests that have not earned them.
SPARE_MAX = 4
# A request that is finished in steps is copied up to here: half a millisecond. Beyond, it keeps the
# buffer, of which it fills a quarter at least.
COPIED_REQUEST_BYTES = BUFFER_BYTES // 4
EARNED_FACTOR = 4  # A buffer of its own is at most this many times as large as its rest, …
GROWTH_FACTOR = 2  # … and is made this many times as large: copying stays linear.
ROOM_PART = 8  # It grows unless one part in this many of its rest is free.
assert (
    EARNED_FACTOR > GROWTH_FACTOR > 1 + 1 / ROOM_PART
)  # Otherwise a shrinking rest would be copied again and again.
REQUESTS_MAX = 4  # Of the largest, at once. Kafka's queued.max.request.bytes is unbounded.
HELD_BYTES_MIN = 2 * LENT_MAX * BUFFER_BYTES
KEPT_SHARE = 0.75  # Of the bound: above it, search for the slowest once in a while.


class Buffer:
    """Memory to receive into: bytes [start, end) are received but not taken yet.

    borrowed_at   `start` when a connection borrowed it
    """

    __slots__ = ("array", "borrowed_at", "end", "start", "view")

    def __init__(self, size: int = BUFFER_BYTES) -> None:
        if size > BUFFER_BYTES:
            memory = mmap(-1, size, flags=MAP_PRIVATE | MAP_ANONYMOUS)
            self.array: np.ndarray = np.frombuffer(memory, np.uint8)
        else:
            self.array = np.zeros(size, np.uint8)
        self.view = self.array.data
        self.start = self.end = self.borrowed_at = 0

    @property
    def held_bytes(self) -> int:
        """The memory that it takes: of a large one, what was received into."""
        return min(len(self.view), max(BUFFER_BYTES, self.end))

    def room(self) -> memoryview:
        """Where the next recv goes."""
        if self.start and len(self.view) - self.end < RECEIVE_BYTES:
            rest = self.end - self.start
            self.array[:rest] = self.array[self.start : self.end].copy()
            self.start, self.end, self.borrowed_at = 0, rest, 0
        return self.view[self.end : self.end + RECEIVE_BYTES]

    def give(self, start: int, end: int) -> np.ndarray:
        """The bytes [start, end) for as long as they are needed; the buffer goes on behind them."""
        given, self.start = self.array[start:end], end
        if end - start <= COPIED_REQUEST_BYTES:
            return given.copy()
        rest = self.end - end
        array = np.zeros(max(BUFFER_BYTES, rest), np.uint8)
        array[:rest] = self.array[end : self.end]
        self.array, self.view = array, array.data
        self.start, self.end, self.borrowed_at = 0, rest, 0
        return given

    def wanted_bytes(self) -> int:
        """The bytes of the first request with its size; 0: unknown."""
        if self.end - self.start < SIZE_BYTES:
            return 0
        size = self.view[self.start : self.start + SIZE_BYTES]
        return SIZE_BYTES + int.from_bytes(size, signed=True)


def _of_its_own(size: int, wanted: int) -> Buffer:
    """A buffer of this size, or of the wanted one if it is large: what nothing was received into
    takes no memory."""
    if BUFFER_BYTES < size < wanted:
        try:
            return Buffer(wanted)
        except OSError:  # The system promises no memory that it does not have.
            pass
    return Buffer(size)


@dataclass(slots=True, eq=False)
class Rest:
    """The part of an unfinished request that a connection holds: a buffer, bytes, or nothing.

    since_ns  when its first bytes came (monotonic)
    is_lent   the buffer is larger than it has earned
    """

    buffer: Buffer | None = None
    copied: bytes = b""
    since_ns: int = 0
    is_lent: bool = False

    @property
    def held_bytes(self) -> int:
        """The memory that it takes."""
        return len(self.copied) if self.buffer is None else self.buffer.held_bytes

    @property
    def received_bytes(self) -> int:
        """The received bytes of requests."""
        buffer = self.buffer
        return len(self.copied) if buffer is None else buffer.end - buffer.start


class Holder(Protocol):
    """A connection."""

    @property
    def rest(self) -> Rest:
        """The part received so far."""


HolderT = TypeVar("HolderT", bound=Holder)


class BufferPool:
    """Lends buffers; `held_bytes` is what all rests take.

    Invariants: at most LENT_MAX rests have a buffer that they have not earned.

    working_bytes   of whole requests that are finished in steps, counted by who does that
    """

    def __init__(self, request_bytes_max: int) -> None:
        self._spare: list[Buffer] = []
        self._lent = self.held_bytes = self.working_bytes = 0
        self.bytes_max = max(HELD_BYTES_MIN, REQUESTS_MAX * request_bytes_max)

    def invariants(self, holders: Iterable[Holder]) -> None:
        """Raise AssertionError if the counts differ from these, all connections that hold
        something."""
        rests = [holder.rest for holder in holders]
        assert self.held_bytes == sum(rest.held_bytes for rest in rests)
        assert self._lent == sum(rest.is_lent for rest in rests) <= LENT_MAX
        for rest in rests:
            is_earned = rest.held_bytes <= EARNED_FACTOR * rest.received_bytes
            assert is_earned or rest.is_lent

    @property
    def has_room(self) -> bool:
        """Whether all together hold no more than allowed."""
        return self.held_bytes + self.working_bytes <= self.bytes_max

    def take(self, rest: Rest) -> Buffer:
        """A buffer that begins with a connection's rest."""
        self.held_bytes -= rest.held_bytes
        if rest.buffer is not None:
            self._lent -= rest.is_lent
            buffer, rest.buffer, rest.is_lent = rest.buffer, None, False
            buffer.borrowed_at = buffer.start
            return buffer
        buffer = self._spare.pop() if self._spare else Buffer()
        if rest.copied:
            buffer.view[: len(rest.copied)] = rest.copied
            buffer.end = len(rest.copied)
            rest.copied = b""
        return buffer

    def put_back(self, buffer: Buffer, rest: Rest, now_ns: int = 0) -> None:
        """After parsing: keep what is left of an unfinished request for its connection."""
        left = buffer.end - buffer.start
        if left == 0:
            rest.since_ns = 0
            self._give(buffer)
            return
        if not rest.since_ns or buffer.start > buffer.borrowed_at:
            rest.since_ns = now_ns
        if left <= SHORT_REST_BYTES:
            rest.copied = bytes(buffer.view[buffer.start : buffer.end])
            self._give(buffer)
        else:
            rest.buffer, rest.is_lent = self._kept(buffer, left)
            self._lent += rest.is_lent
        self.held_bytes += rest.held_bytes

    def _kept(self, buffer: Buffer, left: int) -> tuple[Buffer, bool]:
        """A buffer that may be kept for the rest in this one; whether it is lent."""
        size, wanted = len(buffer.view), buffer.wanted_bytes()
        if size > EARNED_FACTOR * left and size == BUFFER_BYTES and self._lent < LENT_MAX:
            return buffer, True
        has_room = left < wanted <= size or left + min(left // ROOM_PART, RECEIVE_BYTES) <= size
        if has_room and buffer.held_bytes <= EARNED_FACTOR * left:
            return buffer, False
        larger = GROWTH_FACTOR * left
        own = _of_its_own(min(wanted, larger) if wanted > left else larger, wanted)
        own.view[:left] = buffer.view[buffer.start : buffer.end]
        own.end = left
        self._give(buffer)
        return own, False

    def drop(self, rest: Rest) -> None:
        """Forget a closed connection and its rest."""
        self.held_bytes -= rest.held_bytes
        self._lent -= rest.is_lent
        if rest.buffer is not None:
            self._give(rest.buffer)
        rest.buffer, rest.copied, rest.since_ns, rest.is_lent = None, b"", 0, False

    def slowest(self, holders: Iterable[HolderT], now_ns: int) -> list[HolderT]:
        """The connections to drop; none while all together hold no more than allowed."""
        if self.has_room:
            return []
        excess = self.held_bytes + self.working_bytes - KEPT_SHARE * self.bytes_max

        def rate(holder: Holder) -> float:
            return holder.rest.received_bytes / max(1, now_ns - holder.rest.since_ns)

        slowest = []
        for holder in sorted((each for each in holders if each.rest.held_bytes), key=rate):
            if excess <= 0:
                break
            excess -= holder.rest.held_bytes
            slowest.append(holder)
        return slowest

    def _give(self, buffer: Buffer) -> None:
        if len(self._spare) < SPARE_MAX and len(buffer.view) == BUFFER_BYTES:
            buffer.start = buffer.end = buffer.borrowed_at = 0
            self._spare.append(buffer)
