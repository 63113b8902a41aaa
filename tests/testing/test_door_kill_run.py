"""Short slices of the door's kill run; `python -m smq.testing.door_kill_run` is all of it."""

import os
from pathlib import Path

import pytest

from smq.testing.door_kill_run import door_kill_run


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_hundred_killed_producers_leave_whole_records_and_a_shard_that_answers(
    tmp_path: Path,
) -> None:
    door_kill_run(tmp_path, seed=5, kills=100, say=print)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_two_thousand_kills_mid_write_never_wedge_a_shard(tmp_path: Path) -> None:
    door_kill_run(tmp_path, seed=int(os.environ.get("SEED", "7")), kills=2000, say=print)
