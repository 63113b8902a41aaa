"""The kernels of attached programs are compiled when a broker first starts on a machine."""

import subprocess
import sys

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
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=120
    )
    assert said.stdout == "[]\n"
