"""What is uploaded: bytes of somebody else, who may change them meanwhile.

    first    read for their length and CRC-32C, which name them
    again    read to be sent: pieces that nobody else has, in order; behind the last one an error,
             if they are not what they were

A file is read, never mapped: one that is cut short would kill who looks at the map.
"""

import os
from collections.abc import Callable, Iterator

from shm.arrow import read_only
from shm.kernels.base.crc32c import crc32c_update
from smq.filer.store import Data
from smq.model.errors import StoreError

PIECE_BYTES = 1 << 18  # Of what is read for its CRC: fits a level-2 cache.
CRC_START = 0xFFFFFFFF

Read = Callable[[int, int], bytes]
"""A copy of the bytes [start, start + size) that there are."""


class SourceChanged(StoreError):
    """What was uploaded changed meanwhile; nothing is stored."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "it changed while it was uploaded; nothing is stored")


class Content:
    """Bytes to be sent; `name` tells whose they are."""

    def __init__(self, name: str, read: Read) -> None:
        self._name, self._read = name, read
        self.length = self.crc32c = 0
        while piece := read(self.length, PIECE_BYTES):
            self.crc32c = crc_of(piece, self.crc32c)
            self.length += len(piece)

    @classmethod
    def of_file(cls, name: str, fd: int) -> "Content":
        """What is in a file, from its beginning. Raises OSError."""
        return cls(name, lambda start, size: os.pread(fd, size, start))

    @classmethod
    def of_memory(cls, view: memoryview) -> "Content":
        """What is in memory: a view of bytes."""
        return cls("bytes in memory", lambda start, size: bytes(view[start : start + size]))

    def pieces(self, size: int) -> Iterator[bytes]:
        """All of it, in order; only the last piece is shorter. Raises SourceChanged, OSError."""
        crc = 0
        for start in range(0, self.length, size):
            wanted = min(size, self.length - start)
            piece = self._read(start, wanted)
            crc = crc_of(piece, crc)
            if len(piece) < wanted:
                raise SourceChanged(self._name)
            yield piece
        if crc != self.crc32c:
            raise SourceChanged(self._name)


def crc_of(data: Data, crc: int = 0) -> int:
    """The CRC-32C of bytes that follow others, of which it is `crc`."""
    return int(crc32c_update(read_only(data), 0, len(data), crc ^ CRC_START)) ^ CRC_START
