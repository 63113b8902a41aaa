"""Notices for the operator, on stderr, without frequent repetitions."""

from collections.abc import Callable, Iterable
from typing import Protocol

REPEAT_MS = 60_000  # Minimum time before the same sentence is repeated.


class Telling(Protocol):
    """A source of notices, such as a log or the door."""

    notices: list[str]


class Lately:
    """The notices of the last minute."""

    def __init__(self) -> None:
        self._told_ms: dict[str, int] = {}

    def is_new(self, what: str, now_ms: int) -> bool:
        """Whether the notice was not printed recently; records it as printed."""
        told = self._told_ms  # The oldest first.
        while told and now_ms - told[oldest := next(iter(told))] >= REPEAT_MS:
            del told[oldest]
        is_new = what not in told
        told.setdefault(what, now_ms)
        return is_new


class Notices:
    """Collects notices from their sources and prints each at most once a minute."""

    def __init__(self, telling: Iterable[Telling], say: Callable[[str], object]) -> None:
        self._telling, self._say = list(telling), say
        self._lately = Lately()

    def tell(self, now_ms: int) -> None:
        """Print new notices."""
        for each in self._telling:
            for notice in each.notices:
                if self._lately.is_new(notice, now_ms):
                    self._say(notice)
            each.notices.clear()
