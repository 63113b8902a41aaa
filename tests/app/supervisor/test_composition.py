"""A start takes the linked kernels, and says why where it cannot."""

import subprocess
import sys

import pytest

from shm.kernels.base import jit
from smq.app.supervisor import composition as module, kernels


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is said and done."""
    done: list[str] = []
    monkeypatch.setattr(module, "say", done.append)
    monkeypatch.setattr(kernels, "warm_kernels", lambda: done.append("load"))
    return done


def test_a_start_with_linked_kernels_loads_and_compiles_none(
    done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jit, "LIBRARY", object())
    monkeypatch.setattr(jit, "PROBLEMS", [])
    module.warm_kernels()
    assert not done


def test_a_start_says_which_library_it_does_not_use_and_loads_the_kernels(
    done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jit, "LIBRARY", None)
    monkeypatch.setattr(jit, "PROBLEMS", ["the linked kernels are damaged"])
    module.warm_kernels()
    assert done == ["the linked kernels are damaged", "load"]


def test_the_supervisor_imports_no_library_that_starts_threads_before_forks() -> None:
    """Arrow and lake libraries start threads of their own: workers import them when asked."""
    script = "import sys, smq.app.supervisor.composition; print(*sys.modules, sep='\\n')"
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    forbidden = {"pyarrow", "pyiceberg", "deltalake", "duckdb", "obstore", "grpc", "pyspark"}
    assert forbidden.isdisjoint(loaded.stdout.split())
    assert "smq.app.sealer.main" in loaded.stdout.split()
