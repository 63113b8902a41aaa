"""The start and the end of a process that the supervisor forks.

First it ties its life to the supervisor's: the kernel kills it when the supervisor dies, so no
process serves data that the next start takes over. It ends with os._exit: the supervisor's stack
frames below it must never run.

The top of a process is the only place that catches every exception.
"""

import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, NoReturn

from smq.app.process.inheritance import Stop

EXIT_REFUSED = 78  # EX_CONFIG of sysexits.h: the reason is on stderr, and a retry will not help.

STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_NAME_BYTES_MAX = 15
_PROCESS_MRELEASE = 448  # The same on x86_64 and aarch64.

_libc = ctypes.CDLL(None, use_errno=True)  # Loaded before any fork.


class Ending(NamedTuple):
    """The end of a process: `exit_code` is minus the signal if one killed it."""

    name: str
    pid: int
    exit_code: int

    @property
    def words(self) -> str:
        who = f"{self.name} (process {self.pid})"
        if self.exit_code >= 0:
            return f"{who} ended with exit code {self.exit_code}"
        return f"{who} was killed by {signal.Signals(-self.exit_code).name}"


def fork(name: str, run: Callable[[], None], stop: Stop) -> int:
    """Fork a process that runs `run` and ends; returns its pid.

    SIGTERM requests `stop`. A terminal sends SIGINT to all processes: only the supervisor handles
    it. Signals are blocked during the fork, so that none runs the parent's handlers in the child.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    parent_pid = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        pid = os.fork()
        if pid == 0:
            _live(parent_pid, name, run, stop)
        return pid
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def kill(pid: int) -> None:
    """Kill a child that may wait for idle cores, where it would take half a minute to end.

    Most of that is to free its memory: we do it instead, if the kernel lets us (Linux 5.15).
    200 MB take 60 ms.
    """
    os.kill(pid, signal.SIGKILL)
    with suppress(OSError):
        fd = os.pidfd_open(pid)
        _libc.syscall(_PROCESS_MRELEASE, fd, 0)
        os.close(fd)


def _live(parent_pid: int, name: str, run: Callable[[], None], stop: Stop) -> NoReturn:
    code = 1
    try:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent_pid:  # The supervisor died before the request above.
            os._exit(1)
        _libc.prctl(_PR_SET_NAME, f"smq-{name}".encode()[:_NAME_BYTES_MAX])
        stop.on_signals({signal.SIGTERM})
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        run()
        code = 0
    except SystemExit as refusal:
        code = _refused(refusal)
    except BaseException:  # noqa: BLE001  (the top of a process)
        sys.stderr.write(f"{name}: this is a bug of smq; the process ends\n")
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _refused(refusal: SystemExit) -> int:
    if isinstance(refusal.code, str):
        sys.stderr.write(refusal.code + "\n")
        return EXIT_REFUSED
    return refusal.code or 0
