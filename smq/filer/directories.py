"""Directories whose names survive a power loss."""

import errno
import os
import sys
from pathlib import Path

if sys.platform != "win32":  # Programs there import this file, and use filers over HTTP.
    import fcntl

_OPEN = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
HOLLOW_STEPS_MAX = 1000  # Of one removal. A killed writer leaves some tens of directories.


def make_directory(directory: Path, mode: int = 0o777) -> None:
    """Make a directory, and what it lies in; sync the directory that each new name is in.

    `mode` is for each that is made, less the umask. Raises OSError; FileExistsError or
    NotADirectoryError if a file is in the way.
    """
    if directory.is_dir():
        return
    make_directory(directory.parent, mode)
    directory.mkdir(exist_ok=True, mode=mode)
    sync_directory(directory.parent)


def open_made(root: Path, directory: Path, mode: int) -> int:
    """Open a directory at or below `root`, which exists; make it first, as `make_directory` does.

    Any number of processes do this at once. Each name is made and synced under the lock of the
    directory that it is in, so who finds a name finds it on disk, and who makes many names keeps
    nobody waiting who uses others. The caller closes the descriptor. Raises FileNotFoundError when
    somebody removes one of the directories meanwhile.
    """
    fd = os.open(root, _OPEN)
    for name in directory.relative_to(root).parts:
        above = fd
        try:
            fcntl.flock(above, fcntl.LOCK_EX)
            fd = _open_or_make(name, above, mode)
        finally:
            os.close(above)
    return fd


def is_at(path: Path, fd: int) -> bool:
    """Whether a path is still that of an open directory."""
    try:
        return os.path.samestat(path.stat(), os.fstat(fd))
    except FileNotFoundError:
        return False


def is_removed_if_hollow(directory: Path) -> bool:
    """Remove a directory that has no file at any depth; whether it is gone.

    The caller sees to it that nobody adds a file or removes a directory below it meanwhile. Others
    may make directories.
    """
    if directory.is_symlink():
        return False
    at = directory
    for _ in range(HOLLOW_STEPS_MAX):
        with os.scandir(at) as entries:
            first = next(entries, None)
        if first is not None:
            if not first.is_dir(follow_symlinks=False):
                return False
            at /= first.name
        elif _is_removed(at):
            if at == directory:
                return True
            at = at.parent
    return False


def sync_directory(directory: Path) -> None:
    """Return when the names in a directory are on disk. Raises OSError."""
    fd = os.open(directory, _OPEN)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _open_or_make(name: str, above: int, mode: int) -> int:
    try:
        return os.open(name, _OPEN, dir_fd=above)
    except FileNotFoundError:
        os.mkdir(name, mode, dir_fd=above)
        os.fsync(above)
        return os.open(name, _OPEN, dir_fd=above)


def _is_removed(directory: Path) -> bool:
    """Remove an empty directory; False: somebody has just made another one in it."""
    try:
        directory.rmdir()
    except OSError as reason:
        if reason.errno != errno.ENOTEMPTY:
            raise
        return False
    return True
