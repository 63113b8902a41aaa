"""The line for queries: few run, and who has not had one for longest comes next.

    join ──▶ waits ──▶ its turn ──▶ leave
               └─▶ turned out: many wait, and he had a query last

Who asks fastest would get each place that becomes free, and two users who query without a pause
would keep it from everybody. A user has one query at a time, so none waits twice.
"""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, TypeVar

KNOWN_MAX = 1000  # Users whose last query is remembered: more than ever wait.

UserT = TypeVar("UserT")


@dataclass(eq=False, slots=True)
class QueryTurn(Generic[UserT]):
    """Of one query. `come` is True when it may run, False when it is turned out."""

    user: UserT
    come: asyncio.Future[bool]


class QueryLine(Generic[UserT]):
    """`places` run, `most` wait. Invariant: no more do, and nobody waits while a place is free."""

    def __init__(self, places: int, most: int) -> None:
        self._places, self._most = places, most
        self._running, self._begun = 0, 0
        self._waiting = list[QueryTurn[UserT]]()  # The oldest first.
        self._last = OrderedDict[UserT, int]()  # A user's last query, of all that have begun.

    def invariants(self) -> None:
        """Assert the class's invariant."""
        assert 0 <= self._running <= self._places
        assert len(self._waiting) <= self._most
        assert not self._waiting or self._running == self._places
        assert len(self._last) <= KNOWN_MAX

    def join(self, user: UserT) -> QueryTurn[UserT]:
        """Wait for a turn, which has perhaps come already; `leave` ends it in any case."""
        turn = QueryTurn(user, asyncio.get_running_loop().create_future())
        self._waiting.append(turn)
        self._give()
        if len(self._waiting) > self._most:
            last = max(reversed(self._waiting), key=self._had)
            self._waiting.remove(last)
            last.come.set_result(False)
        return turn

    def leave(self, turn: QueryTurn[UserT]) -> None:
        """Its query has ended, or waits no more."""
        if turn in self._waiting:
            self._waiting.remove(turn)
        elif turn.come.result():
            self._running -= 1
            self._give()

    def _give(self) -> None:
        while self._waiting and self._running < self._places:
            turn = min(self._waiting, key=self._had)
            self._waiting.remove(turn)
            self._running += 1
            self._begun += 1
            self._last[turn.user] = self._begun
            self._last.move_to_end(turn.user)
            if len(self._last) > KNOWN_MAX:
                self._last.popitem(last=False)
            turn.come.set_result(True)

    def _had(self, turn: QueryTurn[UserT]) -> int:
        """When its user had his last query; 0: never."""
        return self._last.get(turn.user, 0)
