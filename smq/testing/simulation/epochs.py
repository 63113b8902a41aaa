"""The pair of sockets by which the coordinator draws leader epochs, without a kernel.

The supervisor's code answers as soon as it is asked, and the answer is on its way for a while. The
pair outlives the coordinator: an answer to one that has died reaches its successor.
"""

import errno
import os
import select
from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, cast

from smq.app.process.epochs import give_epochs
from smq.testing.simulation.clock import MS, SimulatedClock

if TYPE_CHECKING:
    import socket

    from smq.app.process.loop import Loop
    from smq.testing.simulation.network import SocketOwner

DELAY_MS = 2.0  # The longest: the counter is synced for each epoch.


class EpochSocket:
    """The coordinator's end. `take` takes the next epoch, durably."""

    def __init__(
        self, clock: SimulatedClock, chance: Random, fd: int, take: Callable[[], int]
    ) -> None:
        self.fd, self.owner = fd, cast("SocketOwner | None", None)
        self._clock, self._chance = clock, chance
        self._answers: deque[tuple[int, bytes]] = deque()
        self._supervisor = _SupervisorEnd(self._answered)
        end = cast("socket.socket", self._supervisor)
        give_epochs(cast("Loop", self._supervisor), end, take)

    def fileno(self) -> int:
        """See socket."""
        return self.fd

    def send(self, question: bytes) -> int:
        """See socket."""
        if self.owner is not None:
            self.owner.before_call("socket")
        self._supervisor.take(question)
        return len(question)

    def recv(self, _count: int) -> bytes:
        """See socket: an answer, whole."""
        if not self.events():
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return self._answers.popleft()[1]

    def events(self) -> int:
        """The events epoll would report."""
        due_ns = self.next_due_ns()
        return 0 if due_ns is None or due_ns > self._clock.now_ns else select.EPOLLIN

    def next_due_ns(self) -> int | None:
        """When the next answer arrives."""
        return self._answers[0][0] if self._answers else None

    def _answered(self, answer: bytes) -> None:
        due_ns = self._clock.now_ns + int(self._chance.random() * DELAY_MS * MS)
        last_ns = self._answers[-1][0] if self._answers else 0
        self._answers.append((max(due_ns, last_ns), answer))


class _SupervisorEnd:
    """The supervisor's loop and end in one, as far as `give_epochs` needs them."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self.send = send
        self._asked: Callable[[int], object] = lambda _events: None
        self._question = b""

    def fileno(self) -> int:
        return -1

    def register(self, _fd: int, _events: int, asked: Callable[[int], object]) -> None:
        self._asked = asked

    def recv(self, _count: int) -> bytes:
        return self._question

    def take(self, question: bytes) -> None:
        self._question = question
        self._asked(select.EPOLLIN)
