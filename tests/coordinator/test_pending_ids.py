"""Ids that were given out: waited for until their deadline, and bounded together."""

from smq.coordinator.pending_ids import ID_OVERHEAD_BYTES, PENDING_BYTES_MAX, PendingIds


def test_an_id_is_waited_for_until_its_deadline() -> None:
    pending = PendingIds()
    pending.give("a", 10)
    pending.give("b", 20)
    assert not pending.expire(9)
    assert pending.expire(10)
    assert ("a" in pending, "b" in pending, len(pending)) == (False, True, 1)
    pending.invariants()


def test_an_id_that_somebody_joined_with_is_waited_for_no_longer() -> None:
    pending = PendingIds()
    pending.give("a", 10)
    pending.discard("a")
    pending.discard("a")
    assert not pending.expire(10)
    assert pending.bytes_held == 0
    pending.invariants()


def test_the_oldest_goes_when_there_are_too_many_at_a_steady_price() -> None:
    pending = PendingIds()
    name_bytes = 28_000
    kept = PENDING_BYTES_MAX // (name_bytes + ID_OVERHEAD_BYTES)
    for i in range(3 * kept):
        pending.give(f"{i:08d}".rjust(name_bytes, "x"), 1_000 + i)
        pending.invariants()
    assert len(pending) == kept
    assert f"{2 * kept:08d}".rjust(name_bytes, "x") in pending
    assert f"{2 * kept - 1:08d}".rjust(name_bytes, "x") not in pending
