"""The disk as the write-ahead log sees it: few calls, each of which can be traced or fail."""

import ctypes
import errno
import mmap
import os
from functools import cache
from pathlib import Path
from typing import Protocol

import numpy as np

from smq.log.files.pieces import by_pieces

PAGE_BYTES = 4096  # Of the page cache. Some systems' are larger, and are multiples.
PIECE_BYTES = 64 * 1024  # Per step of a long file: it stays in the CPU's caches.
AHEAD_BYTES = 128 * 1024  # Linux reads no more ahead than its window at a time: it has this much.
SYNC_FILE_RANGE_WRITE = 2  # From <fcntl.h>, as the next ones.
SYNC_FILE_RANGE_WRITE_AND_WAIT = 7
FALLOC_FL_ZERO_RANGE = 0x10
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class Disk(Protocol):
    """The file system's functions that the log uses. Every method raises OSError.

    writes_plainly   write() is no more than pwrite: kernels may call that by themselves
    """

    writes_plainly: bool

    def make_directory(self, path: Path) -> None:
        """A directory and its parents, durably; it may be there already."""

    def open(self, path: Path) -> int:
        """A descriptor to read and write an existing file."""

    def create(self, path: Path, size: int) -> int:
        """A new file whose blocks are allocated."""

    def fill(self, path: Path, at: int, size: int) -> None:
        """Write zeros: a sync of blocks written before is far cheaper than one that marks them."""

    def close(self, fd: int) -> None:
        """Close a descriptor."""

    def write(self, fd: int, data: memoryview, at: int) -> None:
        """Write all of `data` at a place in the file."""

    def read(self, fd: int, length: int, at: int) -> np.ndarray:
        """Up to `length` bytes, as a new uint8 array."""

    def read_cached(
        self, fd: int, length: int, at: int, out: np.ndarray | None = None
    ) -> np.ndarray | None:
        """As read(), without waiting for the disk; None: not all of it is cached.

        `out` (uint8) is memory to read into, if it is long enough.
        """

    def cached_pages(self, fd: int, length: int) -> np.ndarray | None:
        """Of each page of a file's first bytes (bool), whether the page cache has it; None: the
        system does not tell."""

    def will_read(self, fd: int, length: int, at: int) -> None:
        """Have a part of a file brought into the page cache, before it is read. A long one takes
        about as long as reading it."""

    def begin_write_back(self, fd: int, length: int) -> None:
        """Have a file's first bytes written to the disk; returns before they are."""

    def write_back(self, fd: int, length: int) -> None:
        """As begin_write_back(), and wait for it.

        Raises OSError if any write-back of the file has failed since `fd` was opened; once for each
        descriptor. Then its pages may be all there is of its bytes.
        """

    def drop(self, fd: int, length: int) -> None:
        """Take a file's first bytes out of the page cache, but for those that are not written."""

    def read_past_cache(self, path: Path, out: np.ndarray, at: int) -> int:
        """Read a file from `at` on into `out` (uint8), without the page cache; returns how many
        bytes there are. Both addresses and the length are multiples of a page."""

    def block(self, length: int) -> np.ndarray:
        """Memory (uint8) that read_past_cache() can read into."""

    def clear(self, fd: int, length: int) -> None:
        """Have a file's first bytes read as zeros. Then the file system reads nothing from the disk
        when a part of a page is written. Its blocks stay, unless the disk is full (FULL): XFS frees
        them first, and another program may take them."""

    def map(self, fd: int, length: int) -> np.ndarray:
        """A private uint8 view of a file's first bytes: reading them once costs no copy.

        Raises OSError if any of them cannot be read, which later would be a SIGBUS.
        """

    def sync(self, fd: int) -> None:
        """Return when the file's data is on disk (fdatasync)."""

    def replace(self, path: Path, data: bytes | memoryview) -> None:
        """Write a file whole: temporary, synced, renamed, the directory synced."""

    def rename(self, path: Path, target: Path) -> None:
        """Rename, and sync the directory."""

    def remove(self, path: Path) -> None:
        """Delete a file; durable after the next sync of the directory."""

    def is_shared(self, path: Path) -> bool:
        """Whether the file has another name: a snapshot shares it, and it must not be
        overwritten."""

    def space(self, path: Path) -> tuple[int, int]:
        """How many bytes the file system has free for us, and how many it has in all."""

    def sync_directory(self, path: Path) -> None:
        """Return when a directory's created, renamed and removed entries are durable."""


def told(error: OSError) -> str:
    """The operating system's error, and advice if there is any."""
    return f"{error} (free some space)" if error.errno in FULL else str(error)


def read_now(fd: int, length: int, at: int, out: np.ndarray | None = None) -> np.ndarray | None:
    """Bytes of a file from the page cache; None if it lacks any of them, or cannot tell.

    They lie in `out` if that is long enough: fresh memory costs more than the read.
    """
    if out is None or length > len(out):
        out = np.empty(length, np.uint8)
    data = out[:length]
    try:
        got = os.preadv(fd, [data.data], at, os.RWF_NOWAIT)
    except OSError as error:
        if error.errno in {errno.EAGAIN, errno.EOPNOTSUPP}:
            return None
        raise
    return data if got == length else None


