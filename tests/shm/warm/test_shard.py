"""After warm() no process of a broker compiles anything: it would stand still for seconds."""

from shm.warm.shard import warm
from tests.shm.warm.compiling import printed_by

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


def test_a_life_of_a_log_after_warming_compiles_nothing() -> None:
    (only,) = printed_by("-m", "tests.shm.kernels.warm_life").splitlines()
    assert "read_version" in only


def test_every_kernel_that_python_calls_is_warm() -> None:
    """Else it is linked for no arguments, and its first caller imports Numba and compiles it."""
    assert printed_by("-c", CALLED) == ""


def test_warming_twice_does_no_harm() -> None:
    warm()
    warm()
