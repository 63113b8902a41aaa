"""What there is to tell the operator, said where the operator looks, and not all the time."""

from collections.abc import Callable, Iterable
from typing import Protocol

REPEAT_MS = 60_000  # The same sentence is said again after so long.


class Telling(Protocol):
    """Somebody with sentences that nobody has taken yet: a log, the door."""

    notices: list[str]


class Lately:
    """What was told in the last minute."""

    def __init__(self) -> None:
        self._told_ms: dict[str, int] = {}

    def is_new(self, what: str, now_ms: int) -> bool:
        """Whether this was not told lately; it is told now."""
        told = self._told_ms.items()
        self._told_ms = {each: told_ms for each, told_ms in told if now_ms - told_ms < REPEAT_MS}
        is_new = what not in self._told_ms
        self._told_ms.setdefault(what, now_ms)
        return is_new


class Notices:
    """Takes the notices of some and says each that was not said lately."""

    def __init__(self, telling: Iterable[Telling], say: Callable[[str], object]) -> None:
        self._telling, self._say = list(telling), say
        self._lately = Lately()

    def tell(self, now_ms: int) -> None:
        """Say what is new."""
        for each in self._telling:
            for notice in each.notices:
                if self._lately.is_new(notice, now_ms):
                    self._say(f"{notice}\n")
            each.notices.clear()
