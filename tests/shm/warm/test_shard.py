"""After warm() no process of a broker compiles anything: it would stand still for seconds."""

import os
import subprocess
import sys

from shm.warm.shard import warm

COMPILE = {"NUMBA_OPT": "3"}  # Numba's default; it has no library used, where there is one.


def test_a_life_of_a_log_after_warming_compiles_nothing() -> None:
    command = [sys.executable, "-m", "tests.shm.kernels.warm_life"]
    said = subprocess.run(
        command, env=os.environ | COMPILE, capture_output=True, text=True, check=True, timeout=120
    )
    (only,) = said.stdout.splitlines()
    assert "read_version" in only


def test_warming_twice_does_no_harm() -> None:
    warm()
    warm()
