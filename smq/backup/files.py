"""Writes files of a snapshot: hard links within one file system, else copies.

Links suit files that never change in place. New files are durable once their directory is
(`sync_directories`). What may be another user's is opened and linked by `smq.backup.held`.

What is copied leaves no pages behind in the page cache: neither those of the copy, nor the source's
if it had none before. Those that it had are the broker's, and may be the only copy of their bytes
(ADR the-page-cache-is-bounded).
"""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from smq.log.files.disk import OsDisk, cached_pages

PIECE_BYTES = 8 * 1024 * 1024
Open = Callable[[Path], int]  # A descriptor for reading: open_named(), or HeldFolder.open().
NO_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.EACCES)
_NO_RANGE = (errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


def link(source: Path, target: Path) -> bool:
    """Hard-link a file and sync its content; False if the paths are on two file systems.

    Raises OSError.
    """
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        os.link(source, target)
    except OSError as reason:
        if reason.errno not in NO_LINK:
            raise
        return False
    sync(target)
    return True


def open_named(path: Path) -> int:
    """Whatever has the name now. Raises OSError."""
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def copy(
    source: Path,
    target: Path,
    length: int | None = None,
    open_source: Open = open_named,
    judge: Callable[[int, int], None] | None = None,
) -> None:
    """Copy a file's first bytes, by default all; zeros fill the copy up to the file's size.

    Blocks are shared where the file system can. `judge` may refuse the copy, of which it gets a
    descriptor and the size. Raises OSError, and as `open_source` and `judge`.
    """
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with opened(source, length, open_source) as fd:
        out = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(fd).st_size
            _copy_bytes(fd, out, size if length is None else min(length, size))
            os.ftruncate(out, size)
            if judge is not None:
                judge(out, size)  # While the page cache has it.
            os.fsync(out)
            OsDisk().drop(out, size)
        finally:
            os.close(out)


@contextmanager
def opened(
    source: Path, length: int | None = None, open_source: Open = open_named
) -> Iterator[int]:
    """A descriptor of a file whose first bytes, by default all, are read. Its pages then leave the
    page cache if it had none of them before, and nobody writes to it: all of it is read. Raises
    OSError, and as `open_source`."""
    fd = open_source(source)
    try:
        size = os.fstat(fd).st_size
        is_ours = (length is None or length >= size) and not is_cached(fd, size)
        yield fd
        if is_ours:
            OsDisk().drop(fd, size)
    finally:
        os.close(fd)


def is_cached(fd: int, size: int) -> bool:
    """Whether the page cache has any page of a file; also if the system does not tell it."""
    if not size:
        return False
    pages = cached_pages(fd, size)
    return pages is None or bool(pages.any())


def pieces(fd: int) -> Iterator[bytes]:
    """The bytes that a file has at first. Raises OSError, also if it becomes shorter."""
    at, size = 0, os.fstat(fd).st_size
    while at < size:
        piece = os.pread(fd, min(PIECE_BYTES, size - at), at)
        if not piece:
            raise OSError(errno.EIO, "the file has become shorter")
        at += len(piece)
        yield piece


def _copy_bytes(fd: int, out: int, length: int) -> None:
    at, shares = 0, True
    while at < length:
        size = min(PIECE_BYTES, length - at)
        try:
            count = os.copy_file_range(fd, out, size, at, at) if shares else 0
        except OSError as reason:
            if reason.errno not in _NO_RANGE:
                raise
            count = 0
        if count == 0:  # Some file systems report an unsupported operation this way.
            shares = False
            piece = os.pread(fd, size, at)
            if not piece:
                raise OSError(errno.EIO, "the file has become shorter")
            count = os.pwrite(out, piece, at)
        at += count


def write(path: Path, content: bytes | memoryview, mode: int = 0o666) -> None:
    """Create a file with synced content; the umask takes away from `mode`. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(fd, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
        OsDisk().drop(file.fileno(), len(content))


def sync_directories(root: Path) -> None:
    """Sync `root` and all directories below, so that names are durable. Raises OSError."""
    for directory, _, _ in os.walk(root):
        sync(Path(directory))
    sync(root.parent)


def sync(path: Path) -> None:
    """Sync a file or a directory. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
