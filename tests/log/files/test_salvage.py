"""Reading around bad places of a disk."""

import errno
import os
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from smq.log.files.disk import PAGE_BYTES, OsDisk
from smq.log.files.salvage import (
    BAD_PAGES_MAX,
    BLOCK_BYTES,
    READ_FAILURES_MAX,
    salvage,
    salvage_some,
)
from smq.testing.disk import FailingDisk

SIZE = 3 * BLOCK_BYTES


@pytest.fixture
def disk() -> FailingDisk:
    return FailingDisk(OsDisk())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(np.random.default_rng(1).integers(1, 255, SIZE, np.uint8).tobytes())
    return path


@pytest.mark.parametrize(
    ("at", "length", "bad", "lost"),
    [
        (0, SIZE, (0, 1), range(PAGE_BYTES)),
        (0, SIZE, (SIZE - 1, SIZE), range(SIZE - PAGE_BYTES, SIZE)),
        (100, 9000, (5000, 5001), range(PAGE_BYTES, 2 * PAGE_BYTES)),
        (5000, 10, (5000, 5001), range(5000, 5010)),
        (
            BLOCK_BYTES - 100,
            200,
            (BLOCK_BYTES, BLOCK_BYTES + 1),
            range(BLOCK_BYTES, BLOCK_BYTES + 100),
        ),
    ],
)
def test_all_but_the_bad_pages_is_read(  # noqa: PLR0913, PLR0917
    disk: FailingDisk, file: Path, at: int, length: int, bad: tuple[int, int], lost: range
) -> None:
    disk.bad_places = [(file.name, *bad)]
    expected = np.frombuffer(file.read_bytes(), np.uint8).copy()
    expected[lost.start : lost.stop] = 0
    fd = os.open(file, os.O_RDONLY)
    data, lost_bytes, failure, bad_pages, *_ = salvage(disk, fd, length, at)
    assert (data == expected[at : at + length]).all()
    assert lost_bytes == len(lost)
    assert list(bad_pages) == list(range(lost.start // PAGE_BYTES, -(-lost.stop // PAGE_BYTES)))
    assert failure is not None
    os.close(fd)


def test_a_good_file_is_read_once(disk: FailingDisk, file: Path) -> None:
    fd = os.open(file, os.O_RDONLY)
    data, lost_bytes, failure, bad_pages, untried, _ = salvage(disk, fd, SIZE, 0)
    assert data.tobytes() == file.read_bytes()
    assert (lost_bytes, failure, disk.calls["read"]) == (0, None, 1)
    assert not bad_pages
    assert not untried
    os.close(fd)


def test_a_dead_disk_is_given_up_after_some_pages(disk: FailingDisk, file: Path) -> None:
    disk.fail("read")
    fd = os.open(file, os.O_RDONLY)
    data, lost_bytes, failure, bad_pages, untried, _ = salvage(disk, fd, SIZE, 0)
    assert not data.any()
    assert lost_bytes == SIZE
    assert [*bad_pages, *untried] == list(range(-(-SIZE // PAGE_BYTES)))
    assert len(bad_pages) == BAD_PAGES_MAX
    assert failure is not None
    assert failure.errno == errno.EIO
    assert disk.calls["read"] < 300
    os.close(fd)


@pytest.mark.parametrize("at", [0, 100])
def test_pages_that_are_left_out_are_not_read_and_all_others_are(
    disk: FailingDisk, file: Path, at: int
) -> None:
    left_out = [0, 2, 3, BLOCK_BYTES // PAGE_BYTES, SIZE // PAGE_BYTES - 1]
    expected = np.frombuffer(file.read_bytes(), np.uint8).copy()
    for page in left_out:
        expected[page * PAGE_BYTES :][:PAGE_BYTES] = 0
    disk.bad_places = [(file.name, page * PAGE_BYTES, page * PAGE_BYTES + 1) for page in left_out]
    fd = os.open(file, os.O_RDONLY)
    data, lost_bytes, failure, *pages = salvage_some(
        partial(disk.read, fd), SIZE - at, at, left_out
    )
    os.close(fd)
    assert (data == expected[at:]).all()
    assert lost_bytes == len(left_out) * PAGE_BYTES - at
    assert (failure, pages) == (None, [[], [], left_out])
    assert disk.calls["read"] == 4  # Between them; the last ones are more than a block.


def test_a_read_that_others_wait_for_meets_few_bad_pages(disk: FailingDisk, file: Path) -> None:
    bad = [1, 2, *range(5, 5 + READ_FAILURES_MAX), 300]
    disk.bad_places = [(file.name, page * PAGE_BYTES, page * PAGE_BYTES + 1) for page in bad]
    fd = os.open(file, os.O_RDONLY)
    found = salvage_some(partial(disk.read, fd), SIZE, 0, ())
    os.close(fd)
    assert found.bad_pages == bad[: READ_FAILURES_MAX - 2]
    assert found.untried == [*range(bad[READ_FAILURES_MAX - 3] + 1, -(-SIZE // PAGE_BYTES))]
    assert disk.calls["read"] == READ_FAILURES_MAX + 3  # Pages 0, 3 and 4.


def test_an_error_that_says_nothing_of_the_disk_leaves_pages_untried(
    disk: FailingDisk, file: Path
) -> None:
    disk.bad_places = [(file.name, 0, 1)]
    disk.fail("read", 3, errno.ENOMEM)  # The read as a whole, and those of two pages.
    fd = os.open(file, os.O_RDONLY)
    found = salvage_some(partial(disk.read, fd), 4 * PAGE_BYTES, 0, ())
    os.close(fd)
    assert (found.bad_pages, found.untried) == ([], [0, 1])
    assert found.data[2 * PAGE_BYTES :].tobytes() == file.read_bytes()[: 4 * PAGE_BYTES][8192:]