def cached_pages(fd: int, length: int) -> np.ndarray | None:
    """Of each page of a file's first bytes (bool), whether the page cache has it; None: the system
    does not tell."""
    try:
        mapped = mmap.mmap(fd, length, mmap.MAP_SHARED, mmap.PROT_READ)
    except (OSError, ValueError):  # Not every file system maps; or it has become shorter.
        return None
    with mapped as mapping:
        pages = np.zeros(-(-length // mmap.PAGESIZE), np.uint8)
        at = np.frombuffer(mapping, np.uint8).ctypes.data
        failed = _libc().mincore(_pointer(at), ctypes.c_size_t(length), _pointer(pages.ctypes.data))
    if failed:
        return None
    cached = np.repeat((pages & 1).astype(np.bool_), mmap.PAGESIZE // PAGE_BYTES)
    return cached[: -(-length // PAGE_BYTES)]


def read_through(fd: int, length: int) -> None:
    """Bring a file into the page cache. Raises OSError if some of it cannot be read."""
    scratch = memoryview(bytearray(PIECE_BYTES))
    for piece in by_pieces(length, PIECE_BYTES):
        if os.preadv(fd, [scratch], piece.start) < piece.stop - piece.start:
            raise OSError(errno.EIO, "the file is shorter than what is to be mapped of it")


_i64, _pointer = ctypes.c_int64, ctypes.c_void_p


@cache
def _libc() -> ctypes.CDLL:  # On first use: the SDK imports this file on Windows, too.
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int) -> None:
    """Raise OSError if a function of the C library has failed."""
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


class OsDisk:
    """The real one."""

    writes_plainly = True

    def make_directory(self, path: Path) -> None:
        """See Disk."""
        for each in (*reversed(path.parents), path):
            if not each.exists():
                each.mkdir(mode=0o700, exist_ok=True)
                self.sync_directory(each.parent)

    def open(self, path: Path) -> int:
        """See Disk."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def create(self, path: Path, size: int) -> int:
        """See Disk."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, size)
        except OSError:
            os.close(fd)
            path.unlink(missing_ok=True)
            raise
        return fd

    def fill(self, path: Path, at: int, size: int) -> None:
        """See Disk."""
        fd = self.open(path)
        try:
            self.write(fd, memoryview(bytes(size)), at)
        finally:
            os.close(fd)

    def close(self, fd: int) -> None:
        """See Disk."""
        os.close(fd)

    def write(self, fd: int, data: memoryview, at: int) -> None:
        """See Disk."""
        written = os.pwrite(fd, data, at)
        while written < len(data):
            written += os.pwrite(fd, data[written:], at + written)

    def read(self, fd: int, length: int, at: int) -> np.ndarray:
        """See Disk. Writable, as all memory of the log: kernels are compiled for one kind."""
        data = np.empty(length, np.uint8)
        view, got = data.data, 0
        while got < length:
            count = os.preadv(fd, [view[got:]], at + got)
            if count == 0:
                break
            got += count
        return data[:got]

    def read_cached(
        self, fd: int, length: int, at: int, out: np.ndarray | None = None
    ) -> np.ndarray | None:
        """See Disk."""
        return read_now(fd, length, at, out)

    def cached_pages(self, fd: int, length: int) -> np.ndarray | None:
        """See Disk."""
        return cached_pages(fd, length)

    def will_read(self, fd: int, length: int, at: int) -> None:
        """See Disk."""
        for piece in by_pieces(length, AHEAD_BYTES):
            size = piece.stop - piece.start
            os.posix_fadvise(fd, at + piece.start, size, os.POSIX_FADV_WILLNEED)

    def begin_write_back(self, fd: int, length: int) -> None:
        """See Disk."""
        _check(_libc().sync_file_range(fd, _i64(0), _i64(length), SYNC_FILE_RANGE_WRITE))

    def write_back(self, fd: int, length: int) -> None:
        """See Disk."""
        _check(_libc().sync_file_range(fd, _i64(0), _i64(length), SYNC_FILE_RANGE_WRITE_AND_WAIT))

    def drop(self, fd: int, length: int) -> None:
        """See Disk."""
        os.posix_fadvise(fd, 0, length, os.POSIX_FADV_DONTNEED)

    def read_past_cache(self, path: Path, out: np.ndarray, at: int) -> int:
        """See Disk."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
        try:
            return os.preadv(fd, [out.data], at)
        finally:
            os.close(fd)

    def block(self, length: int) -> np.ndarray:
        """See Disk."""
        return np.frombuffer(mmap.mmap(-1, length), np.uint8)

    def clear(self, fd: int, length: int) -> None:
        """See Disk."""
        _check(_libc().fallocate(fd, FALLOC_FL_ZERO_RANGE, _i64(0), _i64(length)))

    def map(self, fd: int, length: int) -> np.ndarray:
        """See Disk."""
        read_through(fd, length)
        mapping = mmap.mmap(fd, length, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
        return np.frombuffer(mapping, np.uint8)

    def sync(self, fd: int) -> None:
        """See Disk."""
        os.fdatasync(fd)

    def replace(self, path: Path, data: bytes | memoryview) -> None:
        """See Disk."""
        temporary = path.with_name(path.name + ".new")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            for piece in by_pieces(len(data), PIECE_BYTES):
                self.write(fd, memoryview(data)[piece], piece.start)
            os.fsync(fd)
        finally:
            os.close(fd)
        self.rename(temporary, path)

    def rename(self, path: Path, target: Path) -> None:
        """See Disk."""
        path.rename(target)
        self.sync_directory(target.parent)

    def remove(self, path: Path) -> None:
        """See Disk."""
        path.unlink(missing_ok=True)

    def is_shared(self, path: Path) -> bool:
        """See Disk."""
        return path.stat().st_nlink > 1

    def space(self, path: Path) -> tuple[int, int]:
        """See Disk."""
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize

    def sync_directory(self, path: Path) -> None:
        """See Disk."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
