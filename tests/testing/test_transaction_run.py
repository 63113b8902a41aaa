"""A short slice of the run of transactions; `make kills` runs all of it."""

import os
from pathlib import Path

import pytest

from smq.testing.transaction_run import transaction_run
from smq.testing.transactions.history import Fate


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_kills_at_random_tear_no_transaction(tmp_path: Path) -> None:
    seed = int(os.environ.get("SEED", "5"))
    fates = transaction_run(tmp_path, seed, transactions=400, kills=6, say=print)
    assert fates.total() >= 400
    assert fates[Fate.ABORTED] > 20
