"""A broker whose processes do nothing but tell about themselves: real forks, real kills.

`python -m tests.app.fake_broker <data dir> <shards> [behaviour of a process: name=what]…`

A process answers each connection to its listener (TCP for shards, unix for the others) with one
line of JSON about itself. Behaviours: `refuse` (with a sentence), `die` (whenever it is started),
`die-once`, `hang` (when asked to stop), `bug` (an exception), `draw` (an epoch, at its start).
"""

import json
import os
import re
import select
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

from smq.app.process.clock import monotonic_ms
from smq.app.process.epochs import EpochDraws
from smq.app.process.inheritance import COORDINATOR, FRONT, SEALER, Inheritance, shard_name
from smq.app.process.loop import Loop
from smq.app.process.machine import this_machine
from smq.app.process.program import ONE_THREAD
from smq.app.process.status import Status, read_status
from smq.app.supervisor.serve import serve
from smq.app.supervisor.supervisor import Mains
from smq.client.wait import wait_readable
from smq.model.config import Config
from smq.model.config_sources import Machine, parse
from smq.model.setting import GiB

DEADLINE_MS = 30_000  # Longer than a process waits for a shard that was stopped.
RING = re.compile(r"smq-log-(\d+)")


def config_for(data_dir: Path, shards: int, **settings: object) -> Config:
    machine = Machine(2, 4 * GiB, data_dir, this_machine(os.environ).runtime_home)
    given = {"shards": shards, "port": 0, "ring.bytes": "4MiB", "data.dir": data_dir} | settings
    config = parse(machine, command_line=given)
    assert isinstance(config, Config), config
    return config


def about_me(inheritance: Inheritance) -> dict[str, Any]:
    process = Path("/proc/self")
    maps = (process / "maps").read_text().splitlines()
    return {
        "pid": os.getpid(),
        "parent": os.getppid(),
        "generation": inheritance.generation,
        "generations": [node.generation for node in inheritance.nodes.nodes()],
        "ports": [node.port for node in inheritance.nodes.nodes()],
        "logs": sorted(inheritance.logs),
        "mapped": sorted({int(found[1]) for found in map(RING.search, maps) if found}),
        "open": [str(fd.readlink()) for fd in (process / "fd").iterdir() if fd.is_symlink()],
        "threads": len([*(process / "task").iterdir()]),
        "epoch_sockets": sorted(inheritance.epoch_sockets),
    }


def draw_epoch(inheritance: Inheritance) -> int | None:
    loop, drawn = Loop(), list[int | None]()
    EpochDraws(loop, inheritance.epoch_sockets[COORDINATOR]).draw(drawn.append)
    while not drawn:
        loop.run_once(1)
    return drawn[0]


def run(name: str, listener: socket.socket, inheritance: Inheritance, behaviour: str) -> None:
    if behaviour == "refuse":
        raise SystemExit(f"smq: {name} will not")
    if behaviour == "bug":
        raise ValueError("a bug")
    once = inheritance.data_dir / f"{name}.died"
    if behaviour == "die" or (behaviour == "die-once" and not once.exists()):
        once.touch()
        os._exit(3)
    epoch = draw_epoch(inheritance) if behaviour == "draw" else None
    inheritance.report_ready()
    while not inheritance.stop_requested() or behaviour == "hang":
        ready = wait_readable([listener.fileno(), inheritance.stop.fd], 1)
        if listener.fileno() in ready:
            sock, _ = listener.accept()
            with sock:
                sock.sendall(json.dumps(about_me(inheritance) | {"epoch": epoch}).encode() + b"\n")


def main() -> int:
    data_dir, shards, *behaviours = sys.argv[1:]
    behaviour_of = dict(each.split("=") for each in behaviours)

    def shard(inheritance: Inheritance, node_id: int) -> None:
        name = shard_name(node_id)
        (listener,) = inheritance.tcp_listeners[node_id].values()
        run(name, listener, inheritance, behaviour_of.get(name, ""))

    def other(inheritance: Inheritance) -> None:
        name, listener = next(iter(inheritance.unix_listeners.items()))
        run(name, listener, inheritance, behaviour_of.get(name, ""))

    def front(inheritance: Inheritance) -> None:
        assert inheritance.http_listener is not None
        run(FRONT, inheritance.http_listener, inheritance, behaviour_of.get(FRONT, ""))

    settings = {"http.port": 0} if FRONT in behaviour_of else {}
    config = config_for(Path(data_dir), int(shards), **settings)
    return serve(config, 4 * GiB, Mains(shard, other, other, front, front), lambda: None)


class Running:
    """A started fake broker."""

    def __init__(self, data_dir: Path, shards: int, *behaviours: str) -> None:
        self.data_dir = data_dir
        self.lines: list[str] = []
        self.process = Popen(
            [sys.executable, "-m", __name__, str(data_dir), str(shards), *behaviours],
            stdout=PIPE,
            stderr=PIPE,
            text=True,
            bufsize=1,
            env=os.environ | dict.fromkeys(ONE_THREAD, "1"),
        )

    def wait_line(self, words: str) -> str:
        """The next line with these words; those before it are kept in `lines`."""
        assert self.process.stdout
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if words in line:
                return line
        raise AssertionError(f"no line with {words!r}: {self.lines} {self.stderr()}")

    def stderr(self) -> str:
        assert self.process.stderr
        return self.process.stderr.read()

    def wait_exit(self) -> int:
        return self.process.wait(DEADLINE_MS / 1000)

    def status(self) -> Status:
        found = read_status(self.data_dir)
        assert found
        return found[0]

    def runtime_dir(self) -> Path:
        return config_for(self.data_dir, 1).runtime_dir / self.status().cluster_id

    def pid(self, name: str) -> int:
        return self.status().processes[name].pid

    def ask_shard(self, node_id: int) -> Any:
        port = int(self.status().bootstrap.split(",")[node_id - 1].rpartition(":")[2])
        return answer(socket.create_connection(("127.0.0.1", port), DEADLINE_MS / 1000))

    def ask(self, name: str) -> Any:
        assert name in {COORDINATOR, SEALER}
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(DEADLINE_MS / 1000)
        sock.connect(str(self.runtime_dir() / f"{name}.sock"))
        return answer(sock)

    def ask_front(self) -> Any:
        host, _, port = self.status().http.rpartition(":")
        return answer(socket.create_connection((host, int(port)), DEADLINE_MS / 1000))

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


def answer(sock: socket.socket) -> Any:
    with sock, sock.makefile() as lines:
        return json.loads(lines.readline())


@contextmanager
def running(data_dir: Path, shards: int, *behaviours: str) -> Iterator[Running]:
    broker = Running(data_dir, shards, *behaviours)
    try:
        broker.wait_line("ready ")
        yield broker
    finally:
        broker.close()


def gone(pid: int) -> bool:
    """Whether the process has ended, within the deadline."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poller = select.poll()  # Unlike select() it takes descriptors of any number.
        poller.register(pidfd, select.POLLIN)
        return bool(poller.poll(DEADLINE_MS))
    finally:
        os.close(pidfd)


def eventually(true: Any, what: str) -> None:
    """Ask until it holds; the deadline is a failure."""
    deadline_ms = monotonic_ms() + DEADLINE_MS
    while not true():
        assert monotonic_ms() < deadline_ms, what
        select.select([], [], [], 0.01)


if __name__ == "__main__":
    sys.exit(main())
