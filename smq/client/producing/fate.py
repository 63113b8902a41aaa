"""What becomes of rows that set out together, and who is told.

A parcel has many rows (smq.client.producing.parcel), a single one (smq.client.producing.single).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import count
from typing import Protocol

import numpy as np

from smq.client.producing.futures import Delivery

PENDING = -3
FAILED = -2
UNKNOWN_OFFSET = -1  # The broker has the record and does not know where.


class Sink(Protocol):
    """Who resolves what sets out, and lets threads wait for that."""

    def wait(self, condition: Callable[[], bool], timeout_s: float | None) -> None:
        """Sleep until the condition holds. Raises TimeoutError."""

    def look(self) -> None:
        """Resolve what can be resolved now, if nobody else does."""

    def listen(self) -> None:
        """Resolve what comes as it comes: somebody waits to be called."""


class Failure:
    """Why some rows are not in the topic; `is_seen` once somebody has asked."""

    __slots__ = ("error", "is_seen", "rows")

    def __init__(self, rows: np.ndarray, error: Exception) -> None:
        self.rows = rows
        self.error = error
        self.is_seen = False


class Fate(ABC):
    """Rows of a topic on their way; `unresolved` is how many still wait."""

    __slots__ = (
        "bytes",
        "callbacks",
        "deadline_ms",
        "failures",
        "row_count",
        "sink",
        "topic",
        "unresolved",
    )

    def __init__(self, topic: str, sink: Sink, deadline_ms: int) -> None:
        self.topic = topic
        self.sink = sink
        self.bytes = self.row_count = 0
        self.unresolved = 0
        self.deadline_ms = deadline_ms
        self.callbacks: dict[int, tuple[int | None, Callable[[], object]]] = {}
        self.failures: list[Failure] = []

    @abstractmethod
    def is_done(self, row: int) -> bool:
        """Whether a row's fate is known."""

    @abstractmethod
    def is_settled(self, place: int) -> bool:
        """Whether the fate of a record is known, by its place in the columns."""

    @abstractmethod
    def delivery(self, row: int) -> Delivery:
        """Where a row is, once it is done without an error."""

    @abstractmethod
    def resolve(self, first: int, end: int, base_offset: int, append_time_ms: int) -> None:
        """The records [first, end) are in the topic."""

    @abstractmethod
    def fail(self, first: int, end: int, error: Exception) -> None:
        """The records [first, end) are not in the topic, or nobody knows."""

    @abstractmethod
    def give_up(self, error: Exception) -> None:
        """Fail all rows whose fate is not known: nobody will learn it."""

    def is_resolved(self) -> bool:
        """Whether the fate of all rows is known."""
        return self.unresolved == 0

    def error_of(self, row: int) -> Exception | None:
        """Why a row that is done is not in the topic."""
        for failure in self.failures:
            if row in failure.rows:
                failure.is_seen = True
                return failure.error
        return None

    def call_when_done(self, row: int | None, function: Callable[[], object]) -> bool:
        """Have the function called when a row is done (None: all are); False: it is already.

        Whoever resolves takes `due_callbacks` afterwards. Here the function is noted before a look
        at the row: either the resolver finds it, or this look finds the row done. Only one of the
        two gets the function out of the dict, which is one step under the interpreter's lock.
        """
        number = next(_numbers)
        self.callbacks[number] = (row, function)
        self.sink.listen()
        if not self._is_due(row):
            return True
        return self.callbacks.pop(number, None) is None

    def due_callbacks(self) -> list[Callable[[], object]]:
        """Take those callbacks whose rows are done."""
        due = []
        for number, (row, function) in list(self.callbacks.items()):
            if self._is_due(row) and self.callbacks.pop(number, None) is not None:
                due.append(function)
        return due

    def _is_due(self, row: int | None) -> bool:
        return self.is_resolved() if row is None else self.is_done(row)


_numbers = count()
