"""Kernels are compiled one way, cached where every change of a source gives a new place."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core import event

from shm.kernels.base import compiler
from shm.kernels.base.compiler import cache_directory, compiled


def run(code: str, home: Path) -> str:
    """What a program prints in a process whose caches are in `home`."""
    environment = {"XDG_CACHE_HOME": str(home), "PATH": "/usr/bin:/bin", "NUMBA_OPT": "3"}
    said = subprocess.run(
        [sys.executable, "-c", code],
        env=environment, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return said.stdout.strip()


def test_the_cache_is_named_by_sources_and_version_in_the_users_cache_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = cache_directory()
    assert first.parent == tmp_path / "smq" / "kernels"
    assert first.is_dir()
    assert cache_directory() == first
    monkeypatch.setattr(compiler, "sources_digest", lambda: "another")
    second = cache_directory()
    monkeypatch.setattr(compiler, "version", lambda name: f"another {name}")
    assert len({first, second, cache_directory()}) == 3


def test_where_the_home_cannot_be_written_another_place_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    not_a_directory = tmp_path / "file"
    not_a_directory.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(not_a_directory))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    assert cache_directory().is_relative_to(tmp_path / f"smq-cache-{os.getuid()}")
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(not_a_directory))
    with pytest.raises(OSError, match="set XDG_CACHE_HOME"):
        cache_directory()


@pytest.mark.skipif(os.getuid() != 0, reason="only root makes files of another user")
def test_kernels_that_another_user_has_planted_are_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Door fault 4: where the home is unusable, anybody could put pickles into our place."""
    not_a_directory = tmp_path / "file"
    not_a_directory.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(not_a_directory))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    planted = cache_directory()
    for each in (planted, tmp_path / f"smq-cache-{os.getuid()}"):
        os.chown(each, 65534, 65534)
        with pytest.raises(OSError, match="that this user, and no other, can write"):
            cache_directory()
        os.chown(each, 0, 0)
    assert cache_directory() == planted


@pytest.mark.skipif(os.getuid() != 0, reason="only root makes files of another user")
def test_a_link_that_another_user_has_planted_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, 65534, 65534)
    (tmp_path / f"smq-cache-{os.getuid()}").symlink_to(theirs)
    not_a_directory = tmp_path / "file"
    not_a_directory.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(not_a_directory))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    with pytest.raises(OSError, match="that this user, and no other, can write"):
        cache_directory()


def test_every_directory_on_the_way_is_made_for_us_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    before = os.umask(0o002)
    try:
        made = cache_directory()
    finally:
        os.umask(before)
    assert made.is_relative_to(tmp_path / "cache")
    assert made.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("first", ["numba", "shm.kernels.base.crc32c", "shm.kernels.base.compiler"])
def test_numba_uses_our_cache_directory_in_any_import_order(first: str, tmp_path: Path) -> None:
    code = f"import {first}, shm.kernels.base.compiler, numba; print(numba.config.CACHE_DIR)"
    assert run(code, tmp_path).startswith(str(tmp_path / "smq" / "kernels"))


USED = """
import resource, sys, tempfile
sys.stderr = sys.stdout
{}
import numpy as np
from shm.kernels.base.crc32c import crc32c, crc32c_update
data = np.arange(9, dtype=np.uint8)
ones = np.uint32(0xFFFFFFFF)
print(crc32c(data, 0, 9) == crc32c_update(data, 0, 9, ones) ^ ones)
"""
FULL = "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))"
REFUSED = """
import pathlib
def refuse(*_, **__): raise PermissionError(13, "refused")
pathlib.Path.unlink = refuse
"""
NOWHERE = "tempfile.gettempdir = lambda: '/dev/null'"


def test_kernels_that_a_full_disk_does_not_take_run_and_one_line_says_so(tmp_path: Path) -> None:
    said, works = run(USED.format(FULL), tmp_path).splitlines()
    assert said.startswith("compiled kernels are not kept")
    assert works == "True"
    assert not [each for each in tmp_path.rglob("*") if each.is_file()]
    assert run(USED.format(""), tmp_path) == "True"
    assert len(list(tmp_path.rglob("*.nbc"))) == 2


@pytest.mark.parametrize("kind", ["nbi", "nbc"])
def test_files_that_a_power_cut_has_left_in_pieces_are_made_anew(kind: str, tmp_path: Path) -> None:
    assert run(USED.format(""), tmp_path) == "True"
    files = [*tmp_path.rglob(f"*.{kind}")]
    sizes = [each.stat().st_size for each in files]
    for size in (0, 40):
        for each in files:
            os.truncate(each, size)
        assert run(USED.format(""), tmp_path) == "True"
        assert [each.stat().st_size for each in files] == sizes


