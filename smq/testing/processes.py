"""Brokers as child processes: the common part of our own and those we test against.

A broker starts in a directory of its own, is ready when its constructor returns, and has ended,
with all its processes, when `stop` returns. Every wait has a deadline, and its error says what it
waited for, with the end of the broker's output.
"""

import os
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Protocol, Self

STOP_SECONDS_MAX = 20.0
POLL_SECONDS = 0.002
TAIL_BYTES = 4000  # Of a broker's output, shown when it fails.


class Broker(Protocol):
    """A running broker of any make."""

    @property
    def name(self) -> str:
        """`smq` or `kafka`."""

    @property
    def port(self) -> int:
        """The first node's port on 127.0.0.1."""

    @property
    def bootstrap(self) -> str:
        """Every node as `host:port`, with commas between."""

    def port_of(self, listener: str) -> int:
        """The first node's port of a listener beside that one."""

    def pids(self) -> list[int]:
        """All its processes."""

    def stop(self) -> None:
        """Ask it to stop, and wait until it has."""

    def kill(self, process: str) -> None:
        """`kill -9` one of its processes by name; it restarts by itself or by `restart`."""

    def restart(self) -> None:
        """Start the processes that are not running, on the same port and data; returns when it
        serves."""

    def __enter__(self) -> Self:
        """The broker itself."""

    def __exit__(self, *_: object) -> None:
        """Stops it."""


class RunningProcess(Protocol):
    """The part of a process's interface that is used; subprocess.Popen has it."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None:
        """None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended. Raises subprocess.TimeoutExpired."""

    def send_signal(self, sig: int) -> None:
        """Send it a signal, if it still runs."""


class Child:
    """A process whose output goes to a file."""

    def __init__(self, process: RunningProcess, output: Path) -> None:
        self._process, self.output = process, output

    @classmethod
    def start(
        cls,
        command: Sequence[str],
        output: Path,
        environment: Mapping[str, str] | None = None,
        stdin: int = subprocess.DEVNULL,
        *,
        own_session: bool = False,
    ) -> Self:
        """Run a program; in a session of its own, Ctrl-C in our terminal does not reach it."""
        with output.open("ab") as sink:
            process = subprocess.Popen(  # noqa: S603
                command,
                stdin=stdin,
                stdout=sink,
                stderr=sink,
                env={**os.environ, **(environment or {})},
                start_new_session=own_session,
            )
        return cls(process, output)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def wait_ready(self, ready: Callable[[], bool], seconds_max: float) -> None:
        """Wait until `ready()`; raises with the child's last words when it ends or takes longer."""
        deadline = time.monotonic() + seconds_max
        while not ready():
            if not self.running:
                raise RuntimeError(f"{self._words()} ended before it was ready:\n{self.tail()}")
            if time.monotonic() > deadline:
                self.kill()
                raise TimeoutError(
                    f"{self._words()} is not ready after {seconds_max} s:\n{self.tail()}"
                )
            time.sleep(POLL_SECONDS)

    def terminate(self) -> None:
        """SIGTERM, then SIGKILL if it does not end in time."""
        if self.running:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise TimeoutError(
                f"{self._words()} did not stop in {STOP_SECONDS_MAX} s:\n{self.tail()}"
            ) from None

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(STOP_SECONDS_MAX)

    def tail(self) -> str:
        """The end of its output."""
        return self.output.read_bytes()[-TAIL_BYTES:].decode(errors="replace")

    def _words(self) -> str:
        return f"process {self.pid} ({self.output})"


class ReservedPorts:
    """Adjacent ports of 127.0.0.1, reserved while this is open.

    They are bound but not listening: a broker that sets SO_REUSEADDR may listen there, end and
    return, and the system gives the port to no other process that asks for any port.
    """

    def __init__(self, count: int = 1) -> None:
        while True:
            with ExitStack() as taking, suppress(OSError, OverflowError):  # The next one is taken.
                self.first = 0
                for number in range(count):
                    port = taking.enter_context(socket.socket())
                    port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    port.bind(("127.0.0.1", self.first and self.first + number))
                    self.first = self.first or int(port.getsockname()[1])
                self._taken = taking.pop_all()
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the ports."""
        self._taken.close()


def free_port() -> int:
    """A port that is free at this moment."""
    with ReservedPorts() as port:
        return port.first


# ApiVersions v0 without a client id: the smallest question every broker answers.
_QUESTION = struct.pack(">ihhih", 10, 18, 0, 1, -1)


def answers(port: int, seconds_max: float = 2.0) -> bool:
    """Whether a Kafka broker answers on this port of 127.0.0.1."""
    try:
        with socket.create_connection(("127.0.0.1", port), seconds_max) as connection:
            connection.sendall(_QUESTION)
            return len(connection.recv(8, socket.MSG_WAITALL)) == 8
    except OSError:
        return False
