"""Futures know as soon as their rows do, wait in threads and in asyncio, and call back once."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from smq.client.producing.delivery.delivery_state import Delivery
from smq.client.producing.delivery.futures import BatchFuture, Future
from smq.client.producing.delivery.parcel import Parcel
from tests.client.parcels import OPENED_MS, closed


class Waiting:
    """A resolver whose waiters sleep until a parcel is resolved here."""

    def __init__(self) -> None:
        self._changed = threading.Condition()

    def wait(self, condition: Callable[[], bool], timeout_s: float | None) -> None:
        with self._changed:
            if not self._changed.wait_for(condition, timeout_s):
                raise TimeoutError

    def poll(self) -> None:
        pass

    def enable_wakeups(self) -> None:
        pass

    def resolve(self, parcel: Parcel, first: int, end: int, offset: int = 0) -> None:
        with self._changed:
            parcel.resolve(first, end, offset, -1)
            due = parcel.due_callbacks()
            self._changed.notify_all()
        for each in due:
            each()


@pytest.fixture
def resolver() -> Waiting:
    return Waiting()


@pytest.fixture
def parcel(resolver: Waiting) -> Parcel:
    """Two rows, a partition each."""
    made = closed([(b"a", 0), (b"b", 1)])
    made.resolver = resolver
    return made


def test_a_delivered_record_is_done_at_once(resolver: Waiting, parcel: Parcel) -> None:
    future = Future(parcel, 0)
    assert not future.done()
    with pytest.raises(TimeoutError):
        future.result(0)
    resolver.resolve(parcel, 0, 1, 41)
    assert future.done()
    assert future.result() == Delivery("t", 0, 41, OPENED_MS)
    assert future.exception() is None
    assert not Future(parcel, 1).done()


def test_a_record_that_failed_raises_and_was_seen(parcel: Parcel) -> None:
    parcel.fail(1, 2, ValueError("no"))
    future = Future(parcel, 1)
    assert not parcel.failures[0].is_reported
    with pytest.raises(ValueError, match="no"):
        future.result()
    assert str(future.exception()) == "no"
    assert parcel.failures[0].is_reported


def test_a_thread_waits_until_it_is_resolved(resolver: Waiting, parcel: Parcel) -> None:
    threading.Timer(0.01, resolver.resolve, (parcel, 0, 1)).start()
    assert Future(parcel, 0).result(5).offset == 0


def test_callbacks_get_the_future_once_it_is_done(resolver: Waiting, parcel: Parcel) -> None:
    called: list[Future] = []
    future = Future(parcel, 0)
    future.add_done_callback(called.append)
    assert called == []
    resolver.resolve(parcel, 0, 1)
    assert called == [future]
    future.add_done_callback(called.append)
    assert called == [future, future]


def test_an_exception_in_a_callback_is_logged(
    parcel: Parcel, caplog: pytest.LogCaptureFixture
) -> None:
    def call_back(_: object) -> None:
        raise ValueError("of the user")

    parcel.resolve(0, 2, 0, -1)
    Future(parcel, 0).add_done_callback(call_back)
    BatchFuture("t", [parcel]).add_done_callback(call_back)
    assert caplog.text.count("ValueError: of the user") == 2


@pytest.mark.parametrize("is_done", [False, True])
def test_wrong_arguments_are_refused_before_and_after_the_end(
    resolver: Waiting, parcel: Parcel, *, is_done: bool
) -> None:
    if is_done:
        resolver.resolve(parcel, 0, 2)
    for future in (Future(parcel, 0), BatchFuture("t", [parcel])):
        with pytest.raises(TypeError, match="timeout is a number of seconds, not str"):
            future.result("1")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="timeout is -1; it should be 0 or more"):
            future.exception(-1)
        with pytest.raises(TypeError, match="function is a function, not int"):
            future.add_done_callback(5)  # type: ignore[arg-type]


def test_asyncio_waits_without_holding_up_its_loop(resolver: Waiting, parcel: Parcel) -> None:
    async def both() -> tuple[Delivery, Delivery]:
        first = asyncio.ensure_future(_awaited(Future(parcel, 0)))
        await asyncio.sleep(0)
        threading.Thread(target=resolver.resolve, args=(parcel, 0, 2, 7)).start()
        return await asyncio.wait_for(first, 5), await Future(parcel, 0)

    first, again = asyncio.run(both())
    assert first == again == Delivery("t", 0, 7, OPENED_MS)


async def _awaited(future: Future) -> Delivery:
    return await future


def test_an_await_that_is_cancelled_leaves_no_trace(resolver: Waiting, parcel: Parcel) -> None:
    async def cancelled() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(_awaited(Future(parcel, 0)), 0.01)
        resolver.resolve(parcel, 0, 1)
        await asyncio.sleep(0)

    asyncio.run(cancelled())


def test_a_loop_that_has_ended_is_not_woken(resolver: Waiting, parcel: Parcel) -> None:
    async def left() -> None:
        task = asyncio.ensure_future(_awaited(Future(parcel, 0)))
        await asyncio.sleep(0)
        assert not task.done()

    asyncio.run(left())
    resolver.resolve(parcel, 0, 1)


def test_a_batch_is_done_when_all_its_parcels_are(resolver: Waiting, parcel: Parcel) -> None:
    other = closed([(b"c", 2)])
    other.resolver = resolver
    future, called = BatchFuture("t", [parcel, other]), list[BatchFuture]()
    future.add_done_callback(called.append)
    resolver.resolve(other, 0, 1, 9)
    resolver.resolve(parcel, 0, 1, 3)
    assert not future.done()
    with pytest.raises(TimeoutError):
        future.result(0)
    resolver.resolve(parcel, 1, 2, 5)
    assert future.done()
    assert called == [future]
    result = future.result()
    assert result.partitions.tolist() == [0, 1, 2]
    assert result.offsets.tolist() == [3, 5, 9]
    assert result.timestamps_ms.tolist() == [OPENED_MS] * 3


def test_a_batch_raises_the_first_failure(parcel: Parcel) -> None:
    parcel.resolve(0, 1, 0, -1)
    parcel.fail(1, 2, ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        BatchFuture("t", [parcel]).result()


def test_a_batch_may_be_awaited(resolver: Waiting, parcel: Parcel) -> None:
    async def awaited() -> list[int]:
        threading.Timer(0.01, resolver.resolve, (parcel, 0, 2)).start()
        return list((await BatchFuture("t", [parcel])).offsets)

    assert asyncio.run(awaited()) == [0, 1]


def test_no_rows_are_delivered_at_once() -> None:
    result = BatchFuture("t", []).result(0)
    assert [len(each) for each in result[1:]] == [0, 0, 0]
