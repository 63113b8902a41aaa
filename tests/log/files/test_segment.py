"""Segments: the error of one that cannot be made, and the place of its table."""

import errno
import os
from pathlib import Path

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
