"""Long work in short pieces."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from smq.log.files.disk import PIECE_BYTES, OsDisk
from smq.log.files.pieces import by_pieces


@pytest.mark.parametrize(
    ("count", "pieces"),
    [(0, []), (3, [(0, 3)]), (4, [(0, 4)]), (9, [(0, 4), (4, 8), (8, 9)])],
)
def test_pieces_cover_everything_once(count: int, pieces: list[tuple[int, int]]) -> None:
    assert [(each.start, each.stop) for each in by_pieces(count, 4)] == pieces


@pytest.fixture
def yields(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    yields: list[None] = []
    monkeypatch.setattr(os, "sched_yield", lambda: yields.append(None))
    return yields


def test_others_may_have_the_core_after_each(yields: list[None]) -> None:
    with ThreadPoolExecutor(1) as beside:
        seen = beside.submit(lambda: [len(yields) for _ in by_pieces(3, 1)]).result()
    assert (seen, len(yields)) == ([0, 1, 2], 3)


def test_a_start_keeps_its_core(tmp_path: Path, yields: list[None]) -> None:
    """Beside two busy processes it took seconds for each segment that it read."""
    file = tmp_path / "file"
    file.write_bytes(bytes(3 * PIECE_BYTES))
    disk = OsDisk()
    fd = disk.open(file)
    disk.map(fd, 3 * PIECE_BYTES)
    disk.close(fd)
    assert not yields
