"""The futures that a producer returns: each names a row of a parcel and holds nothing else.

Each takes two words. A future has its result as soon as the broker has acknowledged its row's
batch.
"""

import asyncio
import logging
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any

import numpy as np

from smq.client import arguments
from smq.client.producing.delivery.delivery_state import Deliveries, Delivery, DeliveryState
from smq.client.producing.delivery.parcel import Parcel

logger = logging.getLogger(__name__)


class Future:
    """The result of one record: a `Delivery`, or an exception."""

    __slots__ = ("_parcel", "_row")

    def __init__(self, parcel: DeliveryState, row: int) -> None:
        self._parcel = parcel
        self._row = row

    def done(self) -> bool:
        """Whether the record is delivered, or has failed."""
        if not self._is_done():
            self._parcel.resolver.poll()
        return self._is_done()

    def _is_done(self) -> bool:
        return self._parcel.is_done(self._row)

    def result(self, timeout: float | None = None) -> Delivery:
        """Wait until the record is delivered. Raises its exception, or TimeoutError."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._parcel.delivery(self._row)

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Wait for the record's error; None if it was delivered. Raises TimeoutError."""
        if timeout is not None:
            arguments.duration("timeout", timeout)
        parcel = self._parcel
        if not self._is_done():
            parcel.resolver.wait(self._is_done, timeout)
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
    """The results of the records of one `send_batch`: `Deliveries`, or the first exception."""

    __slots__ = ("_parcels", "_topic")

    def __init__(self, topic: str, parcels: Sequence[Parcel]) -> None:
        self._topic = topic
        self._parcels = parcels

    def done(self) -> bool:
        """Whether all records are delivered, or have failed."""
        waiting = [parcel for parcel in self._parcels if not parcel.is_resolved()]
        if waiting:
            waiting[0].resolver.poll()
        return all(parcel.is_resolved() for parcel in waiting)

    def _is_done(self) -> bool:
        return all(parcel.is_resolved() for parcel in self._parcels)

    def result(self, timeout: float | None = None) -> Deliveries:
        """Wait until the records are delivered. Raises the first exception, or TimeoutError."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        parts = [parcel.deliveries() for parcel in self._parcels]
        columns = [np.concatenate(each) for each in zip(*parts, strict=True)]
        if not columns:
            columns = [np.zeros(0, np.int64)] * 3
        return Deliveries(self._topic, *columns)

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Wait for the first error; None if all were delivered. Raises TimeoutError."""
        if timeout is not None:
            arguments.duration("timeout", timeout)
        if self._parcels:
            self._parcels[0].resolver.wait(self._is_done, timeout)
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


class BufferFull(Exception):
    """The producer's buffer is full, and stayed full for the time allowed.

    The record is not taken; the same call may succeed once the broker has acknowledged others. A
    part of a large `send_batch` may have been sent: `sent` is its future.
    """

    sent: BatchFuture | None = None


def call_back(function: Callable[[], object], *, logged: type[BaseException] = Exception) -> None:
    """Call a callback of the user, and log what it raises.

    In a user's thread SystemExit and the like propagate. The sending thread must not end: it logs
    them too.
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
        if not waiter.done():  # The awaiting task may have been cancelled.
            waiter.set_result(None)

    def wake(_: object) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(tell)

    future.add_done_callback(wake)
    yield from waiter
