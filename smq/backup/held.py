"""A snapshot's folder whose owner may change it while it is restored.

Whoever opens by name what was looked at before gets another file: a link to one of the restorer's
own, or a pipe that nobody writes. So the folder is opened once, and each file below that
descriptor, a directory at a time: no link is followed, nothing is waited for, and what was opened
is looked at.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from errno import ELOOP, ENOTDIR, ENXIO
from pathlib import Path
from typing import Self

from smq.backup.files import NO_LINK, sync

_OPENED = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_ANOTHER_KIND = (ELOOP, ENOTDIR, ENXIO)  # A link, one in place of a directory, a socket.


class NotWhole(Exception):
    """The folder is not a complete snapshot; the text says why."""


class HeldFolder:
    """The folder at a path, whatever gets its name later. Its files are named by whole paths."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._fd = os.open(path, _DIRECTORY)
        except (FileNotFoundError, NotADirectoryError):
            raise NotWhole(f"there is no directory {path}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def open(self, path: Path) -> int:
        """A descriptor of a regular file. Raises NotWhole for anything else, OSError."""
        with self._above(path) as above:
            fd = os.open(path.name, _OPENED, dir_fd=above)
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                os.close(fd)
                raise self.refused(path)
            return fd

    def read(self, path: Path, bytes_max: int) -> bytes:
        """What a file has. Raises as open(), NotWhole also if it has more."""
        with os.fdopen(self.open(path), "rb") as file:
            content = file.read(bytes_max + 1)
        if len(content) > bytes_max:
            raise self.unlike(path, f"has over {bytes_max} bytes")
        return content

    def link(self, path: Path, target: Path) -> bool:
        """Hard-link a file and sync its content. False if the target is on another file system, or
        if another user may write to the file, now or later: it is its owner's, whatever its name.

        Raises NotWhole, OSError.
        """
        with self._above(path) as above:
            if not _is_ours(os.stat(path.name, dir_fd=above, follow_symlinks=False)):
                return False
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                os.link(path.name, target, src_dir_fd=above, follow_symlinks=False)
            except OSError as reason:
                if reason.errno not in NO_LINK:
                    raise
                return False
        if not _is_ours(target.lstat()):  # Another file had got the name.
            target.unlink()
            return False
        sync(target)
        return True

    def refused(self, path: Path) -> NotWhole:
        """The error that refuses what is at a path."""
        return self.unlike(path, "is neither a file nor a directory")

    def unlike(self, path: Path, what: str) -> NotWhole:
        """As refused(), for what else a snapshot never has."""
        return NotWhole(
            f"{path} {what}: {self.path} is not as `smq snapshot` made it, and is not restored"
        )

    @contextmanager
    def _above(self, path: Path) -> Iterator[int]:
        """The directory that a file is in."""
        *names, _ = path.absolute().relative_to(self.path.absolute()).parts
        with ExitStack() as opened:
            above = self._fd
            try:
                for name in names:
                    above = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
                    opened.callback(os.close, above)
                yield above
            except OSError as reason:
                if reason.errno in _ANOTHER_KIND:
                    raise self.refused(path) from None
                raise


def _is_ours(status: os.stat_result) -> bool:
    mode = status.st_mode
    is_closed = not mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISREG(mode) and status.st_uid == os.geteuid() and is_closed
