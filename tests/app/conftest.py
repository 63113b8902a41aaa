"""Fixtures of the shard's tests."""

import pytest

from smq.app.shard.turns import quick_turns


@pytest.fixture
def always_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel is asked in every turn, also where it pays off only in the long run."""
    monkeypatch.setattr(quick_turns, "PAUSE_TURNS", 0)
