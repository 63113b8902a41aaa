"""Runs Python as on a machine where no kernels are linked: it compiles them, or finds them warm."""

import os
import subprocess
import sys

COMPILE = {"NUMBA_OPT": "3"}  # Numba's default; it has no library used, where there is one.


def printed_by(*arguments: str) -> str:
    """What Python prints with these arguments."""
    done = subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | COMPILE, capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    return done.stdout
