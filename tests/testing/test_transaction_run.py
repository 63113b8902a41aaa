"""A short slice of the run of transactions; `make kills` runs all of it."""

import os
import signal
from contextlib import closing
from pathlib import Path

import pytest

from smq.testing.kill_run import Wrong
from smq.testing.transaction_run import Programs, transaction_run
from smq.testing.transactions.history import Fate


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_kills_at_random_tear_no_transaction(tmp_path: Path) -> None:
    seed = int(os.environ.get("SEED", "5"))
    fates = transaction_run(tmp_path, seed, transactions=400, kills=6, say=print)
    assert fates.total() >= 400
    assert fates[Fate.ABORTED] > 20


def test_a_hung_program_is_restarted_and_a_failed_one_raises(tmp_path: Path) -> None:
    with closing(Programs("127.0.0.1:1", tmp_path, seed=1)) as programs:  # Nobody is there.
        lives = len(programs.tasks)
        os.kill(programs.pid(2), signal.SIGALRM)
        while not programs.hung:
            programs.check()
        assert [(task.program, task.life) for task in programs.tasks[lives:]] == [(2, 1)]
        os.kill(programs.pid(0), signal.SIGTERM)
        with pytest.raises(Wrong, match="program 0 ended with -15"):
            _check_for_ever(programs)


def _check_for_ever(programs: Programs) -> None:
    while True:
        programs.check()
