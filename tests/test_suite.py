"""The runner of the test halves: what fails twice fails, what hangs in compiled code ends."""

import subprocess
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.suite import HALVES, SLOWER_MARKS, Half, left_out, may_hold_slower, run

ANY = Half("not none_has_this", processes=2, test_s=30, limit_s=60)


def write(directory: Path, body: str) -> tuple[str, ...]:
    (directory / "pytest.ini").write_text("[pytest]\nmarkers = none_has_this\n")
    (directory / "test_it.py").write_text(body)
    return ("-c", str(directory / "pytest.ini"), "--rootdir", str(directory), str(directory))


@pytest.mark.slow
def test_a_test_that_passes_alone_is_named_and_does_not_fail_the_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    where = write(
        tmp_path,
        "import pathlib\n"
        "def test_good(): pass\n"
        "def test_once():\n"
        f"    seen = pathlib.Path({str(tmp_path / 'seen')!r})\n"
        "    was, _ = seen.exists(), seen.touch()\n"
        "    assert was\n",
    )
    assert run(ANY, where) == 0
    out = capfd.readouterr().out
    assert "1 failed, 1 passed" in out
    assert "FAILED" in out
    assert "test_once" in out


@pytest.mark.slow
def test_a_test_that_fails_twice_fails_the_run(tmp_path: Path) -> None:
    where = write(tmp_path, "def test_good(): pass\ndef test_bad(): assert False\n")
    assert run(ANY, where) == pytest.ExitCode.TESTS_FAILED


@pytest.mark.slow
def test_nothing_collected_and_files_that_do_not_import_fail_the_run(tmp_path: Path) -> None:
    assert run(ANY, write(tmp_path, "")) == pytest.ExitCode.NO_TESTS_COLLECTED
    assert run(ANY, write(tmp_path, "import there_is_no_such_module\n")) != 0


@pytest.mark.slow
def test_a_hang_that_no_signal_handler_ends_ends_at_the_limit_with_its_children(
    tmp_path: Path,
) -> None:
    where = write(
        tmp_path,
        "import os, pathlib, signal, subprocess, time\n"
        "def test_hangs():\n"
        "    child = subprocess.Popen(['sleep', '1000'])\n"
        f"    pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(child.pid))\n"
        "    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\n"
        "    time.sleep(1000)\n",
    )
    with pytest.raises(subprocess.TimeoutExpired):
        run(replace(ANY, test_s=1, limit_s=15), where)
    child, deadline = int((tmp_path / "pid").read_text()), time.monotonic() + 10
    while not is_over(child):  # A process that is killed dies when it gets a core.
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_over(pid: int) -> bool:
    """Whether a process has ended; perhaps nobody has asked for its exit code yet."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def test_each_test_belongs_to_exactly_one_half_or_is_for_a_command_of_its_own() -> None:
    names = ("slow", "clients", "oracle", "spark", "sim", "long")
    for bits in range(2 ** len(names)):
        marks = {name: bool(bits >> place & 1) for place, name in enumerate(names)}
        quick, slower = (
            eval(half.marks, {"__builtins__": {}}, marks)  # marks as pytest evaluates them
            for half in (HALVES["quick"], HALVES["slower"])
        )
        assert (quick or slower) is not (marks["oracle"] or marks["long"])
        assert not (quick and slower)


def test_the_slower_half_imports_each_file_that_names_one_of_its_marks(tmp_path: Path) -> None:
    file = tmp_path / "test_it.py"
    for mark in SLOWER_MARKS:
        file.write_text(f"import pytest\npytestmark = [pytest.mark.{mark}]\n")
        assert may_hold_slower(file)
    file.write_text("import pytest\n@pytest.mark.slowest\ndef test_good(): pass\n")
    assert not may_hold_slower(file)


def test_a_test_whose_mark_its_file_does_not_name_is_reported(tmp_path: Path) -> None:
    names, inherits = tmp_path / "test_names.py", tmp_path / "test_inherits.py"
    names.write_text("import pytest\n@pytest.mark.sim\ndef test_good(): pass\n")
    inherits.write_text("from elsewhere import marked\n@marked\ndef test_good(): pass\n")
    tests = [
        (names, "named", {"sim"}),
        (inherits, "lost", {"sim"}),
        (inherits, "quick", {"asyncio"}),
    ]
    assert left_out(tests) == ["lost"]
