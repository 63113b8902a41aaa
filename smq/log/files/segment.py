"""A segment of the write-ahead log: one file, and the readers that need it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from shm.kernels.base.words import FRAME_HEADER_BYTES
from smq.log.files.bad_pages import BadPages
from smq.log.files.disk import PAGE_BYTES
from smq.log.files.filed_index import FiledIndex


class NoSegment(OSError):
    """The next segment's file cannot be made. Nothing written so far is in doubt."""

    def __str__(self) -> str:
        return self.strerror or ""  # It already has its cause's errno.


class UnreadableSegment(OSError):
    """Some bytes of a segment's file cannot be read: the page cache does not have them."""


class UnsyncedName(OSError):
    """A fresh file, open as `fd`, has taken a segment's name, and the directory was not synced."""

    def __init__(self, error: OSError, fd: int) -> None:
        super().__init__(error.errno, error.strerror)
        self.fd = fd


@dataclass(slots=True, eq=False)
class WalSegment:
    """One file of the WAL.

    first_entry   of the log's index that lies in it; -1: not looked up yet
    index         its look-up table, once it is full
    pins          reads and writes under way: it is not freed meanwhile
    loans         unsent answers: it is not freed while the log has space without it
    is_kept       all of it is sealed: it may be freed whenever its space is needed
    is_cached     the page cache has not dropped it (smq.log.files.footprint)
    is_on_disk    it was dropped after its write-back: a sync makes it durable
    has_last_copy the page cache had some of it that the disk could not read: it is not dropped
    cache_fd      the descriptor that hears of failed write-backs; -1: none
    past_bytes    read past the page cache since it was dropped
    bad_pages     of its file
    other_error   of the last read that failed for a reason that says nothing of its bytes; None:
                  none did, or it could be read since
    bad_tried_ms  when a reader last met such a page (monotonic); -1: never
    """

    start: int
    end: int
    fd: int
    path: Path
    first_entry: int = -1
    index: FiledIndex | None = None
    pins: int = 0
    loans: int = 0
    is_kept: bool = False
    is_cached: bool = True
    is_on_disk: bool = False
    has_last_copy: bool = False
    cache_fd: int = -1
    past_bytes: int = 0
    bad_pages: BadPages = field(default_factory=BadPages)
    other_error: OSError | None = None
    bad_tried_ms: int = -1

    @property
    def may_be_dropped(self) -> bool:
        """Whether all that the page cache has of it can be read from the disk, for all we know."""
        return not (self.has_last_copy or len(self.bad_pages.failing()))

    def count_before_unread(self, spans: np.ndarray) -> int:
        """How many of these batches (int64 [n, 2], of this segment) lie before the first whose
        frame has a part in a page that fails."""
        first = (spans[:, 0] - FRAME_HEADER_BYTES - self.start) // PAGE_BYTES
        end = -(-(spans.sum(1) - self.start) // PAGE_BYTES)
        failing = self.bad_pages.failing()
        is_unread = np.searchsorted(failing, end) > np.searchsorted(failing, first)
        return int(np.argmax(is_unread)) if is_unread.any() else len(spans)

    def note_read(
        self,
        at: int,
        length: int,
        bad: Sequence[int] = (),
        untried: Sequence[int] = (),
        left_out: Sequence[int] = (),
    ) -> None:
        """See BadPages.note(). What ends with the file has all that there is of its last page."""
        if at + length == self.end - self.start:
            length = self.pages * PAGE_BYTES - at
        self.bad_pages.note(at, length, bad, untried, left_out)

    @property
    def pages(self) -> int:
        """How many pages its file has."""
        return -(-(self.end - self.start) // PAGE_BYTES)

    @property
    def index_path(self) -> Path:
        return self.path.with_suffix(".index")
