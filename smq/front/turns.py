"""What clients get of the front's loop: in each of its turns a few steps, one request each.

    connection ── bytes ─▶ Turns ── its turn ─▶ parser ─▶ request

Clients that have just shown a password or a token that was right have a line of their own, in which
users take turns: one who asks without a pause waits behind himself, whatever he may. All others
wait in another: whoever comes for the first time alternates with whoever comes again, so that a
thousand clients that go on asking keep nobody from his first request. Behind a proxy of this host
all have one address, so that shares of addresses alone would not hold.
"""

import asyncio
from collections.abc import Callable, Sized
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from starlette.types import Scope

from smq.security.fair_queue import FairQueue

# A step and the request that it may begin take about a millisecond.
STEPS_A_TURN, TURN_S = 2, 0.002
KNOWN_STEPS_A_TURN, KNOWN_TURN_S = 4, 0.004
_STANDING = "smq.standing"  # In a request's state.

T = TypeVar("T")


@dataclass(slots=True)
class PeerStanding:
    """What is known of who uses a connection.

    is_known    its last request was of somebody who has logged in, or nobody has to
    user        who that was; empty: nobody has to log in, or it is not known
    has_asked   it has had a step already
    has_tried   it has had to wait for a login, and nobody has logged in since
    is_gone     it is closed: what still waits for it need not be done
    cut         closes it, in the middle of an answer too; None: it is closed, or of no server
    """

    is_known: bool = False
    user: str = ""
    has_asked: bool = False
    has_tried: bool = False
    is_gone: bool = False
    cut: Callable[[], None] | None = None

    def learn(self, user: str = "", *, is_known: bool) -> None:
        """Its request is of somebody who is known, or it is not known of whom."""
        self.is_known, self.user = is_known, user

    def in_state(self) -> dict[str, "PeerStanding"]:
        """What a request's scope has as its state."""
        return {_STANDING: self}


def standing_of(scope: Scope) -> PeerStanding:
    """That of the connection which a request came by."""
    standing: PeerStanding | None = scope.get("state", {}).get(_STANDING)
    return PeerStanding() if standing is None else standing


class Line(Generic[T]):
    """Who waits. First comers alternate with those who come again; among these and among those
    whoever they are counted to (`whose`) take turns."""

    def __init__(self) -> None:
        self._first, self._again = FairQueue[T](), FairQueue[T]()
        self._is_for_again = False

    def __len__(self) -> int:
        """How many wait."""
        return len(self._first) + len(self._again)

    def add(self, item: T, whose: str, *, again: bool) -> None:
        """Have it wait, which it does not yet."""
        (self._again if again else self._first).add(item, whose)

    def make_room(self, most: int, *, again: bool) -> T | None:
        """If more than `most` wait of those who come first or again: who waits no more, the newest
        of whoever has most of them."""
        queue = self._again if again else self._first
        if len(queue) <= most:
            return None
        queue.discard(newest := queue.of_most()[-1])
        return newest

    def take(self) -> T:
        """Whose turn it is."""
        is_for_again = not self._first or (self._is_for_again and bool(self._again))
        self._is_for_again = not is_for_again
        return (self._again if is_for_again else self._first).pop()


class Waits(Protocol):
    """A connection whose step is due."""

    def go_on(self) -> bool:
        """Take a step; whether there was one to take."""


def _nobody(_data: bytes) -> str:
    return ""


class Turns:
    """The steps of one front's connections.

    user_of   who has shown a password or token that was right, by a request's first bytes; else
              empty. Only how soon they are looked at depends on it
    """

    def __init__(self, user_of: Callable[[bytes], str] = _nobody) -> None:
        self.user_of = user_of
        self._line, self._known = Line[Waits](), FairQueue[Waits]()
        self._is_due = False

    def want(self, connection: Waits, whose: str, *, again: bool, is_known: bool = False) -> None:
        """Have a connection go on, in this turn or a later one. `whose`: a user or an address."""
        if is_known:
            self._known.add(connection, whose)
        else:
            self._line.add(connection, whose, again=again)
        self._ask_for_turn()

    def _ask_for_turn(self) -> None:
        if (self._line or self._known) and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._is_due = False
        _take(self._known, self._known.pop, KNOWN_STEPS_A_TURN, KNOWN_TURN_S)
        _take(self._line, self._line.take, STEPS_A_TURN, TURN_S)
        self._ask_for_turn()


def _take(line: Sized, next_of: Callable[[], Waits], most: int, seconds: float) -> None:
    """Have the first of a line take their steps: so many at most, and as long."""
    clock_s = asyncio.get_running_loop().time
    end_s, steps = clock_s() + seconds, 0
    while line and steps < most and clock_s() < end_s:
        steps += next_of().go_on()
