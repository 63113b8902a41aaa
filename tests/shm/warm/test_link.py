"""A linked kernel takes what fits a version of it, and leaves all else to Numba."""

import fcntl
import os
import resource
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shm.kernels.base.library import FILE, MANIFEST
from shm.private import open_lock
from shm.warm import link as module
from shm.warm.link import link, why_not_linked, why_unlinkable
from tests.clients.toolchain import missing


def need_compiler() -> None:
    if why := why_unlinkable():
        missing(why)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    need_compiler()
    folder = tmp_path_factory.mktemp("linked")
    command = [sys.executable, "-m", "tests.shm.warm.linked_kernels", str(folder)]
    environment = os.environ | {"NUMBA_OPT": "3", "NUMBA_CACHE_DIR": str(folder / "cache")}
    subprocess.run(command, env=environment, check=True, timeout=120)
    assert (folder / MANIFEST).is_file()
    spec = spec_from_file_location("kernels", folder / FILE)
    assert spec is not None
    assert spec.loader is not None
    loaded = module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def linked(library: Any, name: str) -> Any:
    """A kernel of the library; `compiled` stands for what Numba would compile."""

    def compiled(*args: Any) -> tuple[Any, ...]:
        return ("compiled", *args)

    return library.kernel(f"__main__:{name}", lambda: compiled)


def test_a_call_takes_the_version_of_its_arguments(library: Any) -> None:
    added = linked(library, "added")
    assert added(np.array([7]), 3) == added(np.array([7, 8]), np.int64(3)) == 10
    assert added(np.array([250, 1], np.uint8), 30) == 280
    assert added(np.array([7]), np.int32(-3)) == 4


@pytest.mark.parametrize(
    "arguments",
    [
        (np.array([7], np.int32), 3),  # Other elements,
        (np.array([7], ">i8"), 3),  # another order,
        (np.array([[7]]), 3),  # another shape,
        (np.arange(4)[::2], 3),  # another layout,
        (np.zeros(0, np.float64), 3),
        (np.array([7]), 1 << 63),  # too large,
        (np.array([7]), 3.0),
        (np.array([7]), None),
        ([7], 3),
        (np.array([7]),),  # and another number of them.
        (np.array([7]), 3, 4),
        (),
    ],
)
def test_arguments_that_fit_no_version_go_to_numba(library: Any, arguments: Any) -> None:
    assert linked(library, "added")(*arguments) == ("compiled", *arguments)


def test_a_kernel_that_only_kernels_call_is_left_to_numba(library: Any) -> None:
    assert linked(library, "no_such")(1) == ("compiled", 1)


def test_a_call_raises_the_error_of_numba(library: Any) -> None:
    def refuse(*_: Any) -> None:
        raise TypeError("no version")

    with pytest.raises(TypeError, match="no version"):
        library.kernel("__main__:added", lambda: refuse)(1)
    with pytest.raises(ZeroDivisionError):
        library.kernel("__main__:added", lambda: 1 // 0)(1)


def test_arrays_of_two_dimensions_tuples_and_flags_are_taken(library: Any) -> None:
    assert linked(library, "total")(np.arange(6).reshape(2, 3)) == 15
    is_more = linked(library, "is_more")
    assert is_more((np.array([5]), 4), True) is True
    assert is_more((np.array([5]), 5), np.True_) is False
    assert is_more((np.array([5]), 4), False) is False
    assert is_more((1, 4), True) == ("compiled", (1, 4), True)
    assert is_more((np.array([5]), 4, 3), True)[0] == "compiled"
    assert is_more((np.array([5]), 4), 1)[0] == "compiled"


def test_results_are_what_python_has(library: Any) -> None:
    assert linked(library, "three")(np.array([4, 5]), True) == (2, True, 4)
    assert linked(library, "small")(np.array([1 << 31], np.int64)) == 1 << 31
    assert linked(library, "large")(np.array([1 << 63], np.uint64)) == 1 << 63
    data = np.zeros(1, np.int64)
    assert linked(library, "put")(data, 9) is None
    assert data[0] == 9


def test_memory_that_may_not_be_written_fits_no_version_that_writes(library: Any) -> None:
    data = np.zeros(1, np.int64)
    data.flags.writeable = False
    assert linked(library, "put")(data, 9)[0] == "compiled"


def test_numba_gets_the_type_of_a_kernel_that_another_kernel_calls(library: Any) -> None:
    class Dispatcher:
        _numba_type_ = "its type"

    assert library.kernel("__main__:added", Dispatcher)._numba_type_ == "its type"
    with pytest.raises(ZeroDivisionError):
        _ = library.kernel("__main__:added", lambda: 1 // 0)._numba_type_


def test_without_a_c_compiler_or_pythons_headers_nothing_is_linked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_compiler()
    with monkeypatch.context() as patch:
        patch.setattr("shutil.which", lambda _: None)
        with pytest.raises(SystemExit, match="no C compiler"):
            link(tmp_path)
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    with pytest.raises(SystemExit, match=r"Python\.h"):
        link(tmp_path)
    assert not list(tmp_path.iterdir())


def test_sources_that_change_while_their_kernels_are_compiled_are_not_linked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_compiler()
    monkeypatch.setattr(module, "have_sources_changed", lambda: True)
    with pytest.raises(SystemExit, match="changed meanwhile"):
        link(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_machines_library_is_made_of_no_cache_and_no_code_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = {}
    given = {"NUMBA_CACHE_DIR": "kernels of other sources", "NUMBA_BOUNDSCHECK": "1", "HOME": "/h"}
    monkeypatch.setattr(module, "machine_folder", lambda: tmp_path)
    monkeypatch.setattr("os.nice", lambda _: None)
    monkeypatch.setattr("os.environ", given)
    monkeypatch.setattr(module, "link_all", lambda _: seen.update(given))
    module.main()
    assert seen == {"NUMBA_OPT": "3", "HOME": "/h"}


def test_an_attempt_that_fails_leaves_its_reason_until_one_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: str) -> None:
        raise SystemExit("the C compiler failed:\nno stdio.h")

    monkeypatch.setattr(module, "machine_folder", lambda: tmp_path)
    monkeypatch.setattr("os.nice", lambda _: None)
    monkeypatch.setattr("os.environ", {})
    assert why_not_linked() == ""
    monkeypatch.setattr(module, "link_all", fail)
    with pytest.raises(SystemExit):
        module.main()
    assert why_not_linked() == "the C compiler failed: no stdio.h"
    monkeypatch.setattr(module, "link_all", lambda _: None)
    module.main()
    assert why_not_linked() == ""


def test_an_attempt_that_fails_on_a_full_disk_says_so_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(_: str) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
        (tmp_path / "kernels.o").write_bytes(b"code")

    monkeypatch.setattr(module, "machine_folder", lambda: tmp_path)
    monkeypatch.setattr(module, "link_all", fill)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with pytest.raises(OSError, match="too large"):
            module._try_to_link(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert why_not_linked() == "the disk was full"


def test_while_another_process_links_nothing_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "machine_folder", lambda: tmp_path)
    monkeypatch.setattr("os.nice", lambda _: None)
    monkeypatch.setattr("os.environ", {})
    monkeypatch.setattr(module, "link_all", lambda _: pytest.fail("it links"))
    other = open_lock(tmp_path)
    try:
        fcntl.flock(other, fcntl.LOCK_EX)
        module.main()
    finally:
        os.close(other)
