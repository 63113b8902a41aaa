"""A fork of the supervisor: how it begins and how it ends.

It begins by tying its life to the supervisor's: the kernel kills it when the supervisor dies, so
that nobody is left serving data that the next start takes over. It ends with os._exit: the frames
of the supervisor below it must never run.

The top of a process is the only place that catches everything.
"""

import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from smq.app.process.inheritance import Stop

EXIT_REFUSED = 78  # EX_CONFIG of sysexits.h: it said why, and trying again will not help.

STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_NAME_BYTES_MAX = 15

_libc = ctypes.CDLL(None, use_errno=True)  # Loaded before any fork.


class Ending(NamedTuple):
    """How a process ended: `exit_code` is minus the signal when one killed it."""

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

    SIGTERM requests `stop`. SIGINT comes from a terminal to all of us: the supervisor answers it,
    children do not. Signals wait while we fork, so that none meets the handlers of the parent.
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


def _live(parent_pid: int, name: str, run: Callable[[], None], stop: Stop) -> NoReturn:
    code = 1
    try:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent_pid:  # It died before we asked to be told.
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
