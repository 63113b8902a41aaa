"""A single record gets the same results as a parcel's row."""

import pytest

from smq.client.producing.delivery.delivery_state import Delivery
from smq.client.producing.delivery.futures import Future
from smq.client.producing.delivery.single_record import SingleRecord
from smq.client.producing.encode.columns import one_bound, one_of
from tests.client.parcels import OPENED_MS, NoWaiting


@pytest.fixture
def single() -> SingleRecord:
    one = one_of(b"value", b"key", ((b"k", b"v"),), OPENED_MS)
    return SingleRecord("t", NoWaiting(), one, 2, 10**9)


def test_it_has_room_for_all_of_its_record(single: SingleRecord) -> None:
    assert single.rows is not None
    assert single.bytes == single.bound(0, 1) == one_bound(single.rows)
    assert (single.row_count, single.unresolved) == (1, 1)


@pytest.mark.parametrize(
    ("offset", "append_time_ms", "told"),
    [
        (5, -1, Delivery("t", 2, 5, OPENED_MS)),
        (5, OPENED_MS + 1, Delivery("t", 2, 5, OPENED_MS + 1)),
        (-1, -1, Delivery("t", 2, -1, OPENED_MS)),
    ],
)
def test_it_learns_where_it_is_and_lets_the_record_go(
    single: SingleRecord, offset: int, append_time_ms: int, told: Delivery
) -> None:
    future = Future(single, 0)
    assert not future.done()
    with pytest.raises(TimeoutError):
        future.result(0)
    single.resolve(0, 1, offset, append_time_ms)
    assert future.done()
    assert future.result() == told
    assert future.exception() is None
    assert single.is_resolved()
    assert single.rows is None


def test_it_learns_why_it_is_not_there(single: SingleRecord) -> None:
    error = ValueError("no")
    single.fail(0, 1, error)
    assert single.is_resolved()
    assert not single.failures[0].is_reported
    assert Future(single, 0).exception() is error
    assert single.failures[0].is_reported
