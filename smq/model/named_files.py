"""Reads a whole file that an operator names. None holds its reader: a pipe is refused, which may
have no writer, a device too, and a file without end is read as far as its bound.

What a shell or a container passes on, as /dev/stdin or `<(command)`, may be a pipe where one
command reads it once, and somebody waits for that command.
"""

import os
import stat
import sys
from errno import EFBIG, EINVAL

PIECE_BYTES = 1024 * 1024  # So much memory is taken for what may be short.
NAMED_BYTES_MAX = 1024 * 1024  # Keys, certificates, passwords, settings: mostly some kilobytes.
_PASSED_ON = ("/dev/stdin", "/dev/fd/")
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


def read_named(
    path: str | os.PathLike[str],
    bytes_max: int = NAMED_BYTES_MAX,
    *,
    may_be_passed_on: bool = False,
) -> bytes:
    """What a file has. Raises OSError, which is UnusableNamedFile for what is no file or longer."""
    waits = may_be_passed_on and os.fspath(path).startswith(_PASSED_ON)
    fd = os.open(path, _WAITS if waits else _NEVER_WAITS)
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            raise UnusableNamedFile(EINVAL, "Is a directory")
        if not waits and not stat.S_ISREG(mode):
            raise UnusableNamedFile(EINVAL, "it is no file, but a pipe or a device")
        data = bytearray()
        while piece := os.read(fd, min(PIECE_BYTES, bytes_max + 1 - len(data))):
            data += piece
    finally:
        os.close(fd)
    if len(data) > bytes_max:
        raise UnusableNamedFile(EFBIG, f"it has over {bytes_max} bytes")
    return bytes(data)
