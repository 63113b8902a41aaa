"""Long work in short pieces."""

import os

import pytest

from smq.log.files.pieces import by_pieces


@pytest.mark.parametrize(
    ("count", "pieces"),
    [(0, []), (3, [(0, 3)]), (4, [(0, 4)]), (9, [(0, 4), (4, 8), (8, 9)])],
)
def test_pieces_cover_everything_once(count: int, pieces: list[tuple[int, int]]) -> None:
    assert [(each.start, each.stop) for each in by_pieces(count, 4)] == pieces


def test_others_may_have_the_core_after_each(monkeypatch: pytest.MonkeyPatch) -> None:
    yields: list[None] = []
    monkeypatch.setattr(os, "sched_yield", lambda: yields.append(None))
    seen = [len(yields) for _ in by_pieces(3, 1)]
    assert (seen, len(yields)) == ([0, 1, 2], 3)
