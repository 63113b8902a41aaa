"""The state of rows that are sent together: pending, delivered or failed; and their callbacks.

`parcel.Parcel` has many rows, `single_record.SingleRecord` has one.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import count
from typing import NamedTuple, Protocol

import numpy as np

PENDING = -3
FAILED = -2
UNKNOWN_OFFSET = -1  # The broker has the record, and does not know its offset.


class Delivery(NamedTuple):
    """Where a record is. The offset is -1 if the broker only knows that it has the record."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class Deliveries(NamedTuple):
    """Where the records of a batch are: a row for each, in the order in which they were given."""

    topic: str
    partitions: np.ndarray
    offsets: np.ndarray
    timestamps_ms: np.ndarray


class Resolver(Protocol):
    """Resolves records that were sent, and lets threads wait for that."""

    def wait(self, condition: Callable[[], bool], timeout_s: float | None) -> None:
        """Sleep until the condition holds. Raises TimeoutError."""

    def poll(self) -> None:
        """Take the answers received so far, unless another thread does."""

    def enable_wakeups(self) -> None:
        """Resolve each answer as it arrives: a callback waits."""


class Failure:
    """Why some rows are not in the topic.

    is_reported  a caller has asked for it
    is_noted     it has been counted as an error of its transaction
    """

    __slots__ = ("error", "is_noted", "is_reported", "rows")

    def __init__(self, rows: np.ndarray, error: Exception) -> None:
        self.rows = rows
        self.error = error
        self.is_reported = self.is_noted = False


class DeliveryState(ABC):
    """Rows of a topic that are sent together; `unresolved` is how many have no result yet."""

    __slots__ = (
        "bytes",
        "callbacks",
        "deadline_ms",
        "failures",
        "resolver",
        "row_count",
        "topic",
        "unresolved",
    )

    def __init__(self, topic: str, resolver: Resolver, deadline_ms: int) -> None:
        self.topic = topic
        self.resolver = resolver
        self.bytes = self.row_count = 0
        self.unresolved = 0
        self.deadline_ms = deadline_ms
        self.callbacks: dict[int, tuple[int | None, Callable[[], object]]] = {}
        self.failures: list[Failure] = []

    @abstractmethod
    def is_done(self, row: int) -> bool:
        """Whether a row is resolved."""

    @abstractmethod
    def is_settled(self, place: int) -> bool:
        """Whether a record is resolved, by its place in the columns."""

    @abstractmethod
    def delivery(self, row: int) -> Delivery:
        """The place of a row that is done without an error."""

    @abstractmethod
    def resolve(self, first: int, end: int, base_offset: int, append_time_ms: int) -> None:
        """The records [first, end) are in the topic."""

    @abstractmethod
    def fail(self, first: int, end: int, error: Exception) -> None:
        """The records [first, end) are not in the topic, or their fate is unknown."""

    @abstractmethod
    def give_up(self, error: Exception) -> None:
        """Fail all rows that are not resolved: no answer will come."""

    def is_resolved(self) -> bool:
        """Whether all rows are resolved."""
        return self.unresolved == 0

    def error_of(self, row: int) -> Exception | None:
        """Why a row that is done is not in the topic."""
        for failure in self.failures:
            if row in failure.rows:
                failure.is_reported = True
                return failure.error
        return None

    def call_when_done(self, row: int | None, function: Callable[[], object]) -> bool:
        """Have the function called when a row is done (None: all are); False: it already is.

        The resolver takes `due_callbacks` after it has resolved. This method stores the function
        first and then checks the row: either the resolver finds the function, or this check finds
        the row done. Only one of the two gets the function out of the dict: `pop` is atomic.
        """
        number = next(_numbers)
        self.callbacks[number] = (row, function)
        self.resolver.enable_wakeups()
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
