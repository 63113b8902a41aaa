"""The version of a SQLite database, read from its files: opening it with SQLite may change them.

    store.sqlite        the header is in page 1: `user_version` at byte 60, big endian
    store.sqlite-wal    later commits; it may also hold page 1

https://www.sqlite.org/fileformat2.html, sections 1.3 and 4.1. Checksums are not verified: a
frame with the salts of its log was written by the database's owner, at worst in part.
"""

import os
import struct
from io import SEEK_END
from pathlib import Path
from typing import BinaryIO

_PAGE_HEAD = struct.Struct(">16s44xi")  # Magic, user_version.
_WAL_HEAD = struct.Struct(">4x4xI4x8s8x")  # Page bytes, salts.
_WAL_FRAME = struct.Struct(">II8s8x")  # Page, pages after this commit or 0, salts.
_PAGE_BYTES_MIN = 512  # A database has no smaller ones.
_MAGIC = b"SQLite format 3\0"


def stored_version(path: Path) -> int:
    """The `user_version` of the database at `path` as committed last.

    0 if there is none, it is no database, or it cannot be read: opening it reports that.
    """
    try:
        with open(path, "rb", opener=_never_waits) as file:
            version = _version_at(file, 0)
    except OSError:
        return 0
    try:
        with open(f"{path}-wal", "rb", opener=_never_waits) as file:
            return _committed_in(file, version)
    except OSError:
        return version


def _never_waits(path: str, flags: int) -> int:
    """Open what a snapshot's owner may have replaced by a pipe, which has no version."""
    return os.open(path, flags | os.O_NONBLOCK)


def _version_at(file: BinaryIO, at: int) -> int:
    """The version in page 1 at a place of a file; 0 if there is none."""
    file.seek(at)
    page = file.read(_PAGE_HEAD.size)
    magic, version = _PAGE_HEAD.unpack(page) if len(page) == _PAGE_HEAD.size else (b"", 0)
    return int(version) if magic == _MAGIC else 0


def _committed_in(wal: BinaryIO, version: int) -> int:
    """The version of the last commit in the write-ahead log; `version` if it has no page 1."""
    head, size = wal.read(_WAL_HEAD.size), wal.seek(0, SEEK_END)
    if len(head) < _WAL_HEAD.size:
        return version
    page_bytes, salts = _WAL_HEAD.unpack(head)
    if page_bytes < _PAGE_BYTES_MIN:
        return version
    step = _WAL_FRAME.size + page_bytes
    written = version
    for at in range(_WAL_HEAD.size, size - step + 1, step):
        wal.seek(at)
        page, pages_after, frame_salts = _WAL_FRAME.unpack(wal.read(_WAL_FRAME.size))
        if frame_salts != salts or not page:  # Left from before SQLite restarted the log; a hole.
            break
        if page == 1:
            written = _version_at(wal, at + _WAL_FRAME.size)
        if pages_after:
            version = written
    return version
