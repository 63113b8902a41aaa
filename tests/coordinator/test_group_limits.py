"""Limits of a group: of the next member's metadata, and of its assignments."""

from dataclasses import replace

from smq.coordinator.group_events import Join, Sync
from smq.coordinator.group_limits import (
    METADATA_BYTES_MAX,
    can_be_assigned,
    fits,
)
from smq.coordinator.roster import Member, Roster, metadata_bytes

JOIN = Join(
    ticket=1,
    member_id="",
    new_member_id="n",
    instance_id=None,
    client_id="c",
    client_host="/h",
    session_timeout_ms=1,
    rebalance_timeout_ms=1,
    protocol_type="consumer",
    protocols=(("range", b""),),
    must_know_member_id=False,
    may_skip_assignment=False,
)


def full_roster() -> Roster:
    """One static member, who takes it all."""
    left = METADATA_BYTES_MAX - metadata_bytes("c", "i", (("range", b""),))
    roster = Roster()
    roster.add(Member("a", "i", "c", "/h", 1, 1, b"", (("range", b"x" * left),)))
    assert roster.bytes_held == METADATA_BYTES_MAX
    return roster


def test_a_members_metadata_counts_together_with_that_of_others() -> None:
    assert fits(JOIN, Roster())
    roster = full_roster()
    assert not fits(JOIN, roster)
    roster.drop("a")
    assert fits(JOIN, roster)


def test_a_member_may_always_bring_as_much_as_it_had() -> None:
    roster = full_roster()
    more = (("range", roster.members["a"].protocols[0][1] + b"x"),)
    for again in (
        replace(JOIN, member_id="a", instance_id="i"),
        replace(JOIN, member_id="", instance_id="i"),  # It came back without its id.
    ):
        assert fits(replace(again, protocols=roster.members["a"].protocols), roster)
        assert not fits(replace(again, protocols=more), roster)


def test_work_for_strangers_is_not_kept_and_not_counted() -> None:
    roster = full_roster()
    whole = b"x" * 1024 * 1024
    sync = Sync(ticket=1, member_id="a", instance_id="i", generation=1)
    assert can_be_assigned(replace(sync, assignments={"a": whole, "x": whole}), roster)
    assert not can_be_assigned(replace(sync, assignments={"a": whole + b"x"}), roster)
