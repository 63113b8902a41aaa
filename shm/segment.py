"""The memory of a log: creates it, maps it, gives its parts as NumPy arrays.

A log's memory is one memfd. The supervisor creates it and keeps it mapped, so that it outlives any
shard; shards are forks of the supervisor and inherit the writable mapping. Then the memfd is sealed
(SHRINK, GROW, FUTURE_WRITE): a process that receives the descriptor can only map it read-only, and
cannot truncate it.
"""

import ctypes
import mmap
import os
import sys
from contextlib import suppress
from functools import cache

import numpy as np

from shm.kernels.base.words import (
    HEADER_BYTES,
    PARTITION_COLUMNS,
    PARTITION_ROW_BYTES,
    SPACE_UNLIMITED,
    WORD_INDEX_CAPACITY,
    WORD_LOG,
    WORD_MAGIC,
    WORD_PARTITION_CAPACITY,
    WORD_RING_BYTES,
    WORD_SEGMENT_BYTES,
    WORD_SPACE_END,
)
from shm.layout import LAYOUT_MAGIC, PAGE_BYTES, Layout, layout_for

if sys.platform != "win32":  # Wire-only programs import this file too.
    import fcntl

_F_SEAL_FUTURE_WRITE = 0x10
_MAP_NORESERVE = 0x4000  # Of Linux; Python has the name from 3.13 on.
_MADV_POPULATE_WRITE = 23  # Linux 5.14: make the pages present without changing them.


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def seal_against_writers(fd: int) -> None:
    """Seal a memfd that we have mapped: others can only read it, neither write nor truncate it."""
    seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | _F_SEAL_FUTURE_WRITE
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL)


def sparse_memory(size: int) -> mmap.mmap:
    """This process's own memory, whose pages the system provides one by one, when they are first
    written. They are not reserved: else the system refuses to fork a process with much of it."""
    assert sys.platform == "linux"
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    memory = mmap.mmap(-1, size, flags=flags)
    with suppress(OSError):  # The system has no huge pages.
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return memory


class LogMemory:
    """Header, partition table, index and ring of one log, as NumPy arrays over one mapping.

    memory      uint8, everything; what kernels take
    words       the header's int64 words, as a memoryview: reading one gives a Python int, fast
    partitions  int64 [partition_capacity, 24] view of the partition table
    ring        uint8 view of the ring
    """

    def __init__(self, buffer: memoryview, layout: Layout) -> None:
        assert len(buffer) >= layout.total_bytes
        self.layout = layout
        self.memory = np.frombuffer(buffer, np.uint8, layout.total_bytes)
        self.words = buffer[:HEADER_BYTES].cast("q")
        table = self.memory[HEADER_BYTES : layout.index_at]
        assert len(table) == layout.partition_capacity * PARTITION_ROW_BYTES
        self.partitions = table.view(np.int64).reshape(-1, PARTITION_COLUMNS)
        self.ring = self.memory[layout.ring_at :]
        self.ring_view = buffer[layout.ring_at : layout.total_bytes]
        self.fd = -1
        self._mapping: mmap.mmap | None = None

    @classmethod
    def create(
        cls, log: int, ring_bytes: int, segment_bytes: int, partition_capacity: int
    ) -> "LogMemory":
        """New zeroed memory in a sealed memfd."""
        layout = layout_for(ring_bytes, segment_bytes, partition_capacity)
        fd = os.memfd_create(f"smq-log-{log}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, layout.total_bytes)
        mapping = mmap.mmap(fd, layout.total_bytes)
        seal_against_writers(fd)
        self = cls(memoryview(mapping), layout)
        self.fd, self._mapping = fd, mapping
        self.initialize(log, segment_bytes)
        return self

    @classmethod
    def in_process(
        cls, log: int, ring_bytes: int, segment_bytes: int, partition_capacity: int
    ) -> "LogMemory":
        """New memory that no other process can see, for tests, tools and the simulator."""
        layout = layout_for(ring_bytes, segment_bytes, partition_capacity)
        self = cls(memoryview(mmap.mmap(-1, layout.total_bytes)), layout)
        self.initialize(log, segment_bytes)
        return self

    def initialize(self, log: int, segment_bytes: int) -> None:
        """Write the facts that never change."""
        self.words[WORD_RING_BYTES] = self.layout.ring_bytes
        self.words[WORD_INDEX_CAPACITY] = self.layout.index_capacity
        self.words[WORD_PARTITION_CAPACITY] = self.layout.partition_capacity
        self.words[WORD_LOG] = log
        self.words[WORD_SEGMENT_BYTES] = segment_bytes
        self.words[WORD_SPACE_END] = SPACE_UNLIMITED
        self.words[WORD_MAGIC] = LAYOUT_MAGIC

    @classmethod
    def attach(cls, fd: int) -> "LogMemory":
        """Map another process's log read-only. Raises ValueError if it is no SMQ log."""
        total_bytes = os.fstat(fd).st_size
        if total_bytes < HEADER_BYTES:
            raise ValueError("this descriptor is not the memory of a log")
        mapping = mmap.mmap(fd, total_bytes, prot=mmap.PROT_READ)
        words = np.frombuffer(mapping, np.int64, HEADER_BYTES // 8)
        layout = Layout(
            int(words[WORD_RING_BYTES]),
            int(words[WORD_INDEX_CAPACITY]),
            int(words[WORD_PARTITION_CAPACITY]),
        )
        if int(words[WORD_MAGIC]) != LAYOUT_MAGIC or layout.total_bytes != total_bytes:
            raise ValueError("this descriptor is not the memory of a log of this version")
        self = cls(memoryview(mapping), layout)
        self.fd, self._mapping = fd, mapping
        return self

    def touch(self, start: int, length: int) -> None:
        """Make pages of the ring present ahead of use: a first touch costs microseconds each.

        Unlike mmap.madvise it lets other threads run meanwhile. Raises OSError.
        """
        if self._mapping is None:
            return
        at = self.layout.ring_at + start // PAGE_BYTES * PAGE_BYTES
        length = min(length, self.layout.total_bytes - at)
        address = ctypes.c_void_p(self.memory.ctypes.data + at)
        if _libc().madvise(address, ctypes.c_size_t(length), _MADV_POPULATE_WRITE) != 0:
            raise OSError(ctypes.get_errno(), "madvise")

    def column(self, name: str) -> np.ndarray:
        """One column of the index, all of its slots."""
        at, dtype = self.layout.index_columns()[name]
        return self.memory[at : at + self.layout.index_capacity * dtype.itemsize].view(dtype)
