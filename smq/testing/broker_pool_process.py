"""The broker pool's program: load all, then fork a broker for each request on standard input.

A request is a datagram of JSON; the answer is the supervisor's pid, with a pidfd of it. The process
has only its main thread, which every fork relies on.

It adopts the processes whose supervisor was killed (a subreaper), so that they leave no zombies,
and so that it knows, at the end, when the last of them has gone.
"""

import ctypes
import gc
import json
import os
import select
import shutil
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress

from smq.app.process import child
from smq.app.process.inheritance import Stop
from smq.app.process.machine import this_machine
from smq.app.process.refusal import or_refuse
from smq.app.supervisor.composition import serve_broker, warm_kernels
from smq.model.config_sources import parse
from smq.testing.broker_pool import REQUEST_BYTES_MAX

_PR_SET_CHILD_SUBREAPER = 36
_REQUESTS = 0  # Standard input.


class Brokers:
    """The running supervisors."""

    def __init__(self) -> None:
        self.pids: set[int] = set()

    def start(self, settings: Mapping[str, str], output: str) -> int:
        """Fork one; returns its pid."""
        unused = Stop()
        pid = child.fork("supervisor", lambda: _live(settings, output), unused)
        unused.close()
        self.pids.add(pid)
        return pid

    def reap(self) -> None:
        """Reap dead children, adopted ones too."""
        with suppress(ChildProcessError):
            while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                self.pids.discard(pid)

    def end(self) -> None:
        """Kill them; returns when all their processes have gone."""
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            while True:
                os.wait()


def _live(settings: Mapping[str, str], output: str) -> None:
    """In the child: drop the pool's resources, then run as a supervisor."""
    signal.set_wakeup_fd(-1)
    for number in (*child.STOP_SIGNALS, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    sink = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (sink, 1), (sink, 2)):
        os.dup2(source, target)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    machine = this_machine(os.environ)
    config = or_refuse(parse(machine, command_line=settings))
    raise SystemExit(serve_broker(config, machine))


def main() -> None:
    """Serve until the owner has ended, or SIGTERM."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    owner = os.pidfd_open(os.getppid())
    signals, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wake)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)  # The pipe tells.
    warm_kernels()
    gc.collect()
    gc.freeze()
    brokers = Brokers()
    with socket.socket(fileno=_REQUESTS) as requests:
        while _serve_once(brokers, requests, owner, signals):
            pass
    brokers.end()
    shutil.rmtree(sys.argv[1], ignore_errors=True)


def _serve_once(brokers: Brokers, requests: socket.socket, owner: int, signals: int) -> bool:
    """Wait for a request and handle it; returns whether there may be more."""
    ready, _, _ = select.select([requests.fileno(), owner, signals], [], [])
    if owner in ready:
        return False
    if signals in ready and signal.SIGTERM in os.read(signals, 512):
        return False
    brokers.reap()
    if requests.fileno() in ready:
        request = requests.recv(REQUEST_BYTES_MAX)
        if not request:
            return False
        pid = brokers.start(**json.loads(request))
        pidfd = os.pidfd_open(pid)
        socket.send_fds(requests, [str(pid).encode()], [pidfd])
        os.close(pidfd)
    return True


if __name__ == "__main__":
    main()
