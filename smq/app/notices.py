"""What there is to tell the operator, said where the operator looks, and not all the time."""

from collections.abc import Callable, Iterable
from typing import Protocol

REPEAT_MS = 60_000  # The same sentence is said again after so long.


class Telling(Protocol):
    """Somebody with sentences that nobody has taken yet: a log, the door, the sealer."""

    notices: list[str]


class Notices:
    """Takes the notices of some and says each that was not said lately."""

    def __init__(self, telling: Iterable[Telling], say: Callable[[str], object]) -> None:
        self._telling, self._say = list(telling), say
        self._said_ms: dict[str, int] = {}

    def tell(self, now_ms: int) -> None:
        """Say what is new."""
        self._said_ms = {
            notice: said_ms
            for notice, said_ms in self._said_ms.items()
            if now_ms - said_ms < REPEAT_MS
        }
        for each in self._telling:
            for notice in each.notices:
                if notice not in self._said_ms:
                    self._said_ms[notice] = now_ms
                    self._say(f"{notice}\n")
            each.notices.clear()
