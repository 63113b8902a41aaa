"""Directories whose names survive a power loss.

Any number of processes make and remove the same directories at once, and none waits for another:

    D is found with something in it   its name is on disk: who put that there saw to it before
    D is found empty                  its maker may still be at it, or dead: sync its name
    D is removed after it was opened  no name can be made in it: begin again
"""

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

_OPEN = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
PARENT_LINKS = 2  # Of a directory without others; where directories are not counted it has fewer.
HOLLOW_STEPS_MAX = 1000  # Of one removal. A killed writer leaves some tens of directories.


def make_directory(directory: Path, mode: int = 0o777) -> None:
    """Make a directory, and what it lies in; sync the directory that each new name is in.

    `mode` is for each that is made, less the umask. Raises OSError; FileExistsError or
    NotADirectoryError if a file is in the way.
    """
    if directory.is_dir():
        if _first_below(directory) is None:
            with suppress(PermissionError):  # Whoever has made it there may read where it is.
                sync_directory(directory.parent)
        return
    make_directory(directory.parent, mode)
    directory.mkdir(exist_ok=True, mode=mode)
    sync_directory(directory.parent)


def open_made(root: Path, directory: Path, mode: int, entry: str = "") -> int:
    """Open a directory at or below `root`, which exists; make it first, as `make_directory` does.

    `entry` may be in the directory: to look for it is quicker than to read a large directory. Each
    name on the way is on disk. The caller closes the descriptor. Raises FileNotFoundError when
    somebody removes one of the directories meanwhile; FileExistsError or NotADirectoryError if a
    file is in the way.
    """
    fd = os.open(root, _OPEN)
    names = directory.relative_to(root).parts
    for number, name in enumerate(names, 1):
        above = fd
        try:
            fd = _open_or_make(name, above, mode, entry if number == len(names) else "")
        finally:
            os.close(above)
    return fd


def remove_empty(directory: Path, root: Path) -> None:
    """Remove a directory, and those above it that become empty; sync the first that stays."""
    while directory != root:
        try:
            directory.rmdir()
        except FileNotFoundError:
            pass
        except OSError:  # Not empty, or a link that the operator made.
            break
        directory = directory.parent
    while not _is_synced(directory):
        directory = directory.parent  # It was empty, too, and has gone.


def is_removed_if_hollow(directory: Path) -> bool:
    """Remove a directory that has no file at any depth; whether it is gone."""
    if directory.is_symlink():
        return False
    at = directory
    for _ in range(HOLLOW_STEPS_MAX):
        below = _first_below(at)
        if below is not None:
            if not below.is_dir(follow_symlinks=False):
                return False
            at /= below.name
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


def _open_or_make(name: str, above: int, mode: int, entry: str) -> int:
    try:
        fd = os.open(name, _OPEN, dir_fd=above)
    except FileNotFoundError:
        _make(name, above, mode)
        fd = os.open(name, _OPEN, dir_fd=above)
    try:
        if not _has_something(fd, entry):
            os.fsync(above)
    except OSError:
        os.close(fd)
        raise
    return fd


def _make(name: str, above: int, mode: int) -> None:
    """Make a directory, or find that another writer has just done so."""
    try:
        os.mkdir(name, mode, dir_fd=above)
    except FileExistsError:
        if stat.S_ISLNK(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):
            raise  # It leads nowhere.


def _is_synced(directory: Path) -> bool:
    try:
        sync_directory(directory)
    except FileNotFoundError:
        return False
    return True


def _has_something(fd: int, entry: str) -> bool:
    if os.fstat(fd).st_nlink > PARENT_LINKS:
        return True
    if entry:
        with suppress(FileNotFoundError):
            os.stat(entry, dir_fd=fd, follow_symlinks=False)
            return True
    with os.scandir(fd) as entries:
        return next(entries, None) is not None


def _first_below(directory: Path) -> os.DirEntry[str] | None:
    """Something in a directory; None: it is empty, or others have just removed it."""
    try:
        with os.scandir(directory) as entries:
            return next(entries, None)
    except FileNotFoundError:
        return None


def _is_removed(directory: Path) -> bool:
    """Remove an empty directory; False: somebody has just made something in it."""
    try:
        directory.rmdir()
    except FileNotFoundError:
        pass
    except OSError as reason:
        if reason.errno != errno.ENOTEMPTY:
            raise
        return False
    return True
