"""How large a group may be. Kafka's group is one record of its offsets topic, 1 MiB by default.

That record holds each member's assignment and the metadata of one protocol. We keep the metadata of
all protocols that a member offers, usually two or three, and its ids: hence four times as much for
these. A group that Kafka can save fits here, and one that fits is written in one turn.
"""

from dataclasses import dataclass

from smq.coordinator.group_events import Join, Sync
from smq.coordinator.roster import Roster, metadata_bytes

MiB = 1024 * 1024
METADATA_BYTES_MAX = 4 * MiB
ASSIGNMENTS_BYTES_MAX = 1 * MiB
PROTOCOLS_MAX = 64  # Per member, each a row in the store. Clients offer a handful.


@dataclass(slots=True)
class GroupLimits:
    """The broker's settings that concern a group: one object for all groups, changed in place."""

    initial_rebalance_delay_ms: int
    size_max: int


def fits(join: Join, roster: Roster) -> bool:
    """Whether a joining member's metadata fits into the group.

    A member that brings no more than it had fits in any case: an earlier version had no bound.
    """
    member = roster.members.get(join.member_id) or roster.of_instance(join.instance_id)
    has = roster.bytes_of(member) if member is not None else 0
    wants = metadata_bytes(join.client_id, join.instance_id, join.protocols)
    return wants <= has or roster.bytes_held - has + wants <= METADATA_BYTES_MAX


def can_be_assigned(sync: Sync, roster: Roster) -> bool:
    """Whether the group can keep these assignments. Those for non-members are not kept."""
    kept = (work for member_id, work in sync.assignments.items() if member_id in roster)
    return sum(map(len, kept)) <= ASSIGNMENTS_BYTES_MAX
