"""A row keeps its number, whatever partition it goes to and whatever becomes of it."""

from hypothesis import given, settings, strategies as st

from shm.kernels.record.records import C_OFFSET, C_TIMESTAMP
from shm.kernels.record.records_encode import RecordRows, ValueRows
from smq.client.producing.delivery.delivery_state import Delivery
from smq.client.producing.delivery.parcel import Parcel
from smq.model.partitioner import partition_of_key
from tests.client.parcels import OPENED_MS, add, closed, open_parcel


def values(parcel: Parcel, first: int, end: int) -> list[bytes]:
    """Of rows of the columns."""
    rows = parcel.rows
    assert isinstance(rows, RecordRows)
    places = zip(rows.columns[4, first:end], rows.columns[5, first:end], strict=True)
    return [rows.values[at : at + length].tobytes() for at, length in places]


@settings(deadline=None)
@given(st.lists(st.integers(0, 4), min_size=2, max_size=50))
def test_rows_are_sorted_by_partition_and_keep_their_order(partitions: list[int]) -> None:
    parcel = closed([(b"%d" % i, each) for i, each in enumerate(partitions)], partition_count=5)
    found = {
        partition: values(parcel, first, end) for partition, first, end in parcel.by_partition()
    }
    assert found == {
        partition: [b"%d" % i for i, each in enumerate(partitions) if each == partition]
        for partition in sorted(set(partitions))
    }
    assert isinstance(parcel.rows, RecordRows)
    assert parcel.rows.columns[C_OFFSET].tolist() == list(range(len(partitions)))


@settings(deadline=None)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=30))
def test_each_row_learns_its_own_fate(partitions: list[int]) -> None:
    parcel = closed([(b"%d" % i, each) for i, each in enumerate(partitions)])
    error = ValueError("no")
    for partition, first, end in list(parcel.by_partition()):
        assert not parcel.is_resolved()
        if partition == 1:
            parcel.fail(first, end, error)
        else:
            parcel.resolve(first, end, 100 * partition, -1)
    assert parcel.is_resolved()
    for row, partition in enumerate(partitions):
        assert parcel.is_done(row)
        place = partitions[:row].count(partition)
        if partition == 1:
            assert parcel.error_of(row) is error
        else:
            assert parcel.error_of(row) is None
            expected = Delivery("t", partition, 100 * partition + place, OPENED_MS)
            assert parcel.delivery(row) == expected
    assert parcel.first_error() is (error if 1 in partitions else None)


def test_keyless_rows_go_together_and_keys_where_kafka_sends_them() -> None:
    parcel = open_parcel()
    for key in (None, b"one", b"two", None):
        add(parcel, b"", key=key)
    parcel.close(7, 3)
    expected = [3, partition_of_key(b"one", 7), partition_of_key(b"two", 7), 3]
    assert parcel.deliveries()[0].tolist() == expected


def test_rows_that_are_nothing_but_values_are_kept_as_such_and_learn_their_times() -> None:
    parcel = open_parcel()
    for value in (b"0", b"", b"two"):
        add(parcel, value)
    parcel.close(7, 3)
    assert isinstance(parcel.rows, ValueRows)
    assert list(parcel.by_partition()) == [(3, 0, 3)]
    assert parcel.bytes == parcel.bound(0, 3) == parcel.bound(0, 1) + parcel.bound(1, 3)
    parcel.resolve(0, 2, 10, -1)
    parcel.resolve(2, 3, 12, OPENED_MS + 5)
    expected = [(10, OPENED_MS), (11, OPENED_MS), (12, OPENED_MS + 5)]
    for row, (offset, time_ms) in enumerate(expected):
        assert parcel.delivery(row) == Delivery("t", 3, offset, time_ms)


def test_a_null_among_values_makes_them_rows() -> None:
    parcel = open_parcel()
    for value in (b"0", None):
        add(parcel, value)
    parcel.close(7, 3)
    assert isinstance(parcel.rows, RecordRows)
    assert parcel.deliveries()[0].tolist() == [3, 3]


def test_a_timestamp_is_the_rows_own_or_that_of_the_parcel_or_the_brokers() -> None:
    parcel = open_parcel()
    add(parcel, b"a", timestamp_ms=5)
    add(parcel, b"b")
    parcel.close(1, 0)
    assert isinstance(parcel.rows, RecordRows)
    assert parcel.rows.columns[C_TIMESTAMP].tolist() == [5, OPENED_MS]
    parcel.resolve(0, 1, 0, -1)
    parcel.resolve(1, 2, 1, 77)
    assert [parcel.delivery(row).timestamp_ms for row in (0, 1)] == [5, 77]


def test_an_offset_unknown_to_the_broker_is_minus_one() -> None:
    parcel = closed([(b"a", 0)])
    parcel.resolve(0, 1, -1, -1)
    assert parcel.delivery(0).offset == -1


def test_columns_are_dropped_once_all_is_known() -> None:
    parcel = closed([(b"a", 0), (b"b", 0)])
    parcel.resolve(0, 1, 0, -1)
    assert values(parcel, 1, 2) == [b"b"]
    parcel.resolve(1, 2, 1, -1)
    assert parcel.rows is None
    partitions, offsets, times = parcel.deliveries()
    assert (partitions.tolist(), offsets.tolist()) == ([0, 0], [0, 1])
    assert times.tolist() == [OPENED_MS] * 2


def test_bounds_are_those_of_the_rows() -> None:
    parcel = closed([(bytes(100), 0), (bytes(10), 0)])
    assert parcel.bound(0, 1) >= 100
    assert parcel.bound(1, 2) < 100
    assert parcel.bound(0, 2) == parcel.bytes


def test_an_empty_parcel_has_nothing_to_resolve() -> None:
    parcel = open_parcel()
    parcel.close(3, 0)
    assert list(parcel.by_partition()) == []
    assert parcel.is_resolved()


def test_give_up_fails_only_unresolved_rows() -> None:
    parcel = closed([(b"a", 1), (b"b", 0), (b"c", 1)])
    parcel.resolve(0, 1, 7, -1)
    parcel.give_up(ValueError("no"))
    assert parcel.is_resolved()
    assert [parcel.error_of(row) is None for row in range(3)] == [False, True, False]
    assert parcel.delivery(1).offset == 7
    opened = open_parcel()
    add(opened, b"a")
    opened.give_up(ValueError("no"))
    assert opened.is_done(0)
    assert str(opened.error_of(0)) == "no"