def test_files_in_pieces_that_cannot_be_removed_are_not_read_again(tmp_path: Path) -> None:
    """What a power cut has left may be read-only, too."""
    assert run(USED.format(""), tmp_path) == "True"
    files = [*tmp_path.rglob("*.nbi")]
    for each in files:
        os.truncate(each, 0)
    said, works = run(USED.format(REFUSED), tmp_path).splitlines()
    assert said.startswith("compiled kernels are not kept")
    assert said.endswith("refused")
    assert works == "True"
    assert not sum(each.stat().st_size for each in files)


def test_without_a_directory_kernels_run_and_lie_in_no_other_place(tmp_path: Path) -> None:
    before = set(Path(compiler.__file__).parent.rglob("*.nbi"))
    said, works = run(USED.format(NOWHERE), Path("/dev/null")).splitlines()
    assert said.endswith("set XDG_CACHE_HOME")
    assert works == "True"
    elsewhere = f"import os; os.environ['NUMBA_CACHE_DIR'] = '{tmp_path / 'file'}'"
    (tmp_path / "file").touch()
    said, works = run(USED.format(elsewhere), tmp_path).splitlines()
    assert said.startswith("compiled kernels are not kept")
    assert works == "True"
    assert set(Path(compiler.__file__).parent.rglob("*.nbi")) == before


def test_of_a_version_whose_code_cannot_be_saved_no_index_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would name a file that may have another version's code."""

    @compiled
    def tripled(data: np.ndarray) -> Any:
        return data[0] * 3

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    tripling: Any = tripled
    file = tripling._cache._cache_file
    monkeypatch.setattr(compiler, "UNKEPT", [])
    assert tripling(np.array([1])) == 3
    assert Path(file._index_path).is_file()
    monkeypatch.setattr(file, "_save_data", full)
    assert tripling(np.array([1], np.uint8)) == 3
    assert compiler.UNKEPT == ["[Errno 28] No space left on device"]
    assert not Path(file._index_path).exists()


FORKING = """
import os, signal, threading
import numpy as np
from shm.kernels.base.crc32c import crc32c

def check():
    crc32c(np.arange(9, dtype=np.uint8), 0, 9)

thread, children = threading.Thread(target=check), []
thread.start()
while thread.is_alive():
    if child := os.fork():
        children.append(child)
        thread.join(0.001)
        continue
    signal.alarm(30)
    check()
    os._exit(0)
print(len(children) > 0, {os.waitpid(child, 0)[1] for child in children})
"""


def test_children_forked_while_a_thread_calls_its_first_kernel_call_it_too() -> None:
    assert run(FORKING, Path(os.environ["NUMBA_CACHE_DIR"]).parents[2]) == "True {0}"


def test_a_kernel_can_be_called_interpreted_holds_no_lock_and_counts_nothing() -> None:
    @compiled
    def doubled(data: np.ndarray, i: int) -> Any:
        return data[i] * 2

    doubling: Any = doubled
    data = np.array([3, 4])
    assert doubling(data, 1) == doubling.py_func(data, 1) == 8
    assert doubling.targetoptions["nogil"]
    assert doubling.targetoptions["_nrt"] is False  # No references are counted.


def test_kernels_that_pass_constants_share_one_version_of_what_they_call() -> None:
    @compiled
    def plus(data: np.ndarray, value: int) -> Any:
        return data[0] + value

    @compiled
    def twice(data: np.ndarray) -> Any:
        return plus(data, 3) + plus(data, 4)

    with event.install_recorder("numba:compile") as recorder:
        assert twice(np.array([1])) == 9
    started = [each.data["dispatcher"] for _, each in recorder.buffer if each.is_start]
    assert [each.py_func.__name__ for each in started] == ["twice", "plus"]


LOADS = "numba:compiler_lock"  # It is held also while a kernel comes from the cache.


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupt_while_a_kernel_is_compiled_is_raised_when_it_is_there() -> None:
    class Interrupting(event.Listener):
        def on_start(self, _: event.Event) -> None:
            signal.raise_signal(signal.SIGINT)

        def on_end(self, _: event.Event) -> None:
            pass

    @compiled
    def negated(data: np.ndarray) -> Any:
        return -data[0]

    negating: Any = negated
    with event.install_listener(LOADS, Interrupting()), pytest.raises(KeyboardInterrupt):
        negating(np.array([1]))
    assert len(negating.overloads) == 1
    assert negating(np.array([1])) == -1
