"""Reads the files that a start must have, or fails the start.

That the disk cannot read a page is no evidence of damage: what lies there may be whole, and the
error may end. So a start reads again for a while what fails, then ends with the error. It has cut,
deleted and replaced nothing because of that, and the next start finds what it has found.

    a segment whose table is believed    is not read: whoever reads it waits for its bad pages
    a segment that must be scanned       is read whole; but if a dead shard's memory was kept, what
                                         lies behind the bytes that it had written counts as zeros
"""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np

from smq.log.files.disk import Disk
from smq.log.files.segment import WalSegment

TRIES_MIN = 3
WAIT_MS = 5000  # In all, of a start: its supervisor starts it again, and others wait for it.

T = TypeVar("T")
Pause = Callable[[], int]
"""Lets a moment pass; returns the monotonic time (ms)."""


class UnreadableFile(OSError):
    """A start cannot read a file that it must have. Says so, and what to do."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(
            error.errno,
            f"{path} cannot be read: {error}. It is left as it is, and each start tries it again. "
            "If the disk cannot be repaired, copy the file with a tool that puts zeros for what "
            "is lost, like ddrescue, and put the copy in its place: a start takes these for damage",
        )

    def __str__(self) -> str:
        return self.strerror or ""  # It already has its cause's errno.


class StartReads:
    """The reads of one start.

    pause     None: what fails is not tried again
    written   up to which position a dead shard had written, if its memory was kept: the ring has
              the rest
    """

    def __init__(self, disk: Disk, pause: Pause | None = None, written: int | None = None) -> None:
        self._disk, self._pause, self._written = disk, pause, written
        self._since_ms = self._now_ms = -1  # When the first read of all had failed; -1: none has.

    def insist(self, path: Path, read: Callable[[], T]) -> T:
        """What `read` returns, which reads a file; while it fails, it is called again for a while.

        Raises UnreadableFile.
        """
        tries = 1
        while True:
            try:
                return read()
            except OSError as error:
                if self._pause is None or (tries >= TRIES_MIN and self._is_over()):
                    raise UnreadableFile(path, error) from error
            self._now_ms = self._pause()
            if self._since_ms < 0:
                self._since_ms = self._now_ms
            tries += 1

    def _is_over(self) -> bool:
        return self._now_ms >= self._since_ms + WAIT_MS

    def segment(self, segment: WalSegment) -> np.ndarray:
        """A segment's bytes. Raises UnreadableFile."""
        size = segment.end - segment.start

        def read() -> np.ndarray:
            try:
                return self._disk.map(segment.fd, size)
            except OSError:  # Not every file system maps.
                return self._read(segment, size)

        return self.insist(segment.path, read)

    def head(self, segment: WalSegment, length: int) -> np.ndarray:
        """A segment's first bytes, up to `length`. Raises UnreadableFile."""
        size = min(length, segment.end - segment.start)
        return self.insist(segment.path, lambda: self._read(segment, size))

    def head_now(self, segment: WalSegment, length: int) -> np.ndarray | None:
        """As head(), without a second try; None: they cannot be read now."""
        try:
            return self._read(segment, min(length, segment.end - segment.start))
        except OSError:
            return None

    def _read(self, segment: WalSegment, length: int) -> np.ndarray:
        try:
            return self._read_all(segment, length)
        except OSError:
            if self._written is None or self._written >= segment.start + length:
                raise
        data = np.zeros(length, np.uint8)
        written_bytes = max(0, self._written - segment.start)
        data[:written_bytes] = self._read_all(segment, written_bytes)
        return data

    def _read_all(self, segment: WalSegment, length: int) -> np.ndarray:
        data = self._disk.read(segment.fd, length, 0)
        if len(data) < length:
            raise OSError(errno.EIO, "the file has become shorter")
        return data
