"""What members tell each other, as Kafka's clients write and read it."""

from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from smq.client.consuming.group.assignors import Member
from smq.client.consuming.group.group_protocol import (
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from smq.client.names import TopicPartition
from smq.model.errors import PeerError

_names = st.frozensets(
    st.builds(TopicPartition, st.text(max_size=5), st.integers(0, 2**31 - 1)), max_size=5
)
_members = st.builds(
    Member,
    st.frozensets(st.text(max_size=5), max_size=4),
    _names,
    st.integers(-1, 2**31 - 1),
    st.none(),  # JoinGroup tells it.
)


@given(_members)
def test_a_subscription_comes_back(member: Member) -> None:
    assert read_subscription(write_subscription(member)) == member


@given(_names)
def test_an_assignment_comes_back(names: frozenset[TopicPartition]) -> None:
    assert read_assignment(write_assignment(names)) == names


@given(st.binary(max_size=60) | _members.map(write_subscription), st.integers(0, 80))
def test_garbage_is_an_error_of_the_peer_and_nothing_else(data: bytes, end: int) -> None:
    for read in (read_subscription, read_assignment):
        with suppress(PeerError):
            read(data[:end])


def test_older_versions_say_less_and_newer_ones_more() -> None:
    member = Member(frozenset({"t"}), frozenset({TopicPartition("t", 1)}), 7)
    written = write_subscription(member)
    assert read_subscription(b"\0\0" + written[2:]) == Member(member.topics)
    assert read_subscription(b"\0\1" + written[2:]) == Member(member.topics, member.owned)
    assert read_subscription(b"\0\7" + written[2:] + b"rack and more") == member
    assert read_assignment(b"") == frozenset()


@pytest.mark.clients
def test_kafka_pythons_are_read_and_ours_by_it() -> None:
    schemas = pytest.importorskip("kafka.coordinator.assignors.abstract")
    theirs = schemas.ConsumerProtocolAssignment(0, [("t", [0, 2])], b"")
    encoded = bytes(theirs.encode())
    assert read_assignment(encoded) == {TopicPartition("t", 0), TopicPartition("t", 2)}
    ours = schemas.ConsumerProtocolAssignment.decode(write_assignment([TopicPartition("t", 1)]))
    assert [(topic, list(each)) for topic, each in ours.assigned_partitions] == [("t", [1])]
