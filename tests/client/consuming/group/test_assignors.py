"""Assignments are fair, complete, disjoint, and the same as those of Kafka's clients."""

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from smq.client.consuming.group.assignors import (
    ASSIGNORS,
    Assignor,
    Member,
    assign_cooperative_sticky,
    assign_range,
    assign_roundrobin,
)
from smq.client.names import TopicPartition

TOPICS = ["a", "b", "c"]
_members = st.dictionaries(
    st.sampled_from(["m1", "m2", "m3", "m4"]),
    st.builds(
        Member,
        st.frozensets(st.sampled_from(TOPICS), min_size=1),
        st.just(frozenset()),
        st.just(-1),
        st.none(),
    ),
    min_size=1,
)
_counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 7))


def names(topic: str, *partitions: int) -> set[TopicPartition]:
    return {TopicPartition(topic, each) for each in partitions}


@given(_members, _counts)
@pytest.mark.parametrize("name", ASSIGNORS)
def test_each_partition_that_somebody_wants_is_one_members(
    name: str, members: dict[str, Member], counts: dict[str, int]
) -> None:
    assignment = ASSIGNORS[name](members, counts)
    assert assignment.keys() == members.keys()
    given = [each for partitions in assignment.values() for each in partitions]
    wanted = {topic for member in members.values() for topic in member.topics}
    assert len(given) == len(set(given))
    assert set(given) == {
        TopicPartition(topic, each) for topic in wanted for each in range(counts.get(topic, 0))
    }
    for member, partitions in assignment.items():
        assert {each.topic for each in partitions} <= members[member].topics


class Cluster:
    """What kafka-python's assignors ask."""

    def __init__(self, counts: dict[str, int]) -> None:
        self._counts = counts

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(range(self._counts[topic])) if topic in self._counts else None


@pytest.mark.clients
@settings(deadline=None)  # Importing kafka takes its time.
@given(_members, _counts)
def test_range_and_roundrobin_are_kafkas(
    members: dict[str, Member], counts: dict[str, int]
) -> None:
    assignors = pytest.importorskip("kafka.coordinator.assignors.range")
    others = pytest.importorskip("kafka.coordinator.assignors.roundrobin")
    abstract = pytest.importorskip("kafka.coordinator.assignors.abstract")
    counts = {topic: count for topic, count in counts.items() if count}
    theirs = {assign_range: assignors.RangePartitionAssignor}
    if len({member.topics for member in members.values()}) == 1:  # Else kafka-python's fails.
        theirs[assign_roundrobin] = others.RoundRobinPartitionAssignor
    for ours, other in theirs.items():
        told = [member_of(abstract, each, member) for each, member in members.items()]
        found = other.assign(Cluster(counts), told)
        assert ours(members, counts) == {
            each: {
                TopicPartition(topic, partition)
                for topic, partitions in found[each].assigned_partitions
                for partition in partitions
            }
            for each in members
        }


def member_of(abstract: Any, member_id: str, member: Member) -> Any:
    class Told:
        group_instance_id = None
        metadata = abstract.ConsumerProtocolSubscription(0, sorted(member.topics), b"")

    told = Told()
    told.member_id = member_id  # type: ignore[attr-defined]
    return told


def stable(members: dict[str, Member], counts: dict[str, int]) -> dict[str, Member]:
    """Members after as many rebalances as it takes until nobody gives anything up."""
    for generation in range(10):
        assignment = assign_cooperative_sticky(members, counts)
        for member, partitions in assignment.items():
            for other, theirs in members.items():
                assert other == member or not partitions & theirs.owned, "given up first"
        after = {
            each: Member(member.topics, frozenset(assignment[each]), generation)
            for each, member in members.items()
        }
        if all(members[each].owned <= after[each].owned for each in members):
            return after
        members = after
    raise AssertionError("it does not come to rest")


@given(_members, _counts, _members)
def test_sticky_shares_come_to_rest_fair_and_whole(
    members: dict[str, Member], counts: dict[str, int], others: dict[str, Member]
) -> None:
    settled = stable(members, counts)
    changed = {each: settled.get(each, member) for each, member in others.items()}
    settled = stable(changed, counts)
    for member in settled.values():
        for other in settled.values():
            movable = [each for each in member.owned if each.topic in other.topics]
            assert not movable or len(member.owned) - len(other.owned) < 2


@pytest.mark.parametrize("assign", [assign_range, assign_roundrobin])
def test_static_members_stand_first_by_their_names(assign: Assignor) -> None:
    topics = frozenset("a")
    members = {
        "m1": Member(topics),
        "m2": Member(topics, instance_id="y"),
        "m3": Member(topics, instance_id="x"),
    }
    after = {"m4" if each == "m3" else each: member for each, member in members.items()}
    assert assign(members, {"a": 2}) == {"m3": names("a", 0), "m2": names("a", 1), "m1": set()}
    assert assign(after, {"a": 2}) == {"m4": names("a", 0), "m2": names("a", 1), "m1": set()}


def test_a_remaining_member_keeps_its_partitions() -> None:
    topics = frozenset("a")
    members = {each: Member(topics) for each in ("m1", "m2")}
    settled = stable(members, {"a": 4})
    assert [len(each.owned) for each in settled.values()] == [2, 2]
    joined = settled | {"m3": Member(topics)}
    after = stable(joined, {"a": 4})
    kept = sum(len(after[each].owned & settled[each].owned) for each in settled)
    assert kept == 3


def test_of_two_who_say_they_have_it_the_newer_is_believed() -> None:
    topics, owned = frozenset("a"), frozenset(names("a", 0))
    members = {"old": Member(topics, owned, 3), "new": Member(topics, owned, 4)}
    assert assign_cooperative_sticky(members, {"a": 1}) == {"old": set(), "new": names("a", 0)}
