"""What a login needs of a thread: a password's hash, which takes milliseconds, or a user's name.

One is worked at, and addresses take turns: who asks for many, or goes and comes again, waits behind
his own. What waits belongs to an open connection, and these are bounded.
"""

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, Protocol, TypeVar

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
        self._waiting: dict[str, dict[Hashable, _Awaited]] = {}  # By address, then by connection.
        self._address_of: dict[Hashable, str] = {}
        self._is_busy = False

    def __len__(self) -> int:
        """How many wait."""
        return len(self._address_of)

    def add(
        self,
        connection: Hashable,
        address: str,
        work: Callable[[], Result],
        done: Callable[[Result | OSError], None],
    ) -> None:
        """Do the work when it is its turn; `done` gets its result in the loop."""
        assert connection not in self._address_of, "it waits"
        self._waiting.setdefault(address, {})[connection] = _Awaited(work, done)
        self._address_of[connection] = address
        self._go_on()

    def forget(self, connection: Hashable) -> None:
        """It is closed: what it waits for is not done."""
        address = self._address_of.pop(connection, None)
        if address is not None:
            del self._waiting[address][connection]
            if not self._waiting[address]:
                del self._waiting[address]

    def _go_on(self) -> None:
        if self._is_busy or not self._waiting:
            return
        address = next(iter(self._waiting))
        of_address = self._waiting.pop(address)
        connection = next(iter(of_address))
        job = of_address.pop(connection)
        del self._address_of[connection]
        if of_address:
            self._waiting[address] = of_address  # Behind all others.
        self._is_busy = True

        def done(result: object) -> None:
            self._is_busy = False
            self._go_on()
            job.done(result)

        self._submit(job.work, done)
