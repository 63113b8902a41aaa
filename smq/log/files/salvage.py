"""Reads what is readable of a file on a disk with bad sectors.

One unreadable page fails the whole read around it. So the failed range is read again page by page,
with zeros for pages that fail: no check takes zeros for a frame.
"""

import errno
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np

from smq.log.files.disk import PAGE_BYTES, Disk

BLOCK_BYTES = 1024 * 1024
# Each bad page of a dying disk may take seconds: then give up whole blocks.
BAD_PAGES_MAX = 256
# With a read that others wait for. Then it reads no more: the log tries the rest by itself.
READ_FAILURES_MAX = 16
_OF_DISK = frozenset(
    (
        errno.EIO,
        errno.ENODATA,
        errno.EBADMSG,
        errno.EUCLEAN,
        errno.EILSEQ,
        errno.ENXIO,
        errno.EREMOTEIO,
        errno.ENOLINK,
        errno.ETIMEDOUT,
    )
)


class Salvaged(NamedTuple):
    """Bytes, how many of them are zeros since they were not read, and why: an error, in the pages
    `bad_pages` of the file. It has not come to those of `untried`; `left_out` it was not to
    read."""

    data: np.ndarray
    lost_bytes: int
    failure: OSError | None
    bad_pages: Sequence[int] = ()
    untried: Sequence[int] = ()
    left_out: Sequence[int] = ()


def is_of_disk(error: OSError) -> bool:
    """Whether a read's error says something of the bytes: not of what our process lacks, such as
    memory, nor of a device or server that is away. Other errors give up no page, however long they
    last: the operator is told (GivenUp.tell_why)."""
    return error.errno in _OF_DISK


ReadBytes = Callable[[int, int], np.ndarray]
"""Reads up to so many bytes of a file at a place in it, as Disk.read(). Raises OSError."""


def salvage(disk: Disk, fd: int, length: int, at: int) -> Salvaged:
    """Up to `length` bytes of a file."""
    reading = _RepeatedRead(partial(disk.read, fd), length, at)
    return reading.whole() or reading.by_pages(())


def salvage_some(read: ReadBytes, length: int, at: int, left_out: Collection[int]) -> Salvaged:
    """As salvage(), for one whom others wait for: without these pages, and few of its reads
    fail."""
    reading = _RepeatedRead(read, length, at, READ_FAILURES_MAX)
    return (None if len(left_out) else reading.whole()) or reading.by_pages(left_out)


class _RepeatedRead:
    """A read in progress of bytes of a file. It ends after so many failures, if that is not 0."""

    def __init__(self, read: ReadBytes, length: int, at: int, failures_max: int = 0) -> None:
        self._read_bytes, self._at, self._end = read, at, at + length
        self._failures, self._failures_max = 0, failures_max
        self._data = np.empty(0, np.uint8)
        self._failure: OSError | None = None
        self._is_bad = False  # By the last read, which failed.
        self._bad, self._untried = list[int](), list[int]()

    def whole(self) -> Salvaged | None:
        """All of it; None: some cannot be read."""
        try:
            data = self._read_bytes(self._end - self._at, self._at)
        except OSError as error:
            self._fail(error)
            return None
        return Salvaged(data, 0, None)

    def by_pages(self, left_out: Collection[int]) -> Salvaged:
        """All but some pages, and but those that fail. After BAD_PAGES_MAX of these it tries no
        page of what fails as a whole block."""
        self._data = np.zeros(self._end - self._at, np.uint8)
        not_to_read = sorted(int(page) for page in left_out)
        for start, stop in _blocks(self._at, self._end, not_to_read):
            has_failed = self._failure is not None and (start, stop) == (self._at, self._end)
            if has_failed or not self._read(start, stop):
                self._try_pages(start, stop)
        unread = self._bad, self._untried, not_to_read
        lost_bytes = sum(map(self._bytes_of, chain(*unread)))
        return Salvaged(self._data, lost_bytes, self._failure, *unread)

    def _try_pages(self, start: int, stop: int) -> None:
        bad_max = len(self._bad) + BAD_PAGES_MAX if len(self._bad) < BAD_PAGES_MAX else 0
        for page_start, page_end in _pages(start, stop):
            page = page_start // PAGE_BYTES
            if len(self._bad) >= bad_max:
                self._untried.append(page)
            elif not self._read(page_start, page_end):
                (self._bad if self._is_bad else self._untried).append(page)

    def _read(self, start: int, stop: int) -> bool:
        self._is_bad = False
        if self._failures and self._failures == self._failures_max:
            return False
        try:
            part = self._read_bytes(stop - start, start)
        except OSError as error:
            self._fail(error)
            return False
        self._data[start - self._at : start - self._at + len(part)] = part
        return True

    def _fail(self, error: OSError) -> None:
        self._failure, self._is_bad = self._failure or error, is_of_disk(error)
        self._failures += 1

    def _bytes_of(self, page: int) -> int:
        """How many of the bytes a page has."""
        return min(self._end, (page + 1) * PAGE_BYTES) - max(self._at, page * PAGE_BYTES)


def _blocks(start: int, end: int, left_out: Sequence[int]) -> Iterator[tuple[int, int]]:
    """[start, end) in blocks, without some pages of the file (ascending)."""
    for page in (*left_out, -(-end // PAGE_BYTES)):
        stop = max(start, page * PAGE_BYTES) if page * PAGE_BYTES < end else end
        for block in range(start, stop, BLOCK_BYTES):
            yield block, min(block + BLOCK_BYTES, stop)
        start = max(start, (page + 1) * PAGE_BYTES)


def _pages(start: int, end: int) -> list[tuple[int, int]]:
    """[start, end) cut at the pages of the file."""
    edges = [start, *range(start - start % PAGE_BYTES + PAGE_BYTES, end, PAGE_BYTES), end]
    return list(pairwise(edges))
