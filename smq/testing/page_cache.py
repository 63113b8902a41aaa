"""Whether the full segments of a broker's logs have left the page cache, as its bound wants it."""

import os
import time
from contextlib import suppress
from pathlib import Path

from smq.log.files.disk import PAGE_BYTES, OsDisk, read_now
from smq.log.files.footprint import drops_pages
from smq.testing.processes import POLL_SECONDS

WRITTEN_SEGMENTS = 2  # The one that is being written, and the next one: it has no pages yet.
DROPPED_SECONDS_MAX = 30.0


def is_cached(path: Path) -> bool:
    """Whether the page cache has a file's first page. Raises OSError."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return read_now(fd, PAGE_BYTES, 0) is not None
    finally:
        os.close(fd)


def dropped_segments(data_dir: Path) -> list[Path]:
    """The full segments of all logs that the page cache does not have. To look may bring pages
    back: only the first look counts."""
    dropped = list[Path]()
    for log in sorted((data_dir / "logs").iterdir()):
        for path in sorted(log.glob("*.wal"))[:-WRITTEN_SEGMENTS]:
            with suppress(FileNotFoundError):  # It was freed meanwhile.
                dropped += [] if is_cached(path) else [path]
    return dropped


def await_dropped(data_dir: Path, seconds_max: float = DROPPED_SECONDS_MAX) -> int:
    """How many segments were dropped; waits for the first. Raises TimeoutError, but not on a file
    system that keeps its pages."""
    if not drops_pages(OsDisk(), data_dir):  # Perhaps it cannot tell, and all looks dropped.
        return 0
    deadline = time.monotonic() + seconds_max
    while not (dropped := dropped_segments(data_dir)):
        if time.monotonic() > deadline:
            raise TimeoutError("no segment has left the page cache")
        time.sleep(POLL_SECONDS)
    return len(dropped)
