"""How a fork begins, and each way in which it ends."""

import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from smq.app.process import child
from smq.app.process.inheritance import Stop
from smq.client.wait import wait_readable
from tests.app.busy_core import busy_core


def ends_with(run: Callable[[], None]) -> int:
    pid = child.fork("test", run, Stop())
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def exits(code: int | str | None) -> Callable[[], NoReturn]:
    def run() -> NoReturn:
        sys.exit(code)

    return run


def test_it_ends_with_0_when_its_main_returns() -> None:
    assert ends_with(lambda: None) == 0


@pytest.mark.parametrize(("code", "ends"), [(3, 3), (None, 0), ("a sentence", child.EXIT_REFUSED)])
def test_an_exit_is_its_exit(code: int | str | None, ends: int) -> None:
    assert ends_with(exits(code)) == ends


def test_a_bug_ends_the_process_with_its_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    def run() -> None:
        raise ValueError("it was 7")

    assert ends_with(run) == 1
    assert "ValueError: it was 7" in capfd.readouterr().err


def test_sigterm_requests_a_stop_and_sigint_does_not() -> None:
    stop = Stop()
    ready, tell = os.pipe()

    def run() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        assert not stop.requested()
        os.write(tell, b"!")
        wait_readable([stop.fd], None)
        assert stop.requested()

    pid = child.fork("test", run, stop)
    os.read(ready, 1)
    os.kill(pid, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    for fd in (ready, tell):
        os.close(fd)
    stop.close()


def test_it_does_not_outlive_its_parent() -> None:
    read, write = os.pipe()
    parent = os.fork()
    if parent == 0:
        grandchild = child.fork("test", signal.pause, Stop())
        os.write(write, str(grandchild).encode())
        signal.pause()
    grandchild = int(os.read(read, 20))
    pidfd = os.pidfd_open(grandchild)
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    assert wait_readable([pidfd], 5)
    for fd in (read, write, pidfd):
        os.close(fd)


def test_an_ending_has_words() -> None:
    assert child.Ending("sealer", 7, -9).words == "sealer (process 7) was killed by SIGKILL"
    assert child.Ending("sealer", 7, 3).words == "sealer (process 7) ended with exit code 3"


def test_a_killed_child_leaves_no_memory_behind_although_no_core_is_idle() -> None:
    """A worker of the sealer held 200 MB for half a minute after it was replaced."""
    ours, theirs = os.pipe()

    def run() -> None:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        held = bytearray(b"x") * 100_000_000
        os.write(theirs, b"r")
        while held:
            pass

    pid = child.fork("test", run, Stop())
    assert os.read(ours, 1)
    with busy_core():
        os.sched_setaffinity(pid, os.sched_getaffinity(0))
        child.kill(pid)
        resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    assert resident < 50_000_000
    os.waitpid(pid, 0)
    os.close(ours)
    os.close(theirs)
