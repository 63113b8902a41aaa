"""`smq serve` as a child process, with the same handles as the brokers it is compared with.

with SmqBroker(directory, {"shards": "2", "durability": "disk"}) as broker:
    broker.kill("shard-1")  # The supervisor restarts it.
"""

import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from smq.app.status import Status, read_status
from smq.testing.processes import POLL_SECONDS, Child, answers, free_port

READY_SECONDS_MAX = 60.0  # The first start on a machine compiles the kernels.
NOTICE_SECONDS_MAX = 5.0  # Until the supervisor has seen a death.
SUPERVISOR = "supervisor"

# Nobody waits for a second member of a group, as with the other brokers of the tests.
_SETTINGS = {"group.initial.rebalance.delay.ms": "0", "shards": "1"}


class SmqBroker:
    """One running SMQ in a directory of its own."""

    name = "smq"

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        values = {**_SETTINGS, **(settings or {})}
        # The path of a socket has 107 bytes at most, and directories of tests have long names.
        self._runtime = tempfile.TemporaryDirectory(prefix="smq-")
        shards = int(values["shards"])
        self.port = free_port(shards)
        self._ports = range(self.port, self.port + shards)
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in self._ports)
        self.data_dir = directory / "data"
        self._output = directory / "output.log"
        directory.mkdir(parents=True, exist_ok=True)
        values |= {
            "data.dir": str(self.data_dir),
            "runtime.dir": self._runtime.name,
            "port": str(self.port),
        }
        options = [f"--{name.replace('.', '-')}={value}" for name, value in values.items()]
        self._command = [sys.executable, "-m", "smq.app.cli", "serve", *options]
        self._child = self._start()

    def _start(self) -> Child:
        child = Child(self._command, self._output)
        child.wait_ready(self._ready, READY_SECONDS_MAX)
        return child

    def _ready(self) -> bool:
        found = read_status(self.data_dir)
        return found is not None and found[0].ready and all(map(answers, self._ports))

    def status(self) -> Status:
        """What the supervisor says of its processes."""
        found = read_status(self.data_dir)
        assert found is not None, "the broker does not run"
        return found[0]

    def tail(self) -> str:
        """The end of what it has said."""
        return self._child.tail()

    def pids(self) -> list[int]:
        if not self._child.running:
            return []
        processes = self.status().processes.values()
        return [self._child.pid, *(each.pid for each in processes if each.pid)]

    def kill(self, process: str) -> None:
        """`kill -9` a process by its name; returns when the supervisor has noticed."""
        if process == SUPERVISOR:
            self._child.kill()
            return
        pid = self.status().processes[process].pid
        assert pid, f"{process} is down already"
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + NOTICE_SECONDS_MAX
        while self.status().processes[process].pid == pid:
            assert time.monotonic() < deadline, f"the supervisor has not noticed {process}'s death"
            time.sleep(POLL_SECONDS)

    def restart(self) -> None:
        """Wait until all serves again; starts the whole if the supervisor was killed."""
        if self._child.running:
            self._child.wait_ready(self._ready, READY_SECONDS_MAX)
        else:
            self._child = self._start()

    def stop(self) -> None:
        self._child.terminate()
        self._runtime.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
