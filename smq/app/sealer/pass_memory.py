"""The memory of a pass of compaction: the sealer holds it, and each worker inherits it.

    0        8           4096
    +--------+-----------+--------------------+
    | length | place     | table              |      nothing: no pass
    +--------+-----------+--------------------+

The length of the place is 0 while it is written: a worker may be killed at any moment.
"""

import mmap
import os
import weakref

import numpy as np

from shm.kernels.record.last_of_key import SLOT_WORDS

TABLE_AT = 4096
WORD_BYTES = 8


class SharedPassMemory:
    """See smq.sealer.key_table.PassMemory. The system gives pages as they are written."""

    def __init__(self) -> None:
        self._fd = os.memfd_create("smq-compaction", os.MFD_CLOEXEC)
        weakref.finalize(self, os.close, self._fd)

    def begin(self, slots: int) -> None:
        """See PassMemory."""
        os.ftruncate(self._fd, 0)
        os.ftruncate(self._fd, TABLE_AT + slots * SLOT_WORDS * WORD_BYTES)

    def table(self, slots: int) -> np.ndarray:
        """See PassMemory."""
        mapping = mmap.mmap(self._fd, TABLE_AT + slots * SLOT_WORDS * WORD_BYTES)
        words = np.frombuffer(mapping, np.uint64, slots * SLOT_WORDS, TABLE_AT)
        return words.reshape(slots, SLOT_WORDS)

    def note(self, place: bytes) -> None:
        """See PassMemory."""
        assert len(place) <= TABLE_AT - WORD_BYTES
        os.pwrite(self._fd, bytes(WORD_BYTES), 0)
        os.pwrite(self._fd, place, WORD_BYTES)
        os.pwrite(self._fd, len(place).to_bytes(WORD_BYTES, "little"), 0)

    def place(self) -> bytes:
        """See PassMemory."""
        length = int.from_bytes(os.pread(self._fd, WORD_BYTES, 0), "little")
        return os.pread(self._fd, length, WORD_BYTES)

    def clear(self) -> None:
        """See PassMemory."""
        os.ftruncate(self._fd, 0)
