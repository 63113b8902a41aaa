"""Full segments that have left the page cache are found, and waited for."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from smq.log.files.segment_files import WalLimits
from smq.log.files.wal import Wal
from smq.testing import page_cache as module
from smq.testing.page_cache import await_dropped, dropped_segments, is_cached
from tests.log.files.wals import new_wal

SIZE = 1 << 16
RING = memoryview(np.random.default_rng(1).bytes(2 * SIZE))


def filled(data_dir: Path, *, cached_segments: int) -> Wal:
    directory = data_dir / "logs" / "0"
    directory.mkdir(parents=True)
    wal = new_wal(directory, None, WalLimits(SIZE, cached_bytes_max=cached_segments * SIZE))
    for i in range(6):
        wal.write(RING, i * SIZE, (i + 1) * SIZE)
    return wal


def test_dropped_segments_are_found(tmp_path: Path) -> None:
    wal = filled(tmp_path, cached_segments=3)
    assert dropped_segments(tmp_path) == [segment.path for segment in wal.segments[:3]]
    assert is_cached(wal.segments[-1].path)
    wal.close()


def test_dropped_segments_are_counted(tmp_path: Path) -> None:
    filled(tmp_path, cached_segments=4).close()
    assert await_dropped(tmp_path) in {1, 2}  # One may go just after the other.


def test_a_log_that_drops_nothing_is_a_failure(tmp_path: Path) -> None:
    filled(tmp_path, cached_segments=100).close()
    with pytest.raises(TimeoutError, match="no segment has left the page cache"):
        await_dropped(tmp_path, 0.1)


def test_a_file_system_that_keeps_its_pages_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path, cached_segments=100).close()
    monkeypatch.setattr(module, "drops_pages", lambda _disk, _directory: False)
    assert await_dropped(tmp_path, 0.1) == 0


def test_a_file_system_that_cannot_tell_what_is_cached_has_dropped_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path, cached_segments=100).close()
    read = os.preadv

    def preadv(fd: int, memory: list[memoryview], at: int, flags: int = 0) -> int:
        if flags:
            raise OSError(errno.EOPNOTSUPP, "no RWF_NOWAIT")
        return read(fd, memory, at)

    monkeypatch.setattr(os, "preadv", preadv)
    assert dropped_segments(tmp_path)
    assert await_dropped(tmp_path, 0.1) == 0
