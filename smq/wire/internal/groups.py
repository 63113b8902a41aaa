"""Groups whose partitions the agent shares, as it tells the coordinator: who is in them.

`said` and `assignment` are bytes, a character each (Latin-1).
"""

from typing import NamedTuple

from smq.model.frozen import frozen
from smq.wire.internal.form import Question

MEMBERS_MAX = 200  # In a question: costs the coordinator some milliseconds.


class HeldRow(NamedTuple):
    """A member: what it says of itself, and what it has."""

    member_id: str
    client_id: str
    client_host: str
    said: str
    assignment: str


class HeldGroup(NamedTuple):
    """A group's members that have come or changed, and the ids of those that have gone.

    `generation`: the one that this changes. Negative: there are no other members.
    """

    group_id: str
    generation: int
    members: list[HeldRow]
    gone: list[str]


class GroupHeld(NamedTuple):
    """The group's generation, or Kafka's code of an error. `before`: what members said and had that
    have gone because they were not named."""

    error_code: int
    generation: int
    before: list[tuple[str, str]]


@frozen
class HoldGroups(Question[list[GroupHeld]]):
    """Take these members, and give all of their groups another session timeout."""

    session_timeout_ms: int
    groups: list[HeldGroup]
