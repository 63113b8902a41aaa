"""Segments: the error of one that cannot be made, and the place of its table."""

import errno
import os
from pathlib import Path

import numpy as np

from shm.kernels.base.words import FRAME_HEADER_BYTES
from smq.log.files.bad_pages import BadPages
from smq.log.files.disk import PAGE_BYTES
from smq.log.files.segment import NoSegment, WalSegment


def test_the_table_is_filed_beside_its_segment() -> None:
    segment = WalSegment(0, 4096, -1, Path("log/00000000000000000000.wal"))
    assert segment.index_path == Path("log/00000000000000000000.index")


def test_a_segment_that_cannot_be_made_says_why_once() -> None:
    refused = NoSegment(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert str(refused) == "No space left on device"
    assert not str(NoSegment())


def test_segments_are_themselves_alone() -> None:
    path = Path("log/00000000000000000000.wal")
    one, other = WalSegment(0, 4096, 3, path), WalSegment(0, 4096, 3, path)
    assert one != other


def bad_pages(*pages: int) -> BadPages:
    """Some of a file's."""
    found = BadPages()
    found.note(0, 0, pages)
    return found


def test_batches_are_counted_up_to_the_first_with_a_bad_page() -> None:
    segment = WalSegment(8 * PAGE_BYTES, 16 * PAGE_BYTES, -1, Path("log/0.wal"))
    starts = segment.start + np.arange(16) * (PAGE_BYTES // 2)
    spans = np.stack((starts, np.full(16, PAGE_BYTES // 2)), 1) - (-FRAME_HEADER_BYTES, 0)
    spans[:, 1] -= FRAME_HEADER_BYTES
    assert segment.count_before_unread(spans) == 16
    for page, count in ((0, 0), (1, 2), (5, 10), (7, 14)):
        segment.bad_pages = bad_pages(page)
        assert segment.count_before_unread(spans) == count
        assert segment.count_before_unread(spans[count:]) == 0
        assert segment.count_before_unread(spans[count + 2 :] if page < 7 else spans[:2]) > 0
    segment.bad_pages = bad_pages(3, 6)
    assert [segment.count_before_unread(spans[i:]) for i in (0, 6, 8, 13, 14)] == [6, 0, 4, 0, 2]
    spans[4, 1] += 3 * PAGE_BYTES  # As one that reaches into a bad page.
    assert segment.count_before_unread(spans[:5]) == 4


def test_a_read_that_ends_with_the_file_has_all_of_its_last_page() -> None:
    """A page that a segment has in part was never read again after it had failed once."""
    size = 3 * PAGE_BYTES + 100
    segment = WalSegment(size, 2 * size, -1, Path("log/0.wal"))
    segment.note_read(0, size, [1, 3])
    segment.note_read(2 * PAGE_BYTES, PAGE_BYTES + 99)
    assert segment.bad_pages.failing().tolist() == [1, 3]
    segment.note_read(2 * PAGE_BYTES, PAGE_BYTES + 100)
    assert segment.bad_pages.failing().tolist() == [1]
