"""What logs have to tell their operator, said where the operator looks, and not all the time."""

from collections.abc import Callable, Iterable
from typing import Protocol

REPEAT_MS = 60_000  # The same sentence is said again after so long.


class Telling(Protocol):
    """A log, as far as it matters here: sentences that nobody has taken yet."""

    notices: list[str]


class Notices:
    """Takes the notices of some logs and says each that was not said lately."""

    def __init__(self, logs: Iterable[Telling], say: Callable[[str], object]) -> None:
        self._logs, self._say = list(logs), say
        self._said_ms: dict[str, int] = {}

    def tell(self, now_ms: int) -> None:
        """Say what is new."""
        self._said_ms = {
            notice: said_ms
            for notice, said_ms in self._said_ms.items()
            if now_ms - said_ms < REPEAT_MS
        }
        for log in self._logs:
            for notice in log.notices:
                if notice not in self._said_ms:
                    self._said_ms[notice] = now_ms
                    self._say(f"{notice}\n")
            log.notices.clear()
