"""One half of the tests, as `make check` and `make test` run them: `python -m tests.suite quick`.

A failed test runs once more, alone and in a fresh process: on two cores that also run brokers and
compilers, other programs' clients miss their own deadlines. What fails twice fails the run, and
what passed only alone is named in the output. Any other end of pytest than 'some tests failed'
(nothing collected, a crash, a usage error) fails at once.

A half has a limit of its own. pytest-timeout ends a test that waits in Python; it cannot end a
loop in compiled code, and a run that never ends would be worth less than one that fails.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest


@dataclass(frozen=True, slots=True)
class Half:
    """`marks` choose the tests, which so many `processes` share; a test may take `test_s` seconds,
    all together `limit_s`."""

    marks: str
    processes: int
    test_s: int
    limit_s: int


HALVES = {
    "quick": Half(
        "not slow and not clients and not oracle and not spark and not sim and not long",
        2,
        300,
        1500,
    ),
    # These wait for brokers and other programs: two leave half of two cores idle.
    "slower": Half("(slow or clients or spark or sim) and not oracle and not long", 3, 600, 3000),
}

SLOWER_MARKS = frozenset({"slow", "clients", "spark", "sim"})
_NAMED = re.compile(rf"\bmark\.({'|'.join(sorted(SLOWER_MARKS))})\b")


def may_hold_slower(file: Path) -> bool:
    """Whether a file of tests names a mark of the slower half, which imports no other file."""
    return _NAMED.search(file.read_text()) is not None


def left_out(tests: Iterable[tuple[Path, str, Collection[str]]]) -> list[str]:
    """The names of tests, given as (file, name, marks), that the slower half would not find.

    Each of them has a mark of that half, but its file does not name one: it came from elsewhere.
    """
    slower = [(file, name) for file, name, marks in tests if not SLOWER_MARKS.isdisjoint(marks)]
    found = {file: may_hold_slower(file) for file, _ in slower}
    return [name for file, name in slower if not found[file]]


def run(half: Half, arguments: Sequence[str] = ()) -> int:
    """Run the tests of a half, then its failures once more. Return pytest's exit code.

    Raises subprocess.TimeoutExpired when the half takes longer than its limit.
    """
    with TemporaryDirectory(prefix="smq-suite-") as cache:
        pytest_ = (
            *(sys.executable, "-m", "pytest", "-q", "-m", half.marks),
            *("--timeout", str(half.test_s), "-o", f"cache_dir={Path(cache, 'cache')}"),
            *arguments,
        )
        status = _call((*pytest_, "-n", str(half.processes), "--dist", "worksteal"), half.limit_s)
        if status != pytest.ExitCode.TESTS_FAILED:
            return status
        print("\nFailed tests run once more, alone:", flush=True)  # noqa: T201
        return _call((*pytest_, "--last-failed", "--last-failed-no-failures", "none"), half.limit_s)


def _call(command: Sequence[str], limit_s: float) -> int:
    """Run a command in a process group of its own, which ends with it."""
    with subprocess.Popen(command, start_new_session=True) as process:
        try:
            return process.wait(limit_s)
        finally:
            _end_group(process.pid)


def _end_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    sys.exit(run(HALVES[sys.argv[1]], sys.argv[2:]))
