"""After warm() no process of a broker compiles anything: it would stand still for seconds."""

import os
import subprocess
import sys

from shm.warm.shard import warm

CALLED = """
import pkgutil
from importlib import import_module
import gateway, shm, smq
from shm.kernels.base.compiler import COMPILED
from shm.warm.client import warm_client
from shm.warm.reader import warm_reader
from shm.warm.shard import warm
warm()
warm_client()
warm_reader()
names = {id(kernel): name for name, kernel in COMPILED.items()}
for package in (gateway, shm, smq):
    for each in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not each.name.startswith(("shm.kernels.", "smq.testing.")):
            for found in vars(import_module(each.name)).values():
                if id(found) in names and not found.overloads:
                    print(each.name, names[id(found)])
"""
COMPILE = {"NUMBA_OPT": "3"}  # Numba's default; it has no library used, where there is one.


def test_a_life_of_a_log_after_warming_compiles_nothing() -> None:
    command = [sys.executable, "-m", "tests.shm.kernels.warm_life"]
    said = subprocess.run(
        command, env=os.environ | COMPILE, capture_output=True, text=True, check=True, timeout=120
    )
    (only,) = said.stdout.splitlines()
    assert "read_version" in only


def test_every_kernel_that_python_calls_is_warm() -> None:
    """Else it is linked for no arguments, and its first caller imports Numba and compiles it."""
    said = subprocess.run(
        [sys.executable, "-c", CALLED],
        env=os.environ | COMPILE, capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    assert said.stdout == ""


def test_warming_twice_does_no_harm() -> None:
    warm()
    warm()
