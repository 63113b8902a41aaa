"""Receive buffers: borrowed by a connection only while it holds a part of a request.

An idle connection holds no buffer. One whose request has come in part keeps a short rest as bytes,
a long one where it lies, so that a batch of a megabyte is not copied on its way to the ring; and a
request larger than a buffer is collected in memory that grows as its bytes come, not before.
"""

from dataclasses import dataclass

import numpy as np

from shm.kernels.turn_receive import RECEIVE_BYTES
from shm.kernels.wire import SIZE_BYTES

BUFFER_BYTES = 4 * RECEIVE_BYTES
SHORT_REST_BYTES = 16 * 1024  # Cheaper to copy twice than to keep a buffer for.
LENT_MAX = 32  # Buffers lent to connections; beyond that rests are copied, whatever their size.
SPARE_MAX = 4


class Buffer:
    """Memory to receive into: bytes [start, end) are received and not yet taken."""

    __slots__ = ("array", "end", "start", "view")

    def __init__(self, size: int = BUFFER_BYTES) -> None:
        self.array = np.zeros(size, np.uint8)
        self.view = self.array.data
        self.start = self.end = 0

    def room(self) -> memoryview:
        """Where the next recv goes."""
        if self.start and len(self.view) - self.end < RECEIVE_BYTES:
            rest = self.end - self.start
            self.array[:rest] = self.array[self.start : self.end].copy()
            self.start, self.end = 0, rest
        return self.view[self.end : self.end + RECEIVE_BYTES]

    def wanted_bytes(self) -> int:
        """How many bytes the request at the start takes with its size, 0 if that is not known."""
        if self.end - self.start < SIZE_BYTES:
            return 0
        size = self.view[self.start : self.start + SIZE_BYTES]
        return SIZE_BYTES + int.from_bytes(size, signed=True)


@dataclass(slots=True)
class Rest:
    """What a connection holds of an unfinished request: a buffer, bytes, or nothing."""

    buffer: Buffer | None = None
    copied: bytes = b""


class BufferPool:
    """Lends buffers. Invariant: at most LENT_MAX are with connections that wait for more."""

    def __init__(self) -> None:
        self._spare: list[Buffer] = []
        self._lent = 0

    def take(self, rest: Rest) -> Buffer:
        """A buffer that begins with a connection's rest."""
        if rest.buffer is not None:
            buffer, rest.buffer = rest.buffer, None
            self._lent -= 1
            return buffer
        buffer = self._spare.pop() if self._spare else Buffer()
        if rest.copied:
            if len(rest.copied) + RECEIVE_BYTES > len(buffer.view):
                self._give(buffer)
                buffer = self._larger(len(rest.copied))
            buffer.view[: len(rest.copied)] = rest.copied
            buffer.end = len(rest.copied)
            rest.copied = b""
        return buffer

    def put_back(self, buffer: Buffer, rest: Rest) -> None:
        """After parsing: keep what is left of an unfinished request for its connection."""
        left = buffer.end - buffer.start
        if left == 0:
            self._give(buffer)
        elif left <= SHORT_REST_BYTES or self._lent >= LENT_MAX:
            rest.copied = bytes(buffer.view[buffer.start : buffer.end])
            self._give(buffer)
        else:
            wanted = buffer.wanted_bytes()
            if wanted > len(buffer.view) and left + RECEIVE_BYTES > len(buffer.view):
                larger = self._larger(min(wanted, 2 * len(buffer.view)))
                larger.view[:left] = buffer.view[buffer.start : buffer.end]
                larger.end = left
                self._give(buffer)
                buffer = larger
            rest.buffer = buffer
            self._lent += 1

    def drop(self, rest: Rest) -> None:
        """A connection is gone with what it held."""
        if rest.buffer is not None:
            self._lent -= 1
            self._give(rest.buffer)
            rest.buffer = None

    def _give(self, buffer: Buffer) -> None:
        if len(self._spare) < SPARE_MAX and len(buffer.view) == BUFFER_BYTES:
            buffer.start = buffer.end = 0
            self._spare.append(buffer)

    @staticmethod
    def _larger(size: int) -> Buffer:
        return Buffer(size + 2 * RECEIVE_BYTES)
