"""The kernels of attached programs are compiled when a broker first starts on a machine."""

import os
import subprocess
import sys

COMPILE = {"NUMBA_OPT": "3"}  # Numba's default; it has no library used, where there is one.
PROGRAM = """
from numba.core import event
from shm.warm.client import warm_client
warm_client()
compiled = []
class Listener(event.Listener):
    def on_start(self, event):
        compiled.append(event.data["dispatcher"])
    def on_end(self, event):
        pass
event.register("numba:compile", Listener())
import tests.shm.kernels.attached_life
print(compiled)
"""


def test_a_program_that_attaches_after_warming_compiles_nothing() -> None:
    said = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | COMPILE, capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    assert said.stdout == "[]\n"
