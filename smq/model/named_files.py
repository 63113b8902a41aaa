"""Reads a whole file that an operator names. None holds its reader: a pipe is refused, which may
have no writer, a device too, and a file without end is read as far as its bound.

What a shell or a container passes on, as /dev/stdin or `<(command)`, may be a pipe where somebody
waits for the command that reads it. A pipe gives its bytes once, so they are kept for who asks
again for the same purpose: to such a reader it would be an empty file. Another purpose is refused:
a password would else be the text of all settings.
"""

import os
import stat
import sys
from errno import EFBIG, EINVAL

PIECE_BYTES = 1024 * 1024  # So much memory is taken for what may be short.
NAMED_BYTES_MAX = 1024 * 1024  # Keys, certificates, passwords, settings: mostly some kilobytes.
_PASSED_ON = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
# By a pipe that was passed on, its device and inode: what it was read as, and its bytes.
_given: dict[tuple[int, int], tuple[str, bytes]] = {}
if sys.platform == "win32":
    _NEVER_WAITS = _WAITS = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOINHERIT", 0)
else:
    _WAITS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY
    _NEVER_WAITS = _WAITS | os.O_NONBLOCK


class UnusableNamedFile(OSError):
    """A file of another kind, or too long, which its sentence says."""

    def __str__(self) -> str:
        """The sentence, without a number."""
        return str(self.strerror)


def is_passed_on(path: str | os.PathLike[str]) -> bool:
    """Whether a path leads to what this process alone has: its stdin, or another descriptor."""
    return os.fspath(path).startswith(_PASSED_ON)


def read_named(
    path: str | os.PathLike[str],
    bytes_max: int = NAMED_BYTES_MAX,
    *,
    passed_on_as: str = "",
) -> bytes:
    """What a file has. `passed_on_as`: what for, if it may also be a pipe that a shell passes on.

    Raises OSError, which is UnusableNamedFile for what is no file or longer.
    """
    waits = bool(passed_on_as) and is_passed_on(path)
    fd = os.open(path, _WAITS if waits else _NEVER_WAITS)
    try:
        status = os.fstat(fd)
        if stat.S_ISDIR(status.st_mode):
            raise UnusableNamedFile(EINVAL, "Is a directory")
        if stat.S_ISREG(status.st_mode):
            return _whole(fd, bytes_max)
        if not waits:
            raise UnusableNamedFile(EINVAL, "it is no file, but a pipe or a device")
        pipe = status.st_dev, status.st_ino
        if pipe not in _given:
            _given[pipe] = passed_on_as, _whole(fd, bytes_max)
        purpose, data = _given[pipe]
        if purpose != passed_on_as:
            raise UnusableNamedFile(EINVAL, f"it gives its bytes once, and was read as {purpose}")
        return data
    finally:
        os.close(fd)


def _whole(fd: int, bytes_max: int) -> bytes:
    data = bytearray()
    while piece := os.read(fd, min(PIECE_BYTES, bytes_max + 1 - len(data))):
        data += piece
    if len(data) > bytes_max:
        raise UnusableNamedFile(EFBIG, f"it has over {bytes_max} bytes")
    return bytes(data)
