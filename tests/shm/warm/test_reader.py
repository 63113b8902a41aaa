"""After warm_reader() a client's first batch compiles nothing."""

import os
import subprocess
import sys

COMPILE = {"NUMBA_OPT": "3"}  # Numba's default; it has no library used, where there is one.


def test_reading_a_log_after_warming_compiles_nothing() -> None:
    command = [sys.executable, "-m", "tests.shm.kernels.warm_reading_life"]
    said = subprocess.run(
        command, env=os.environ | COMPILE, capture_output=True, text=True, check=True, timeout=120
    )
    assert said.stdout == ""
