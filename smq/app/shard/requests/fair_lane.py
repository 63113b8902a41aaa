"""What a login needs of a thread: a password's hash, which takes milliseconds, or a user's name.

One is worked at, and addresses take turns.
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


class _Awaited(NamedTuple):
    work: Callable[[], Any]
    done: Callable[[Any], None]


class FairLane:
    """The work of one kind of one shard's logins. A connection waits for one piece at most."""

    def __init__(self, submit: Submit) -> None:
        self._submit = submit
        self._waiting = FairQueue[Hashable]()
        self._awaited: dict[Hashable, _Awaited] = {}  # Of those that wait.
        self._is_busy = False

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def add(
        self,
        connection: Hashable,
        address: str,
        work: Callable[[], Result],
        done: Callable[[Result | OSError], None],
    ) -> None:
        """Do the work when it is its turn; `done` gets its result in the loop."""
        self._waiting.add(connection, address)
        self._awaited[connection] = _Awaited(work, done)
        self._go_on()

    def forget(self, connection: Hashable) -> None:
        """It is closed: what it waits for is not done."""
        self._waiting.discard(connection)
        self._awaited.pop(connection, None)

    def _go_on(self) -> None:
        if self._is_busy or not self._waiting:
            return
        job = self._awaited.pop(self._waiting.pop())
        self._is_busy = True

        def done(result: object) -> None:
            self._is_busy = False
            self._go_on()
            job.done(result)

        self._submit(job.work, done)
