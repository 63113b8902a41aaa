"""The bytes of an upload. Their owner may change them during the upload.

    first pass     reads their length and CRC-32C, which name the payload
    second pass    reads copies to send, in order; raises after the last piece if the bytes have
                   changed since the first pass

A file is read, never mapped: truncating a mapped file kills the process that reads the map.
"""

import os
from collections.abc import Callable, Iterator

from shm.arrow import read_only
from shm.kernels.base.crc32c import crc32c_update
from smq.filer.store import Data
from smq.model.errors import StoreError

PIECE_BYTES = 1 << 18  # Read at a time for the CRC: fits a level-2 cache.
CRC_START = 0xFFFFFFFF

Read = Callable[[int, int], bytes]
"""A copy of those of the bytes [start, start + size) that exist."""


class SourceChanged(StoreError):
    """The source changed during its upload; nothing is stored."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "it changed while it was uploaded; nothing is stored")


class Content:
    """Bytes to send; `name` stands in errors."""

    def __init__(self, name: str, read: Read) -> None:
        self._name, self._read = name, read
        self.length = self.crc32c = 0
        while piece := read(self.length, PIECE_BYTES):
            self.crc32c = crc_of(piece, self.crc32c)
            self.length += len(piece)

    @classmethod
    def of_file(cls, name: str, fd: int) -> "Content":
        """The content of a file, from its beginning. Raises OSError."""
        return cls(name, lambda start, size: os.pread(fd, size, start))

    @classmethod
    def of_memory(cls, view: memoryview) -> "Content":
        """Bytes in memory."""
        return cls("bytes in memory", lambda start, size: bytes(view[start : start + size]))

    def pieces(self, size: int) -> Iterator[bytes]:
        """The content in pieces of `size`, the last shorter. Raises SourceChanged, OSError."""
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
    """The CRC-32C of `data`, continued from `crc`, that of the bytes before."""
    return int(crc32c_update(read_only(data), 0, len(data), crc ^ CRC_START)) ^ CRC_START
