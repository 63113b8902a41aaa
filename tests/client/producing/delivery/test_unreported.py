"""Failures are reported once, and kept only as long as needed."""

from smq.client.producing.delivery.parcel import Parcel
from smq.client.producing.delivery.unreported import LOOK_AT_COUNT, UnreportedFailures
from tests.client.parcels import closed


def failed() -> Parcel:
    parcel = closed([(b"a", 0)])
    parcel.fail(0, 1, ValueError("no"))
    return parcel


def test_an_unseen_failure_is_taken_once() -> None:
    unseen, seen, other = UnreportedFailures(), failed(), failed()
    unseen.note([closed([(b"a", 0)]), seen, other])
    unseen.note([other])
    seen.error_of(0)
    assert unseen.take() == other.failures
    unseen.note([seen, other])
    assert unseen.take() == []


def test_those_that_were_seen_are_dropped_now_and_then() -> None:
    unseen, kept = UnreportedFailures(), [failed() for _ in range(3)]
    unseen.note(kept)
    for _ in range(10 * LOOK_AT_COUNT):
        parcel = failed()
        unseen.note([parcel])
        parcel.error_of(0)
    assert len(unseen) <= LOOK_AT_COUNT
    assert unseen.take() == [each.failures[0] for each in kept]
