"""Reusable memory to build files in: fresh pages for each would cost as much time as Parquet's own
work on uncompressed values.

It is a file to pyarrow, which calls `write` and `tell`, and checks for the other methods.
"""

import numpy as np

from smq.wire.codec import Buffer

MiB = 1024 * 1024
FIRST_BYTES = 256 * MiB  # Larger than any segment; the system gives pages as they are written.


class Room:
    """Lends its memory to one writer at a time: `begin` ends what was lent before."""

    closed = False

    def __init__(self) -> None:
        self._memory = np.empty(FIRST_BYTES, np.uint8)
        self._end = 0

    def begin(self) -> None:
        """Start an empty file."""
        self._end = 0

    def written(self, start: int = 0) -> np.ndarray:
        """A uint8 view of the bytes from a place on, valid until the next begin()."""
        return self._memory[start : self._end]

    def write(self, data: Buffer) -> int:
        """Append. Views from before may show the memory that was too small."""
        end = self._end + len(data)
        if end > len(self._memory):
            larger = np.empty(max(end, 2 * len(self._memory)), np.uint8)
            larger[: self._end] = self.written()
            self._memory = larger
        self._memory[self._end : end] = np.frombuffer(data, np.uint8)
        self._end = end
        return len(data)

    def tell(self) -> int:
        """The number of bytes written."""
        return self._end

    def flush(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """The memory stays."""

    def readable(self) -> bool:
        """pyarrow asks."""
        return False

    def writable(self) -> bool:
        """pyarrow asks."""
        return True

    def seekable(self) -> bool:
        """pyarrow asks."""
        return False
