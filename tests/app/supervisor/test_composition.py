"""When the kernels are compiled, and when they are only loaded."""

import os
import subprocess
import sys
from pathlib import Path
from threading import Event, Thread

import pytest

from smq.app.supervisor import composition as module


class Cache:
    """A cache of kernels, and what was done to it and said about it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.done: list[str] = []
        self.said = Event()

    def compile(self) -> None:
        self.done.append("compile")
        (self.directory / "kernel.nbi").touch()

    def interrupted(self) -> None:
        self.compile()
        raise KeyboardInterrupt

    def load(self) -> None:
        self.done.append("load")

    def say(self, sentence: str) -> None:
        self.done.append(" ".join(sentence.split()[:2]))
        self.said.set()


COMPILED = ["compiling the", "compile", "load", "the kernels"]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    cache = Cache(tmp_path)
    monkeypatch.setattr(module, "cache_directory", lambda: tmp_path)
    monkeypatch.setattr(module, "_compile_by_two", cache.compile)
    monkeypatch.setattr(module, "warm", cache.load)
    monkeypatch.setattr(module, "say", cache.say)
    return cache


def test_only_the_first_start_compiles_and_it_says_so(cache: Cache) -> None:
    module.warm_kernels()
    assert cache.done == COMPILED
    module.warm_kernels()
    assert cache.done == [*COMPILED, "load"]


def test_another_installation_of_the_same_version_compiles_too_and_says_so(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "kernel.py").write_text("the same")
    for name in ("one", "other"):
        monkeypatch.setattr(module, "SOURCES", tmp_path / name)
        module.warm_kernels()
    assert cache.done == COMPILED * 2
    os.utime(tmp_path / "other" / "kernel.py", (1, 1))  # Installed again: Numba looks at the time.
    module.warm_kernels()
    module.warm_kernels()
    assert cache.done == [*COMPILED * 3, "load"]


def test_after_a_first_start_that_was_interrupted_the_next_one_compiles(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(module, "_compile_by_two", cache.interrupted)
        with pytest.raises(KeyboardInterrupt):
            module.warm_kernels()
    cache.done.clear()
    module.warm_kernels()
    assert cache.done == COMPILED


def test_of_two_first_starts_one_compiles_and_the_other_waits_and_loads(cache: Cache) -> None:
    other = Thread(target=module.warm_kernels)
    with module._alone(cache.directory):
        other.start()
        assert cache.said.wait(10)
        assert cache.done == ["compiling the"]
        module.complete_mark().touch()
    other.join(10)
    assert cache.done == ["compiling the", "load", "the kernels"]


def test_the_supervisor_imports_no_library_that_starts_threads_before_forks() -> None:
    """Arrow and lake libraries start threads of their own: workers import them when asked."""
    script = "import sys, smq.app.supervisor.composition; print(*sys.modules, sep='\\n')"
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    forbidden = {"pyarrow", "pyiceberg", "deltalake", "duckdb", "obstore", "grpc", "pyspark"}
    assert forbidden.isdisjoint(loaded.stdout.split())
    assert "smq.app.sealer.main" in loaded.stdout.split()
