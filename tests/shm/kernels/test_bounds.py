"""No kernel reads or writes outside of its arguments, whatever the bytes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shm.kernels.base.compiler import cache_directory

ROUNDS = 3000


def run(environment: dict[str, str], seed: int, rounds: int = ROUNDS) -> tuple[int, str]:
    """How the program ended, and what it said."""
    command = [sys.executable, "-m", "tests.shm.kernels.bounds_life", str(seed), str(rounds)]
    program = subprocess.Popen(
        command, env=os.environ | environment, stdout=subprocess.PIPE, text=True
    )
    said, _ = program.communicate(timeout=300)
    return program.returncode, said


@pytest.mark.parametrize("seed", range(3))
def test_nothing_behind_the_bytes_is_touched(seed: int) -> None:
    assert run({}, seed) == (0, "inside")


def test_a_lie_about_the_length_ends_the_process_so_that_this_test_would_see_it() -> None:
    assert run({"PYTHONFAULTHANDLER": ""}, 0, rounds=0) == (-signal.SIGSEGV, "")


@pytest.mark.slow
def test_no_index_of_an_array_is_outside_of_it() -> None:
    checked = Path(f"{cache_directory()}-checked")  # Numba's cache ignores this option.
    environment = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(checked)}
    assert run(environment, 99) == (0, "inside")
