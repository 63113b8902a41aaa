"""What a worker of the sealer writes, and the page cache."""

import os
from pathlib import Path

from smq.app.sealer.surroundings import Surroundings
from smq.filer.location import Location
from smq.log.files.disk import read_now

DATA = b"sealed" * 10_000


def is_cached(path: Path) -> bool:
    fd = os.open(path, os.O_RDONLY)
    try:
        return read_now(fd, len(DATA), 0) is not None
    finally:
        os.close(fd)


def written(directory: Path, *, drops_pages: bool) -> Path:
    root = directory / f"filer-{drops_pages}"
    at = Surroundings(
        directory,
        Location(str(root)),
        directory,
        directory,
        drops_pages=drops_pages,
    )
    at.open_filer().put("a/file", DATA)
    [path] = [each for each in root.rglob("file") if each.is_file()]
    return path


def test_a_sealed_file_leaves_the_page_cache_where_that_is_bounded(tmp_path: Path) -> None:
    assert not is_cached(written(tmp_path, drops_pages=True))
    assert is_cached(written(tmp_path, drops_pages=False))
