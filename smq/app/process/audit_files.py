"""The audit log's files: one writer, bounded, each line whole.

    <data>/audit/acts.log       what administrators change, on disk before it is done
    <data>/audit/acts.log.1 …   older ones
    <data>/audit/access.log …   denials, failed acts and logins, synced by nobody

They are two, so that a flood of denials or failures ends older ones and no act. One that an
operator moves away or deletes is made again.

A full disk does not stop the broker: it is said once, and the first line that can be written again
says how many are missing.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

from smq.app.process.clock import wall_ms
from smq.log.files.disk import told
from smq.security.audit import Event, line_of

DIRECTORY, ACTS, ACCESSES = "audit", "acts.log", "access.log"


class FileLimits(NamedTuple):
    """How large a file becomes, and how many are kept."""

    bytes_max: int
    files_max: int


class AuditLog(Protocol):
    """Where lines go: of acts, and of all others, which are accesses."""

    def tell_acts(self, lines: Sequence[str]) -> None:
        """Write lines of acts; returns when they are on disk, or will not be."""

    def tell_accesses(self, lines: Sequence[str]) -> None:
        """Write lines of accesses."""


class _Nowhere:
    def tell_acts(self, lines: Sequence[str]) -> None:
        """See AuditLog."""

    def tell_accesses(self, lines: Sequence[str]) -> None:
        """See AuditLog."""


NOWHERE = _Nowhere()  # There is no audit log.


class AuditFiles:
    """The files in a directory, which is made with the first line."""

    def __init__(self, directory: Path, limits: FileLimits, say: Callable[[str], object]) -> None:
        self._acts = RotatedFile(directory / ACTS, limits, say)
        self._accesses = RotatedFile(directory / ACCESSES, limits, say)

    def tell_acts(self, lines: Sequence[str]) -> None:
        """See AuditLog."""
        self._acts.write(lines)
        self._acts.sync()

    def tell_accesses(self, lines: Sequence[str]) -> None:
        """See AuditLog."""
        self._accesses.write(lines)

    def close(self) -> None:
        """Close the files."""
        self._acts.close()
        self._accesses.close()


class RotatedFile:
    """Lines in a file; with a suffix, 1 the newest, those before it."""

    def __init__(self, path: Path, limits: FileLimits, say: Callable[[str], object]) -> None:
        self._path, self._limits, self._say = path, limits, say
        self._fd, self._size = -1, 0
        self._lost_count = 0

    def write(self, lines: Sequence[str]) -> None:
        """Append lines. Those that cannot be written are counted."""
        try:
            self._open()
            if self._lost_count:
                lost = Event("lost", detail="lines that could not be written")
                self._append((line_of(lost, wall_ms(), self._lost_count) + "\n").encode())
                self._lost_count = 0
        except OSError as reason:
            self._lose(len(lines), reason)
            return
        for number, line in enumerate(lines):
            try:
                self._append((line + "\n").encode())
            except OSError as reason:
                self._lose(len(lines) - number, reason)
                return

    def sync(self) -> None:
        """Wait for the disk."""
        if self._fd < 0:
            return
        try:
            os.fdatasync(self._fd)
        except OSError as reason:
            self._lose(1, reason)

    def _lose(self, count: int, reason: OSError) -> None:
        if not self._lost_count:
            self._say(f"audit: {self._path} cannot be written, and lacks lines: {told(reason)}")
        self._lost_count += count
        self.close()

    def _open(self) -> None:
        """Open the file, unless it is open and nobody has moved it away."""
        if self._fd >= 0 and self._is_there():
            return
        self.close()
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        self._fd = os.open(self._path, flags, 0o600)
        self._size = os.fstat(self._fd).st_size
        for directory in (self._path.parent, self._path.parent.parent):  # Either name may be new.
            _sync(directory)
        if self._size and os.pread(self._fd, 1, self._size - 1) != b"\n":
            self._append(b"\n")  # A death has cut the last line.

    def _is_there(self) -> bool:
        try:
            found = self._path.lstat()
        except OSError:
            return False
        return os.path.samestat(found, os.fstat(self._fd))

    def _append(self, data: bytes) -> None:
        if self._size and self._size + len(data) > self._limits.bytes_max:
            self._rotate()
        written = os.write(self._fd, data)
        if written < len(data):
            with suppress(OSError):
                os.ftruncate(self._fd, self._size)
            raise OSError(f"a write of {len(data)} bytes ended after {written}")
        self._size += written

    def _rotate(self) -> None:
        """Put the file aside, and begin another. Of many at once the oldest go."""
        os.fdatasync(self._fd)
        names = [self._path, *map(self._older, range(1, self._limits.files_max))]
        for name, older in zip(names[-2::-1], names[:0:-1], strict=True):
            with suppress(FileNotFoundError):
                name.replace(older)
        if len(names) == 1:
            self._path.unlink(missing_ok=True)
        number = self._limits.files_max
        while (left := self._older(number)).exists():  # There were to be more files once.
            left.unlink()
            number += 1
        self.close()
        self._open()

    def _older(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def close(self) -> None:
        """Close the file; the next line opens it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _sync(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
