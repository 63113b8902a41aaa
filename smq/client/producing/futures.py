"""What a producer gives for records: light futures, resolved by the parcel the records travel in.

A future is a row of a parcel and nothing else; a million of them cost two words each. It knows its
result as soon as the broker has acknowledged the batch that the row is in.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from smq.client import arguments

if TYPE_CHECKING:
    from smq.client.producing.fate import Fate
    from smq.client.producing.parcel import Parcel


logger = logging.getLogger(__name__)


class Delivery(NamedTuple):
    """Where a record is. The offset is -1 where the broker only knows that it has the record."""

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


class Future:
    """The fate of one record: a `Delivery`, or an exception."""

    __slots__ = ("_parcel", "_row")

    def __init__(self, parcel: "Fate", row: int) -> None:
        self._parcel = parcel
        self._row = row

    def done(self) -> bool:
        """Whether the record's fate is known."""
        if not self._is_done():
            self._parcel.sink.look()
        return self._is_done()

    def _is_done(self) -> bool:
        return self._parcel.is_done(self._row)

    def result(self, timeout: float | None = None) -> Delivery:
        """Wait for the record's place. Raises its exception, or TimeoutError."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._parcel.delivery(self._row)

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Wait for what went wrong; None when nothing did. Raises TimeoutError."""
        if timeout is not None:
            arguments.duration("timeout", timeout)
        parcel = self._parcel
        if not self._is_done():
            parcel.sink.wait(self._is_done, timeout)
        return parcel.error_of(self._row)

    def add_done_callback(self, function: "Callable[[Future], object]") -> None:
        """Call the function with this future once it is done: by the producer's thread, or now.

        What it raises is logged.
        """
        arguments.function("function", function)
        if not self._parcel.call_when_done(self._row, lambda: function(self)):
            call_back(lambda: function(self))

    def __await__(self) -> Generator[Any, None, Delivery]:
        yield from _done(self)
        return self.result(0)


class BatchFuture:
    """The fate of the records of one `send_batch`: `Deliveries`, or the first exception."""

    __slots__ = ("_parcels", "_topic")

    def __init__(self, topic: str, parcels: "Sequence[Parcel]") -> None:
        self._topic = topic
        self._parcels = parcels

    def done(self) -> bool:
        """Whether the fate of all records is known."""
        waiting = [parcel for parcel in self._parcels if not parcel.is_resolved()]
        if waiting:
            waiting[0].sink.look()
        return all(parcel.is_resolved() for parcel in waiting)

    def result(self, timeout: float | None = None) -> Deliveries:
        """Wait for the records' places. Raises an exception of one of them, or TimeoutError."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        parts = [parcel.deliveries() for parcel in self._parcels]
        columns = [np.concatenate(each) for each in zip(*parts, strict=True)]
        if not columns:
            columns = [np.zeros(0, np.int64)] * 3
        return Deliveries(self._topic, *columns)

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Wait for what went wrong first; None when nothing did. Raises TimeoutError."""
        deadline = (
            None if timeout is None else time.monotonic() + arguments.duration("timeout", timeout)
        )
        for parcel in self._parcels:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            parcel.sink.wait(parcel.is_resolved, left)
        return next((error for each in self._parcels if (error := each.first_error())), None)

    def add_done_callback(self, function: "Callable[[BatchFuture], object]") -> None:
        """Call the function with this future once it is done: by the producer's thread, or now.

        What it raises is logged.
        """
        arguments.function("function", function)
        self._call_when_done(0, function)

    def _call_when_done(self, first: int, function: "Callable[[BatchFuture], object]") -> None:
        for i, parcel in enumerate(self._parcels[first:], first):
            if parcel.call_when_done(None, partial(self._call_when_done, i, function)):
                return
        call_back(lambda: function(self))

    def __await__(self) -> Generator[Any, None, Deliveries]:
        yield from _done(self)
        return self.result(0)


def call_back(function: Callable[[], object], *, logged: type[BaseException] = Exception) -> None:
    """Call a callback of the user. What it raises is not its caller's, and logged.

    In a thread of the user what ends programs passes; the thread that sends must not end.
    """
    try:
        function()
    except logged:
        logger.exception("a callback of a producer raised")


def _done(future: Future | BatchFuture) -> Generator[Any, None, None]:
    """Wait inside asyncio until a future of ours is done."""
    if future.done():
        return
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()

    def tell() -> None:
        if not waiter.done():  # Whoever awaited may have been cancelled.
            waiter.set_result(None)

    def wake(_: object) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(tell)

    future.add_done_callback(wake)
    yield from waiter
