"""Reading around bad places of a disk."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from smq.log.files.disk import PAGE_BYTES, OsDisk
from smq.log.files.salvage import BLOCK_BYTES, salvage
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
    data, lost_bytes, failure, bad_pages = salvage(disk, fd, length, at)
    assert (data == expected[at : at + length]).all()
    assert lost_bytes == len(lost)
    assert list(bad_pages) == list(range(lost.start // PAGE_BYTES, -(-lost.stop // PAGE_BYTES)))
    assert failure is not None
    os.close(fd)


def test_a_good_file_is_read_once(disk: FailingDisk, file: Path) -> None:
    fd = os.open(file, os.O_RDONLY)
    data, lost_bytes, failure, bad_pages = salvage(disk, fd, SIZE, 0)
    assert data.tobytes() == file.read_bytes()
    assert (lost_bytes, failure, disk.calls["read"]) == (0, None, 1)
    assert not bad_pages
    os.close(fd)


def test_a_dead_disk_is_given_up_after_some_pages(disk: FailingDisk, file: Path) -> None:
    disk.fail("read")
    fd = os.open(file, os.O_RDONLY)
    data, lost_bytes, failure, bad_pages = salvage(disk, fd, SIZE, 0)
    assert not data.any()
    assert lost_bytes == SIZE
    assert list(bad_pages) == list(range(-(-SIZE // PAGE_BYTES)))
    assert failure is not None
    assert failure.errno == errno.EIO
    assert disk.calls["read"] < 300
    os.close(fd)
