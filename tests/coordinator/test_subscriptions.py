"""What consumers say that they read."""

import struct

import pytest

from smq.coordinator.group import Group
from smq.coordinator.group_limits import GroupLimits
from smq.coordinator.roster import Member
from smq.coordinator.subscriptions import TOPICS_MAX, _topics, topics_of
from smq.model.errors import PeerError


def test_the_topics_stand_behind_the_version() -> None:
    said = b"\0\3" + b"\0\0\0\2" + b"\0\1a" + b"\0\2bc" + b"\xff\xff\xff\xff and more"
    assert _topics(said, 2) == (["a", "bc"], 13)
    assert _topics(b"\0\0" + b"\0\0\0\0", 0) == ([], 6)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\0",
        b"\0\0",
        b"\0\0" + b"\0\0\0\1",
        b"\0\0" + b"\x7f\xff\xff\xff" + b"\0\1a",
        b"\0\0\xff\xff\xff\xff",
    ],
)
def test_a_malformed_subscription_is_refused(said: bytes) -> None:
    with pytest.raises((PeerError, struct.error)):
        _topics(said, TOPICS_MAX)


def group_of(*said: list[str], own: bytes = b"") -> Group:
    """A group of members that say these topics, and each something of its own behind them."""
    group = Group("g", GroupLimits(0, len(said)))
    for number, topics in enumerate(said):
        names = b"".join(len(name).to_bytes(2) + name.encode() for name in topics)
        metadata = b"\0\1" + len(topics).to_bytes(4) + names + b"%d" % number + own
        group.roster.add(
            Member(f"m{number}", None, "", "", 0, 0, b"", (("range", metadata),), is_new=True)
        )
    group._generation.protocol_name = "range"
    return group


def test_a_subscription_shared_by_all_members_is_parsed_once() -> None:
    topics = [f"t{number}" for number in range(1000)]
    many = TOPICS_MAX // len(topics) * 3
    assert topics_of(group_of(*[topics] * many, ["other"])) == frozenset([*topics, "other"])


def test_more_topics_than_can_be_looked_at_are_all_that_there_are() -> None:
    """Data fault 13, its kind: an OffsetDelete of 37 bytes parsed the 4 MiB that members had said:
    0.4 s of the coordinator."""
    half = TOPICS_MAX // 2
    some = [[f"{first}-{number}" for number in range(half)] for first in range(3)]
    assert topics_of(group_of(*some[:2])) == frozenset(some[0] + some[1])
    assert topics_of(group_of(*some)) is None
