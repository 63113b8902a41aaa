"""Clients that send arbitrary bytes, and the memory of the broker's processes meanwhile."""

import os
import re
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any, Self

import psutil

from smq.testing.smq_broker import SmqBroker
from tests.app.shard_client import decoded, request

MiB = 1024 * 1024
ANSWER_SECONDS_MAX = 10.0
SAMPLE_SECONDS = 0.005
_ANONYMOUS = re.compile(r"^RssAnon:\s+(\d+) kB", re.MULTILINE)


class RawClient:
    """One connection."""

    def __init__(self, door: int | Path, receive_bytes: int = 0) -> None:
        """`door` is a port of this host, or a unix socket."""
        is_unix = isinstance(door, Path)
        self.socket = socket.socket(socket.AF_UNIX if is_unix else socket.AF_INET)
        if receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(ANSWER_SECONDS_MAX)
        self.socket.connect(str(door) if is_unix else ("127.0.0.1", door))

    def send(self, data: bytes) -> None:
        """As far as the broker takes it before it hangs up."""
        try:
            self.socket.sendall(data)
        except ConnectionError:
            return

    def answer(self) -> bytes | None:
        """The next answer without its size; None: the broker has hung up."""
        size = self._read(4)
        return size and self._read(int.from_bytes(size))

    def _read(self, count: int) -> bytes | None:
        data = b""
        while len(data) < count:
            try:
                got = self.socket.recv(count - len(data))
            except ConnectionError:
                return None
            if not got:
                return None
            data += got
        return data

    def ask(self, name: str, version: int, message: Any) -> Any:
        """What is answered; None: the broker has hung up."""
        self.send(request(name, version, message))
        body = self.answer()
        return None if body is None else decoded(name, version, body)

    def reset(self) -> None:
        """Hang up as one who died."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


def processes(broker: SmqBroker) -> dict[str, int]:
    """The pids of all its processes, workers too, by name."""
    found = {name: each.pid for name, each in broker.status().processes.items()}
    found["supervisor"] = broker.status().supervisor_pid
    for name, pid in [*found.items()]:
        for child in psutil.Process(pid).children():
            if child.pid not in found.values():
                found[f"{name}/{child.pid}"] = child.pid
    return found


def own_bytes(pid: int) -> int:
    """The memory that a process has for itself: without rings, files and libraries."""
    found = _ANONYMOUS.search(Path(f"/proc/{pid}/status").read_text())
    return 1024 * int(found[1]) if found else 0


@contextmanager
def bounded(broker: SmqBroker, grows_bytes_max: int, worker_bytes_max: int) -> Iterator[None]:
    """No process may end in the block, nor hold more than it did by so much, at any moment.

    Workers of the sealer come and go; each may hold so much.
    """
    lives = {name: each.pid for name, each in broker.status().processes.items()}
    before = {pid: own_bytes(pid) for pid in (broker.status().supervisor_pid, *lives.values())}
    over: list[str] = []
    done = Event()

    def watch() -> None:
        while not done.wait(SAMPLE_SECONDS):
            over.extend(_over(broker, before, grows_bytes_max, worker_bytes_max))

    watcher = Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
    assert not over, over[-1]
    assert {name: each.pid for name, each in broker.status().processes.items()} == lives
    assert "this is a bug" not in broker.output.read_text()


def _over(
    broker: SmqBroker, before: dict[int, int], grows_bytes_max: int, worker_bytes_max: int
) -> Iterator[str]:
    try:
        for name, pid in processes(broker).items():
            held = own_bytes(pid)
            limit = before[pid] + grows_bytes_max if pid in before else worker_bytes_max
            if held > limit:
                yield f"{name} holds {held / MiB:.1f} MiB, more than {limit / MiB:.1f}"
    except (psutil.Error, OSError):  # A worker has gone while we looked.
        return


@contextmanager
def crowd(
    door: int | Path, count: int, greet: Callable[[RawClient], None]
) -> Iterator[list[RawClient]]:
    """So many clients that stay connected."""
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(door)) for _ in range(count)]
        for client in clients:
            greet(client)
        yield clients


def descriptors(pid: int) -> int:
    """How many a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208  (only their number)
