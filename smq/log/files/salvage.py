"""Reads what is readable of a file on a disk with bad sectors.

One unreadable page fails the whole read around it. So the failed range is read again page by page,
with zeros for pages that fail: no check takes zeros for a frame.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from smq.log.files.bad_pages import pages_of
from smq.log.files.disk import PAGE_BYTES, Disk

BLOCK_BYTES = 1024 * 1024
# Each bad page of a dying disk may take seconds: then give up whole blocks.
BAD_PAGES_MAX = 256


class Salvaged(NamedTuple):
    """Bytes, how many of them could not be read, why, and in which pages of the file these are."""

    data: np.ndarray
    lost_bytes: int
    failure: OSError | None
    bad_pages: Sequence[int] = ()


def salvage(disk: Disk, fd: int, length: int, at: int) -> Salvaged:
    """Up to `length` bytes of a file."""
    try:
        return Salvaged(disk.read(fd, length, at), 0, None)
    except OSError as error:
        failure = error
    data, lost, tries = np.zeros(length, np.uint8), 0, 0
    bad_pages = list[int]()
    for block in range(0, length, BLOCK_BYTES):
        size = min(BLOCK_BYTES, length - block)
        try:
            part = disk.read(fd, size, at + block)
            data[block : block + len(part)] = part
        except OSError:
            if tries >= BAD_PAGES_MAX:
                lost += size
                bad_pages += pages_of(at + block, size)
                continue
            for start, end in _pages(at + block, at + block + size):
                try:
                    part = disk.read(fd, end - start, start)
                    data[start - at : start - at + len(part)] = part
                except OSError:
                    tries += 1
                    lost += end - start
                    bad_pages.append(start // PAGE_BYTES)
    return Salvaged(data, lost, failure, bad_pages)


def _pages(start: int, end: int) -> list[tuple[int, int]]:
    """[start, end) cut at the pages of the file."""
    edges = [start, *range(start - start % PAGE_BYTES + PAGE_BYTES, end, PAGE_BYTES), end]
    return list(pairwise(edges))
