"""What a login needs of a thread: a password's hash, which takes milliseconds, or a user's name.

One is worked at, and addresses take turns; who renews a login counts to its user. Who has ended its
side of the connection may still read the answer, but has gone most often: it waits behind all
others.
"""

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, Protocol, TypeVar

from smq.security.fair_queue import FairQueue

Result = TypeVar("Result")


class Submit(Protocol):
    """Does work elsewhere, and calls `done` in the loop with its result."""

    def __call__(
        self, work: Callable[[], Result], done: Callable[[Result | OSError], None], /
    ) -> None: ...


def _stays() -> bool:
    return False


class _Awaited(NamedTuple):
    address: str
    has_ended: Callable[[], bool]
    work: Callable[[], Any]
    done: Callable[[Any], None]


class FairLane:
    """The work of one kind of one shard's logins. A connection waits for one piece at most."""

    def __init__(self, submit: Submit) -> None:
        self._submit = submit
        self._waiting, self._ended = FairQueue[Hashable](), FairQueue[Hashable]()
        self._awaited: dict[Hashable, _Awaited] = {}  # Of those that wait.
        self._is_busy = False

    def __len__(self) -> int:
        """How many wait."""
        return len(self._awaited)

    def add(
        self,
        connection: Hashable,
        address: str,
        work: Callable[[], Result],
        done: Callable[[Result | OSError], None],
        has_ended: Callable[[], bool] = _stays,
    ) -> None:
        """Do the work when it is its turn; `done` gets its result in the loop. `has_ended` says
        whether the client has ended its side."""
        self._waiting.add(connection, address)
        self._awaited[connection] = _Awaited(address, has_ended, work, done)
        self._go_on()

    def forget(self, connection: Hashable) -> None:
        """It is closed: what it waits for is not done."""
        self._waiting.discard(connection)
        self._ended.discard(connection)
        self._awaited.pop(connection, None)

    def _go_on(self) -> None:
        if self._is_busy or not self._awaited:
            return
        job = self._awaited.pop(self._next())
        self._is_busy = True

        def done(result: object) -> None:
            self._is_busy = False
            self._go_on()
            job.done(result)

        self._submit(job.work, done)

    def _next(self) -> Hashable:
        while self._waiting:
            connection = self._waiting.pop()
            if not self._awaited[connection].has_ended():
                return connection
            self._ended.add(connection, self._awaited[connection].address)
        return self._ended.pop()
