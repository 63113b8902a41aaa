"""A waiter is called once, by one of both sides, and makes the sender listen."""

from typing import TYPE_CHECKING

from smq.client.producing.delivery.parcel import Parcel
from tests.client.parcels import NoWaiting, closed

if TYPE_CHECKING:
    from collections.abc import Callable


class Listening(NoWaiting):
    """Resolves what is on its way once somebody wants to be called."""

    def __init__(self) -> None:
        self.answer: Callable[[], object] = lambda: None
        self.listened = 0

    def enable_wakeups(self) -> None:
        self.listened += 1
        self.answer()


def listening(parcel: Parcel) -> Listening:
    parcel.resolver = resolver = Listening()
    return resolver


def test_callbacks_are_called_once_by_one_of_both_sides() -> None:
    parcel = closed([(b"a", 0), (b"b", 1)])
    called: list[str] = []
    assert parcel.call_when_done(0, lambda: called.append("first"))
    assert parcel.call_when_done(None, lambda: called.append("all"))
    assert parcel.due_callbacks() == []
    parcel.resolve(0, 1, 0, -1)
    for each in parcel.due_callbacks():
        each()
    assert called == ["first"]
    assert not parcel.call_when_done(0, lambda: called.append("never"))
    parcel.resolve(1, 2, 0, -1)
    for each in parcel.due_callbacks():
        each()
    assert called == ["first", "all"]
    assert parcel.callbacks == {}


def test_a_callback_makes_the_sender_listen() -> None:
    parcel = closed([(b"a", 0)])
    resolver = listening(parcel)
    assert parcel.call_when_done(0, lambda: None)
    assert resolver.listened == 1


def test_a_callback_on_a_row_that_is_resolved_meanwhile_is_not_queued() -> None:
    parcel = closed([(b"a", 0)])
    listening(parcel).answer = lambda: parcel.resolve(0, 1, 7, -1)
    assert not parcel.call_when_done(0, lambda: None)
    assert parcel.due_callbacks() == []


def test_reading_a_rows_error_marks_it_as_reported() -> None:
    parcel = closed([(b"a", 0), (b"b", 1)])
    error = ValueError("no")
    parcel.fail(1, 2, error)
    assert parcel.error_of(0) is None
    assert not parcel.failures[0].is_reported
    assert parcel.error_of(1) is error
    assert parcel.failures[0].is_reported
