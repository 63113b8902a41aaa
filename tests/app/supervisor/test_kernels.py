"""When the kernels are compiled, when they are only loaded, and when they are linked."""

import errno
import fcntl
import os
from pathlib import Path
from threading import Event, Thread

import pytest

from shm.kernels.base import compiler
from smq.app.supervisor import kernels as module


class Cache:
    """A cache of kernels, and what was done to it and said about it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.done: list[str] = []
        self.said = Event()
        self.unkept: list[str] = []

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


COMPILED = ["compiling the", "compile", "load", "the kernels", "link"]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    cache = Cache(tmp_path)
    monkeypatch.setattr(module, "cache_directory", lambda: tmp_path)
    monkeypatch.setattr(module, "_link_meanwhile", lambda: cache.done.append("link"))
    monkeypatch.setattr(module, "_compile_by_two", cache.compile)
    monkeypatch.setattr(module, "warm", cache.load)
    monkeypatch.setattr(module, "say", cache.say)
    monkeypatch.setattr(module, "UNKEPT", cache.unkept)
    monkeypatch.setattr(compiler, "UNKEPT", cache.unkept)
    return cache


def test_only_the_first_start_compiles_and_it_says_so(cache: Cache) -> None:
    module.warm_kernels()
    assert cache.done == COMPILED
    module.warm_kernels()
    assert cache.done == [*COMPILED, "load", "link"]


def test_kernels_that_are_compiled_otherwise_are_not_linked(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "may_use_library", lambda: False)
    module.warm_kernels()
    assert cache.done == COMPILED[:-1]


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
    assert cache.done == [*COMPILED * 3, "load", "link"]


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


def test_where_a_kernel_cannot_be_saved_the_next_start_compiles_and_says_so(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> None:
        cache.compile()
        compiler.keep_no_more("a full disk")

    with monkeypatch.context() as patch:
        patch.setattr(module, "_compile_by_two", full)
        module.warm_kernels()
    assert cache.done == COMPILED
    cache.unkept.clear()
    module.warm_kernels()
    assert cache.done == COMPILED * 2


@pytest.mark.parametrize("step", ["open_lock", "cache_directory"])
def test_a_start_that_can_lock_or_mark_nothing_compiles_alone_and_keeps_nothing(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, step, full)
    module.warm_kernels()
    assert cache.done == [each for each in COMPILED if each != "compile"]
    assert cache.unkept == ["[Errno 28] No space left on device"]
    assert not list(cache.directory.iterdir())


def test_a_mark_that_a_full_disk_does_not_take_stops_no_start(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "touch", full)
    monkeypatch.setattr(module, "_compile_by_two", lambda: cache.done.append("compile"))
    module.warm_kernels()
    assert cache.done == COMPILED
    assert len(cache.unkept) == 1


def test_of_two_first_starts_one_compiles_and_the_other_waits_and_loads(cache: Cache) -> None:
    other = Thread(target=module.warm_kernels)
    with module._alone():
        other.start()
        assert cache.said.wait(10)
        assert cache.done == ["compiling the"]
        module.complete_mark().touch()
    other.join(10)
    assert cache.done == ["compiling the", "load", "the kernels", "link"]


def test_a_reader_of_the_cache_keeps_no_start_waiting(cache: Cache) -> None:
    reader = os.open(cache.directory, os.O_RDONLY)
    try:
        fcntl.flock(reader, fcntl.LOCK_EX)
        first = Thread(target=module.warm_kernels, daemon=True)
        first.start()
        first.join(60)
        assert not first.is_alive()
    finally:
        os.close(reader)
    assert cache.done == COMPILED


def test_a_machine_without_a_c_compiler_says_so_and_starts_nothing(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr("shutil.which", lambda _: None)
    said: list[str] = []
    monkeypatch.setattr(module, "say", said.append)
    monkeypatch.setattr("os.fork", lambda: pytest.fail("a process is started"))
    module._link_meanwhile()
    assert [line.rpartition(": ")[2] for line in said] == ["there is no C compiler"]


def test_why_kernels_were_not_linked_is_said_at_the_next_start(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(module, "why_unlinkable", lambda: "")
    monkeypatch.setattr(module, "why_not_linked", lambda: "no stdio.h")
    said: list[str] = []
    monkeypatch.setattr(module, "say", said.append)
    monkeypatch.setattr("subprocess.Popen", lambda *_, **__: None)
    module._link_meanwhile()
    assert [line.rpartition(": ")[2] for line in said] == ["no stdio.h"]
