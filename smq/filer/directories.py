"""Directories whose names survive a power loss."""

import os
from pathlib import Path


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


def sync_directory(directory: Path) -> None:
    """Return when the names in a directory are on disk. Raises OSError."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
