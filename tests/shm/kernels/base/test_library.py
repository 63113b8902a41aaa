"""A library is used where it fits, whole, and nowhere else."""

import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from shm.kernels.base import library as module
from shm.kernels.base.library import (
    COMPILED_OTHERWISE,
    FILE,
    LEVELS,
    MANIFEST,
    code_line,
    find_library,
    have_sources_changed,
    machine_folder,
    sources_line,
)

V2, V3 = LEVELS["x86-64-v2"], LEVELS["x86-64-v3"]
# A library without kernels: a module that has nothing but its name.
SOURCE = """
#include <Python.h>
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "kernels", .m_size = -1};
PyMODINIT_FUNC PyInit_kernels(void) { return PyModule_Create(&definition); }
"""


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library's file."""
    headers = sysconfig.get_path("include")
    if not shutil.which("cc") or not Path(headers, "Python.h").is_file():
        pytest.skip("there is no C compiler, or no header of Python's")
    folder = tmp_path_factory.mktemp("linked")
    (folder / "kernels.c").write_text(SOURCE)
    command = ["cc", "-shared", "-fPIC", f"-I{headers}", "-o", FILE, "kernels.c"]
    subprocess.run(command, check=True, timeout=60, cwd=folder)
    return folder / FILE


class Place:
    """Where libraries lie for one test; nothing else is found."""

    def __init__(self, root: Path, linked: Path) -> None:
        self.root, self._linked = root, linked

    @property
    def machine(self) -> Path:
        return self.root / "machine"

    def shipped(self, level: str) -> Path:
        return self.root / "shm" / "compiled" / level

    def put(self, folder: Path) -> Path:
        """A library that is as it should be."""
        folder.mkdir(parents=True)
        shutil.copy(self._linked, folder / FILE)
        return self.describe(folder)

    @staticmethod
    def describe(folder: Path) -> Path:
        (folder / MANIFEST).write_text(f"{sources_line()}\n{code_line(folder)}\n")
        return folder


@pytest.fixture
def place(tmp_path: Path, linked: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(module, "SOURCES", tmp_path / "shm")
    monkeypatch.setattr(module, "machine_folder", lambda: tmp_path / "machine")
    monkeypatch.setattr(module, "features_here", lambda: V3)
    monkeypatch.setattr(module, "variables", dict)
    return Place(tmp_path, linked)


def found() -> str | None:
    """The folder of the library that is found, where none is passed over."""
    library, problems = find_library()
    assert problems == []
    return None if library is None else Path(library.__file__).parent.name


def problem(folder: Path) -> str:
    """Why the only library there is is not used."""
    library, problems = find_library()
    assert library is None
    (only,) = problems
    start = f"the linked kernels in {folder} are not used: "
    assert only.startswith(start)
    return only.removeprefix(start)


def test_the_best_library_that_the_processor_can_run_is_taken(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found() is None
    place.put(place.machine)
    assert found() == "machine"
    place.put(place.shipped("x86-64-v2"))
    assert found() == "x86-64-v2"
    place.put(place.shipped("x86-64-v3"))
    for features, best in (
        (V3 | {"avx512f"}, "x86-64-v3"),
        (V3 - {"bmi2"}, "x86-64-v2"),
        (V2 - {"sse4_2"}, "machine"),
    ):
        monkeypatch.setattr(module, "features_here", lambda has=features: has)
        assert found() == best


def test_a_library_of_other_sources_is_not_used(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.put(place.machine)
    monkeypatch.setattr(module, "sources_digest", lambda: "another")
    assert problem(place.machine) == "they were made of other sources"


@pytest.mark.parametrize("content", [b"", b"sources", b"\xff\n", b"{}"])
def test_a_library_whose_manifest_is_damaged_is_not_used(place: Place, content: bytes) -> None:
    (place.put(place.machine) / MANIFEST).write_bytes(content)
    assert problem(place.machine) == "they were made of other sources"


def test_a_library_that_is_not_the_one_of_its_manifest_is_not_used(place: Place) -> None:
    code = place.put(place.machine) / FILE
    whole = code.read_bytes()
    for content in (whole[:-1], b"", whole[:99] + b"x" + whole[100:]):
        code.write_bytes(content)
        assert problem(place.machine) == f"{FILE} is damaged"
    code.unlink()
    assert "No such file" in problem(place.machine)


def test_a_library_without_a_manifest_is_not_there_yet(place: Place) -> None:
    (place.put(place.machine) / MANIFEST).unlink()
    assert found() is None


def test_a_library_that_the_system_cannot_load_is_not_used(place: Place) -> None:
    code = place.put(place.machine) / FILE
    code.write_bytes(b"of another kind of machine")
    place.describe(place.machine)
    assert str(code) in problem(place.machine)


def test_a_module_that_is_no_library_is_not_used(place: Place) -> None:
    """As one is that NumPy or Python does not let in."""
    code = place.put(place.machine) / FILE
    content = code.read_bytes()
    assert b"PyInit_kernels" in content
    code.write_bytes(content.replace(b"PyInit_kernels", b"PyInit_another"))
    place.describe(place.machine)
    assert "PyInit_kernels" in problem(place.machine)


def test_after_a_damaged_library_the_next_best_is_used_and_both_are_named(place: Place) -> None:
    (place.put(place.shipped("x86-64-v3")) / FILE).write_bytes(b"")
    place.put(place.machine)
    library, problems = find_library()
    assert Path(library.__file__).parent == place.machine
    assert len(problems) == 1


@pytest.mark.parametrize("name", sorted(COMPILED_OTHERWISE))
def test_a_process_that_asks_numba_for_other_code_gets_no_library(
    place: Place, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    place.put(place.machine)
    monkeypatch.setattr(module, "variables", lambda: {name: "1"})
    assert found() is None


def test_without_a_private_directory_there_is_no_library_of_this_machine(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> Path:
        raise OSError

    place.put(place.machine)
    monkeypatch.setattr(module, "machine_folder", refuse)
    assert found() is None


def test_a_machines_folder_is_named_by_the_sources_and_the_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = machine_folder()
    assert first.parent == tmp_path / "smq" / "linked"
    with monkeypatch.context() as patch:
        patch.setattr(module, "_described_processor", lambda: "flags: another")
        second = machine_folder()
    monkeypatch.setattr(module, "sources_digest", lambda: "another")
    assert len({first, second, machine_folder()}) == 3


def test_sources_have_another_digest_when_any_of_them_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SOURCES", tmp_path)
    digests = set()
    for number, name in enumerate(("one.py", "one.py", "linked.c")):
        (tmp_path / name).write_text(str(number))
        module.sources_digest.cache_clear()
        digests.add(module.sources_digest())
    module.sources_digest.cache_clear()
    assert len(digests) == 3


def test_sources_that_change_after_their_first_digest_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SOURCES", tmp_path)
    source = tmp_path / "one.py"
    source.write_text("1")
    module.sources_digest.cache_clear()
    seen = [have_sources_changed()]
    source.write_text("2")
    seen.append(have_sources_changed())
    module.sources_digest.cache_clear()
    assert seen == [False, True]
