"""The contents of the buffer, and the parcels with results to report."""

from smq.client.producing.batching.pending_parcels import PendingParcels
from tests.client.parcels import closed


def test_parcels_count_until_all_of_their_rows_are_resolved() -> None:
    pending = PendingParcels()
    one, two = closed([(b"a", 0), (b"b", 1)]), closed([(b"c", 0)])
    for parcel in (one, two):
        pending.add(parcel)
        pending.invariants()
    assert pending.buffered_bytes == one.bytes + two.bytes
    assert (len(pending), pending.count("t"), pending.count("other")) == (2, 2, 0)
    one.resolve(0, 1, 7, -1)
    pending.note_resolved(one)
    assert one in pending
    one.resolve(1, 2, 7, -1)
    pending.note_resolved(one)
    pending.note_resolved(one)
    pending.invariants()
    assert [*pending] == [two]
    assert (pending.buffered_bytes, pending.count("t")) == (two.bytes, 1)


def test_parcels_with_resolved_rows_are_returned_once() -> None:
    pending, parcel = PendingParcels(), closed([(b"a", 0), (b"b", 1)])
    pending.add(parcel)
    assert not pending.changed
    parcel.resolve(0, 1, 7, -1)
    pending.note_resolved(parcel)
    assert [*pending.changed] == [parcel]
    assert pending.take_changed() == [parcel]
    assert pending.take_changed() == []


def test_a_callback_of_any_parcel_is_found() -> None:
    pending, parcel = PendingParcels(), closed([(b"a", 0)])
    pending.add(closed([(b"b", 0)]))
    pending.add(parcel)
    assert not pending.has_callbacks()
    parcel.call_when_done(0, lambda: None)
    assert pending.has_callbacks()


def test_at_the_end_nothing_is_pending() -> None:
    pending, parcel = PendingParcels(), closed([(b"a", 0)])
    pending.add(parcel)
    assert pending.clear() == [parcel]
    assert [*pending] == []
