"""The catalog in shared memory: two slots and a version word.

    0        64                        4096         4096 + half          4096 + 2 * half
    +--------+-------------------------+------------+--------------------+
    |version | bytes of slot 0, slot 1 | slot 0     | slot 1             |
    +--------+-------------------------+------------+--------------------+

The coordinator, its only writer, fills the slot that is not current and then releases the version;
slot = version % 2. A reader copies the slot and checks the version again: if it has moved, the
writer may already be filling the copied slot, and the reader starts over.
"""

import mmap
import os

import numpy as np

from shm.kernels.base.publish import read_version, write_version
from shm.segment import seal_against_writers

HEADER_BYTES = 4096
CATALOG_BYTES_MAX = 64 * 1024 * 1024  # Some 100,000 topics. Pages never touched cost nothing.


class CatalogBlock:
    """A published value of bytes with a version. Survives fork; one process writes.

    Users and access rules are published likewise, in a block of their own, which programs that
    attach never get.

    A process that is handed `fd` can only read it.

    words   int64, the version first; what a kernel takes
    """

    def __init__(self, mapping: mmap.mmap, fd: int) -> None:
        self.fd = fd
        self._half = (len(mapping) - HEADER_BYTES) // 2
        self._view = memoryview(mapping)
        self.words = np.frombuffer(mapping, np.int64, HEADER_BYTES // 8)
        self._glance = self._view[:8].cast("q")

    @classmethod
    def create(
        cls, bytes_max: int = CATALOG_BYTES_MAX, name: str = "smq-catalog"
    ) -> "CatalogBlock":
        """An empty block at version 0, shared with the children forked from now on."""
        fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, HEADER_BYTES + 2 * bytes_max)
        block = cls(mmap.mmap(fd, HEADER_BYTES + 2 * bytes_max), fd)
        seal_against_writers(fd)
        return block

    @classmethod
    def attach(cls, fd: int) -> "CatalogBlock":
        """Another process's block, read-only. Raises ValueError if it is no such block."""
        size = os.fstat(fd).st_size
        if size <= HEADER_BYTES or size % 2:
            raise ValueError("this descriptor is not a catalog")
        return cls(mmap.mmap(fd, size, prot=mmap.PROT_READ), fd)

    def version(self) -> int:
        """The version published last; 0: nothing yet."""
        return int(read_version(self.words))

    def has_moved(self, version: int) -> bool:
        """Whether the version has moved on from this one: cheap enough for every turn of a loop."""
        return self._glance[0] != version

    def publish(self, value: bytes) -> int:
        """Make `value` the current one; returns its version."""
        assert len(value) <= self._half, "the catalog has outgrown its memory"
        version = self.version() + 1
        slot = version % 2
        start = HEADER_BYTES + slot * self._half
        self._view[start : start + len(value)] = value
        self.words[8 + slot] = len(value)
        write_version(self.words, version)
        return version

    def read(self) -> tuple[int, bytes]:
        """The current version and its value."""
        while True:
            version = self.version()
            slot = version % 2
            start = HEADER_BYTES + slot * self._half
            value = bytes(self._view[start : start + int(self.words[8 + slot])])
            if self.version() == version:
                return version, value
