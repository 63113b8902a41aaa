"""Kernels are taken from the library; Numba compiles what it lacks, and all where there is none."""

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from shm.kernels.base import jit
from shm.kernels.base.crc32c import crc32c
from shm.kernels.base.jit import kernel


class Library:
    """A library without any kernel's code."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def kernel(self, name: str, compile_: Any) -> Any:
        self.asked.append(name)

        def call(*args: Any) -> Any:
            return compile_()(*args)

        return call


def test_a_kernel_is_asked_of_the_library_and_compiled_when_it_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def triple(value: int) -> Any:
        """Three times as much."""
        return 3 * value

    library = Library()
    monkeypatch.setattr(jit, "LIBRARY", library)
    triple.__module__ = jit.__name__  # Numba imports it when it loads the code of an earlier run.
    made: Any = kernel(triple)
    assert library.asked == [f"{jit.__name__}:{triple.__qualname__}"]
    assert made.py_func is triple
    assert (made.__name__, made.__doc__) == ("triple", "Three times as much.")
    assert made(2) == made(2) == 6


def test_kernels_of_others_are_not_asked_of_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    @kernel
    def before(value: int) -> Any:
        return value - 1

    library = Library()
    monkeypatch.setattr(jit, "LIBRARY", library)
    after: Any = kernel(before.py_func)  # type: ignore[attr-defined]
    assert after(2) == before(2) == 1
    assert not library.asked


USE = """
import numpy as np
from shm.kernels.base.crc32c import crc32c
print(hex(crc32c(np.frombuffer(b"123456789", np.uint8), 0, 9)))
"""


@pytest.mark.parametrize("asked", [{}, {"NUMBA_OPT": "3"}])
def test_a_check_is_the_same_linked_and_compiled(asked: dict[str, str]) -> None:
    said = subprocess.run(
        [sys.executable, "-c", USE],
        env=os.environ | asked, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert said.stdout.strip() == "0xe3069283"
    assert crc32c(np.frombuffer(b"123456789", np.uint8), 0, 9) == 0xE3069283


FORK = """
import os, signal, sys, threading
from importlib.machinery import ModuleSpec
from shm.kernels.base import jit
from shm.system import at_fork

NAME = "shm.kernels.base.compiler"
begun, forks, forked = threading.Event(), threading.Event(), threading.Event()

class Lock:
    def __init__(self):
        self.inner = threading.RLock()
        self.acquire, self.release = self.inner.acquire, self.inner.release

    def is_locked(self):
        return self.inner._is_owned()

class Slow:
    def find_spec(self, name, path, target=None):
        return ModuleSpec(name, self) if name == NAME else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        begun.set()
        forks.wait()
        forked.wait(0.5)
        lock = module.global_compiler_lock = Lock()
        release = dict.fromkeys(("after_in_parent", "after_in_child"), lock.release)
        at_fork(before=lock.acquire, **release)
        module.compiled = lambda function: function

sys.modules.pop(NAME, None)
sys.meta_path.insert(0, Slow())
os.register_at_fork(before=forks.set, after_in_parent=forked.set)
thread = threading.Thread(target=jit._compiled, args=(len,))
thread.start()
begun.wait()
pid = os.fork()
if pid == 0:
    signal.alarm(5)
    os._exit(jit._compiled(len) is not len or jit._compiler[0].global_compiler_lock.is_locked())
thread.join()
assert not jit._compiler[0].global_compiler_lock.is_locked()
print(os.waitpid(pid, 0)[1])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no process forks there")
def test_a_child_that_is_forked_during_the_import_of_numba_has_it_too() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK], capture_output=True, text=True, check=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("0\n", "")
