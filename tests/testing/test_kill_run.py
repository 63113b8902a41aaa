"""A short slice of the kill run; `make kills` runs all of it."""

import os
from pathlib import Path

import pytest

from smq.testing.kill_run import kill_run


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_kills_at_random_lose_double_and_reorder_nothing(tmp_path: Path) -> None:
    seed = int(os.environ.get("SEED", "5"))
    kill_run(tmp_path, seed, kills=6, records=240_000, say=print)
