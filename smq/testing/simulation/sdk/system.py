"""Replacements of the system modules that the SDK imports, for simulated programs.

`installed` replaces socket, select, os, secrets, threading and the thread pool in the SDK's
modules, and restores them. All else of those modules is real. A replacement acts for the program
whose thread runs, so the SDK's own code runs unchanged.
"""

import errno
import os
import secrets
import select
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from smq.testing.simulation.network import Address, SimulatedSocket
from smq.testing.simulation.sdk.fibers import Fiber, Program, current

PREFIX = "smq.client."
_ERRORS = select.POLLERR | select.POLLHUP


def program() -> Program:
    """The program whose thread runs."""
    fiber = current()
    assert fiber is not None, "only a program's threads use the SDK"
    return fiber.program


class _Rest:
    """A module with some names replaced."""

    _real: Any

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  (whatever it has)
        return getattr(self._real, name)


# --- sockets -------------------------------------------------------------------------------------


class ProgramSocket:
    """A socket that may block its thread."""

    def __init__(self, owner: Program, inner: SimulatedSocket, seconds: float | None) -> None:
        self._owner, self._inner, self._seconds = owner, inner, seconds
        self._blocks = True

    def fileno(self) -> int:
        """See socket."""
        return self._inner.fileno()

    def settimeout(self, seconds: float | None) -> None:
        """See socket."""
        self._seconds = seconds

    def setblocking(self, blocks: bool) -> None:  # noqa: FBT001  (As a socket's.)
        """See socket."""
        self._blocks = blocks

    def setsockopt(self, *_args: int) -> None:
        """See socket."""

    def send(self, data: memoryview) -> int:
        """See socket."""
        self._check_open()
        sent: int = self._retrying(select.POLLOUT, lambda: self._inner.send(data))
        return sent

    def sendall(self, data: bytes) -> None:
        """See socket."""
        left = memoryview(data)
        while left:
            left = left[self.send(left) :]

    def recv(self, count: int) -> bytes:
        """See socket."""
        self._check_open()
        data: bytes = self._retrying(select.POLLIN, lambda: self._inner.recv(count))
        return data

    def recv_into(self, buffer: memoryview) -> int:
        """See socket."""
        data = self.recv(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """See socket."""
        if not self._inner.is_closed:
            self._owner.sockets.pop(self._inner.fd, None)
            self._inner.close()

    def _check_open(self) -> None:
        if self._inner.is_closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    def _retrying(self, wanted: int, work: Callable[[], Any]) -> Any:  # noqa: ANN401
        while True:
            try:
                return work()
            except BlockingIOError:
                if not self._blocks:
                    raise
            if not self._owner.wait(
                lambda: bool(ready(self._owner, self.fileno(), wanted)), self._seconds
            ):
                raise TimeoutError(errno.ETIMEDOUT, "timed out")
            self._check_open()


class _Socket(_Rest):
    _real = socket

    def create_connection(self, address: Address, seconds: float | None = None) -> ProgramSocket:
        owner = program()
        owner.wait(lambda: True)  # A handshake lets others run first.
        inner = owner.world.network.connect(address, (owner.name, 1))
        inner.owner = owner
        owner.sockets[inner.fd] = inner
        return ProgramSocket(owner, inner, seconds)


def ready(owner: Program, fd: int, wanted: int) -> int:
    """The events poll would report for a descriptor."""
    if fd in owner.counters:
        return select.POLLIN & wanted if owner.counters[fd] else 0
    if fd not in owner.sockets:
        return select.POLLNVAL
    return owner.sockets[fd].events() & (wanted | _ERRORS)


class Poll:
    """See select.poll."""

    def __init__(self) -> None:
        self._owner = program()
        self._watched: dict[int, int] = {}

    def register(self, file: Any, wanted: int = select.POLLIN | select.POLLOUT) -> None:  # noqa: ANN401
        """See select.poll."""
        self._watched[file if isinstance(file, int) else file.fileno()] = wanted

    def poll(self, timeout_ms: float | None = None) -> list[tuple[int, int]]:
        """See select.poll."""
        seconds = None if timeout_ms is None or timeout_ms < 0 else timeout_ms / 1000
        # Polling takes time too: a busy loop must not stop the clock.
        self._owner.wait(lambda: bool(self._found()), seconds)
        return self._found()

    def _found(self) -> list[tuple[int, int]]:
        each = ((fd, ready(self._owner, fd, wanted)) for fd, wanted in self._watched.items())
        return [(fd, mask) for fd, mask in each if mask]


class _Select(_Rest):
    _real = select
    poll = Poll

    def select(
        self,
        readers: list[int],
        _writers: list[int],
        _others: list[int],
        seconds: float | None = None,
    ) -> tuple[list[int], list[int], list[int]]:
        poll = Poll()
        for fd in readers:
            poll.register(fd, select.POLLIN)
        found = poll.poll(None if seconds is None else seconds * 1000)
        return [fd for fd, _ in found], [], []


class _Os(_Rest):
    _real = os

    def eventfd(self, count: int, _flags: int = 0) -> int:
        owner = program()
        fd = owner.world.network.next_fd()
        owner.counters[fd] = count
        return fd

    def eventfd_write(self, fd: int, count: int) -> None:
        owner = program()
        owner.counters[fd] += count
        owner.is_touched = True

    def eventfd_read(self, fd: int) -> int:
        owner = program()
        count, owner.counters[fd] = owner.counters[fd], 0
        if not count:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return count

    def close(self, fd: int) -> None:
        del program().counters[fd]


# --- threads -------------------------------------------------------------------------------------


class Thread:
    """See threading.Thread."""

    def __init__(
        self,
        target: Callable[..., object],
        name: str = "",
        args: tuple[Any, ...] = (),
        *,
        daemon: bool = True,
    ) -> None:
        self.name, self.daemon = name, daemon
        self._work = lambda: target(*args)
        self._fiber: Fiber | None = None

    def start(self) -> None:
        """See threading.Thread."""
        self._fiber = program().spawn(self._work)

    def join(self, timeout: float | None = None) -> None:
        """See threading.Thread."""
        fiber = self._fiber
        assert fiber is not None
        if not fiber.dead:
            fiber.program.wait(lambda: fiber.dead, timeout)

    def is_alive(self) -> bool:
        """See threading.Thread."""
        return self._fiber is not None and not self._fiber.dead


class RLock:
    """See threading.RLock."""

    def __init__(self) -> None:
        self._holder: Fiber | None = None
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT001, FBT002
        """See threading.RLock."""
        fiber = current()
        assert fiber is not None
        if self._holder not in {None, fiber} and not self._wait(fiber, blocking, timeout):
            return False
        self._holder = fiber
        self._depth += 1
        return True

    def _wait(self, fiber: Fiber, blocking: bool, timeout: float) -> bool:  # noqa: FBT001
        if not blocking:
            return False
        is_free = fiber.program.wait(lambda: self._holder is None, None if timeout < 0 else timeout)
        if fiber.program.is_over:
            self._depth = 0
        return is_free

    def release(self) -> None:
        """See threading.RLock."""
        self._depth -= 1
        if self._depth <= 0:
            self._holder = None
            if (fiber := current()) is not None:
                fiber.program.is_touched = True

    def _acquire_restore(self, state: tuple[int, int]) -> None:
        self.acquire()
        self._depth = state[0]

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Lock:
    """See threading.Lock: any thread may release it."""

    def __init__(self) -> None:
        self._is_held = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT001, FBT002
        """See threading.Lock."""
        if self._is_held:
            seconds = None if timeout < 0 else timeout
            if not blocking or not program().wait(lambda: not self._is_held, seconds):
                return False
        self._is_held = True
        return True

    def release(self) -> None:
        """See threading.Lock."""
        self._is_held = False
        program().is_touched = True

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Event:
    """See threading.Event."""

    def __init__(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        """See threading.Event."""
        return self._is_set

    def set(self) -> None:
        """See threading.Event."""
        self._is_set = True
        program().is_touched = True

    def clear(self) -> None:
        """See threading.Event."""
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        """See threading.Event."""
        return self._is_set or program().wait(self.is_set, timeout) or program().is_over


class _Threading(_Rest):
    _real = threading
    Thread, RLock, Lock, Event = Thread, RLock, Lock, Event

    def get_ident(self) -> int:
        return id(current())


class _Future(Future[Any]):
    """A future whose wait blocks a simulated thread."""

    def result(self, timeout: float | None = None) -> Any:  # noqa: ANN401
        self._wait(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._wait(timeout)
        return super().exception(0)

    def _wait(self, timeout: float | None) -> None:
        if not self.done():
            program().wait(self.done, timeout)


class Executor:
    """See ThreadPoolExecutor: one thread, which does its tasks in order."""

    def __init__(self, _threads_max: int, _name: str = "") -> None:
        self._work: list[tuple[_Future, Callable[[], object]]] = []
        self._is_shut = False
        self._fiber: Fiber | None = None

    def submit(self, function: Callable[..., object], *args: Any) -> _Future:  # noqa: ANN401
        """See ThreadPoolExecutor."""
        future = _Future()
        self._work.append((future, lambda: function(*args)))
        self._fiber = self._fiber or program().spawn(self._run)
        program().is_touched = True
        return future

    def shutdown(self) -> None:
        """See ThreadPoolExecutor."""
        self._is_shut = True
        if (fiber := self._fiber) is not None and not fiber.dead:
            program().is_touched = True
            program().wait(lambda: fiber.dead)

    def _run(self) -> None:
        owner = program()
        while not owner.is_over:
            owner.wait(lambda: bool(self._work) or self._is_shut)
            if not self._work:
                return
            future, work = self._work.pop(0)
            try:
                future.set_result(work())
            except Exception as reason:  # noqa: BLE001  (The future's owner gets it.)
                future.set_exception(reason)
            owner.is_touched = True


class _Secrets(_Rest):
    _real = secrets

    def token_urlsafe(self, nbytes: int) -> str:
        """See secrets: another one in each call, the same in each run."""
        owner = program()
        return f"{owner.name}{owner.chance.getrandbits(8 * nbytes):x}"


STAND_INS: dict[str, tuple[Any, Any]] = {
    "socket": (socket, _Socket()),
    "select": (select, _Select()),
    "os": (os, _Os()),
    "secrets": (secrets, _Secrets()),
    "threading": (threading, _Threading()),
    "ThreadPoolExecutor": (ThreadPoolExecutor, Executor),
}


@contextmanager
def installed() -> Iterator[None]:
    """Within the block, the SDK's modules use these replacements."""
    replaced = [
        (module, name, real, stand_in)
        for module_name, module in list(sys.modules.items())
        if module_name.startswith(PREFIX)
        for name, (real, stand_in) in STAND_INS.items()
        if getattr(module, name, None) is real
    ]
    for module, name, _, stand_in in replaced:
        setattr(module, name, stand_in)
    try:
        yield
    finally:
        for module, name, real, _ in replaced:
            setattr(module, name, real)
