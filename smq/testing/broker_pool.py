"""The broker pool: one warm process that forks brokers for tests on demand.

    test process ─asks→ broker pool ─forks→ supervisor ─forks→ shards, coordinator, sealer

A start of `smq serve` spends most of its time on imports and on loading kernels.
The pool does that once a session and starts no thread, so that it can be forked any number of
times. Each fork is a normal broker on ports and files of its own.

When its owner process ends, in any way, the pool kills its brokers, removes its directory, and ends
too. `smq.testing.broker_pool_process` is its program.
"""

import atexit
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock

from smq.app.process.program import ONE_THREAD
from smq.testing.processes import Child

REQUEST_BYTES_MAX = 64 * 1024
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  (a tmpfs, on every Linux)
HATCH_SECONDS_MAX = 300.0  # The first one on a machine compiles the kernels.
ROOM_BYTES_MIN = 1024**3  # Containers get 64 MiB of it, which a few brokers would fill.


class BrokerPool:
    """The warm process. `home` is a directory for its brokers, on a tmpfs if there is one."""

    def __init__(self) -> None:
        self.owner_pid = os.getpid()
        self.home = Path(tempfile.mkdtemp(prefix="smq-", dir=_roomy_tmpfs()))
        self._asking = Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(HATCH_SECONDS_MAX)
        with theirs:
            self._process = Child.start(
                [sys.executable, "-m", "smq.testing.broker_pool_process", str(self.home)],
                self.home / "broker_pool.log",
                dict.fromkeys(ONE_THREAD, "1"),
                stdin=theirs.fileno(),
                own_session=True,
            )

    @property
    def running(self) -> bool:
        """Whether this process may use it: a fork of the owner must start its own."""
        return self.owner_pid == os.getpid() and self._process.running

    def start(self, settings: Mapping[str, str], output: Path) -> Child:
        """Fork a broker; its output goes to a file. Settings are those of `smq serve`."""
        request = json.dumps({"settings": dict(settings), "output": str(output)}).encode()
        try:
            with self._asking:
                self._socket.send(request)
                answer, fds, _, _ = socket.recv_fds(self._socket, REQUEST_BYTES_MAX, 1)
        except OSError as reason:
            raise RuntimeError(
                f"the pool starts no broker: {reason}\n{self._process.tail()}"
            ) from reason
        if not answer:
            raise RuntimeError(f"the pool starts no broker:\n{self._process.tail()}")
        return Child(_Hatched(int(answer), fds[0]), output)

    def close(self) -> None:
        """End it, with all its brokers and files."""
        self._socket.close()
        if self.owner_pid == os.getpid():
            self._process.terminate()
            shutil.rmtree(self.home, ignore_errors=True)  # It has, unless it was killed.


class _Hatched:
    """A broker's supervisor: our grandchild, so the kernel tells us no exit code but 0."""

    def __init__(self, pid: int, pidfd: int) -> None:
        self.pid, self._pidfd = pid, pidfd
        self._events = select.poll()
        self._events.register(pidfd, select.POLLIN)

    def poll(self) -> int | None:
        """See Process."""
        return 0 if self._has_ended(0) else None

    def wait(self, timeout: float | None = None) -> int:
        """See Process."""
        if not self._has_ended(timeout):
            raise subprocess.TimeoutExpired("smq serve", timeout or 0)
        return 0

    def send_signal(self, sig: int) -> None:
        """See Process."""
        if not self._has_ended(0):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, sig)

    def _has_ended(self, seconds: float | None) -> bool:
        milliseconds = None if seconds is None else seconds * 1000
        if self._pidfd >= 0 and self._events.poll(milliseconds):
            os.close(self._pidfd)
            self._pidfd = -1
        return self._pidfd < 0


_pools: list[BrokerPool] = []


def broker_pool() -> BrokerPool:
    """This process's own pool; the first call starts it, and the process's end ends it."""
    if not (_pools and _pools[-1].running):
        _pools.append(BrokerPool())
        atexit.register(_pools[-1].close)
    return _pools[-1]


def _roomy_tmpfs() -> Path | None:
    """A tmpfs with enough room; None: there is none."""
    with suppress(OSError):
        if (
            os.access(SHARED_MEMORY, os.W_OK)
            and shutil.disk_usage(SHARED_MEMORY).free >= ROOM_BYTES_MIN
        ):
            return SHARED_MEMORY
    return None
