"""An SMQ broker for a test, with the same interface as the brokers it is compared with.

with SmqBroker(directory, {"shards": "2", "durability": "disk"}) as broker:
    broker.kill("shard-1")  # The supervisor restarts it.
"""

import fcntl
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from smq.app.process.machine import this_machine
from smq.app.process.status import Status, read_status
from smq.model.config import SETTINGS, Config
from smq.model.config_rules import size
from smq.model.config_sources import parse
from smq.model.setting import ENVIRONMENT_PREFIX
from smq.testing.broker_pool import broker_pool
from smq.testing.processes import POLL_SECONDS, Child, ReservedPorts, answers

if TYPE_CHECKING:
    from smq.client.client import Client

READY_SECONDS_MAX = 60.0  # The first start on a machine compiles the kernels.
NOTICE_SECONDS_MAX = 5.0  # Until the supervisor has seen a death, or its children its own.
SUPERVISOR = "supervisor"

# A group does not wait for a second member, as with the other brokers of the tests.
_SETTINGS = {"group.initial.rebalance.delay.ms": "0", "shards": "1"}
# Where tests run no core is idle.
_AT_ONCE = {"seal.late.ms": "0"}
# For a broker that lives for one test, in memory: room for what tests send, and sealed soon.
_SMALL = {
    "ring.bytes": "16MiB",
    "wal.segment.bytes": "4MiB",
    "wal.bytes.max": "256MiB",
    "wal.keep.bytes": "0",
}


class SmqBroker:
    """One running SMQ in a directory of its own, forked by this process's broker pool.

    Its ports are its own until `stop`, also while it is down.
    """

    name = "smq"

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        *,
        runtime_home: Path | None = None,
        listeners: Mapping[str, str] | None = None,
    ) -> None:
        """`listeners`: the protocols of further listeners, by their names."""
        values = {**_SETTINGS, **(settings or {})}
        # The path of a socket has 107 bytes at most, and directories of tests have long names.
        self._runtime = tempfile.TemporaryDirectory(prefix="smq-", dir=runtime_home)
        shards = int(values["shards"])
        self._reserved = ReservedPorts(shards)
        self._also = {name: ReservedPorts(shards) for name in listeners or ()}
        self.port = self._reserved.first
        self._ports = range(self.port, self.port + shards)
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in self._ports)
        self.data_dir = directory / "data"
        self.output = directory / "output.log"
        directory.mkdir(parents=True, exist_ok=True)
        self.settings = values | {
            "data.dir": str(self.data_dir),
            "runtime.dir": self._runtime.name,
            **(self._named(listeners) if listeners else {"port": str(self.port)}),
        }
        try:
            self._child = self._start()
        except BaseException:
            self._let_go()
            raise

    def _named(self, protocols: Mapping[str, str]) -> dict[str, str]:
        """The settings of several listeners; PLAINTEXT is the first."""
        ports = {"PLAINTEXT": self.port} | {name: self.port_of(name) for name in protocols}
        mapped = {"PLAINTEXT": "PLAINTEXT", **protocols}
        return {
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
            "listener.security.protocol.map": ",".join(map(":".join, mapped.items())),
        }

    def port_of(self, listener: str) -> int:
        """The first shard's port of a further listener."""
        return self._also[listener].first

    def _start(self) -> Child:
        child = self._launch(self.settings)
        child.wait_ready(self._ready, READY_SECONDS_MAX)
        return child

    def _launch(self, settings: Mapping[str, str]) -> Child:
        return broker_pool().start(_AT_ONCE | dict(settings), self.output)

    def _ready(self) -> bool:
        found = read_status(self.data_dir)
        return found is not None and found[0].ready and all(map(answers, self._ports))

    @property
    def runtime_dir(self) -> Path:
        """Where its sockets are."""
        return Path(self._runtime.name) / self.status().cluster_id

    def connect(self, **options: Any) -> "Client":  # noqa: ANN401  (those of smq.connect)
        """An SDK client of it; options are those of `smq.connect`."""
        from smq.client.client import connect  # noqa: PLC0415  (Not every test needs the SDK.)

        return connect(self.bootstrap, **options)

    def status(self) -> Status:
        """The supervisor's status of its processes."""
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
        """Wait until all processes serve again; starts the broker if its supervisor was killed."""
        if self._child.running:
            self._child.wait_ready(self._ready, READY_SECONDS_MAX)
        else:
            self._child = self._start()

    def stop(self) -> None:
        """Ask it to stop, and wait until it has. It may be restarted."""
        self._child.terminate()

    def close(self) -> None:
        """Stop it for good and release its ports. Its data stays."""
        try:
            self.stop()
        finally:
            self._let_go()

    def end(self) -> None:
        """Kill it for good, with all its processes; its data may then be removed."""
        self._child.kill()
        self._let_go()
        deadline = time.monotonic() + NOTICE_SECONDS_MAX
        with (self.data_dir / "lock").open() as lock:  # Each of its processes holds it.
            while True:
                with suppress(BlockingIOError):
                    return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                assert time.monotonic() < deadline, "its processes outlive the supervisor"
                time.sleep(POLL_SECONDS)

    def _let_go(self) -> None:
        for reserved in (self._reserved, *self._also.values()):
            reserved.close()
        self._runtime.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SmqCommand(SmqBroker):
    """`smq serve` as a program of its own, as users run it: for benchmarks."""

    def _launch(self, settings: Mapping[str, str]) -> Child:
        names = settings.keys() & SETTINGS.keys()  # Those of one listener are no options.
        options = [f"--{name.replace('.', '-')}={settings[name]}" for name in names]
        others = {
            ENVIRONMENT_PREFIX + name.replace(".", "_").upper(): settings[name]
            for name in settings.keys() - names
        }
        command = [sys.executable, "-m", "smq.cli.main", "serve", *options]
        return Child.start(command, self.output, others)


@contextmanager
def fresh_broker(settings: Mapping[str, str]) -> Iterator[SmqBroker]:
    """See smq.testing.broker."""
    values = _SETTINGS | _SMALL | dict(settings)
    machine = this_machine(os.environ)
    config = parse(machine, command_line=values)
    if isinstance(config, Config):
        config = size(config, config.shards, machine.memory_bytes)
    if not isinstance(config, Config):
        raise ValueError("; ".join(config))  # noqa: TRY004  (all that is wrong)
    directory = Path(tempfile.mkdtemp(dir=broker_pool().home))
    try:
        fresh = SmqBroker(directory, values, runtime_home=directory)
        try:
            yield fresh
        finally:
            fresh.end()
    finally:
        shutil.rmtree(directory)
