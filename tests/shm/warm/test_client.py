"""The kernels of attached programs are compiled when a broker first starts on a machine."""

from tests.shm.warm.compiling import printed_by

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
    assert printed_by("-c", PROGRAM) == "[]\n"
