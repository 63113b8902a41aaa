"""Assigns partitions to the members of a group. The group's leader, which may be another client,
decides for all: each assignor must give the same result as Kafka's of that name.

    range               topic by topic, each member gets neighbouring partitions, in order
    roundrobin          partition by partition, in turns
    cooperative-sticky  each member keeps its partitions as far as that is fair; one that moves is
                        given up in one rebalance and assigned in the next, and the others are read
                        meanwhile

Members are Member values by id. They are ordered by id, after the static ones, which are ordered by
their names: so a static member gets the same partitions when it returns under another id.
"""

from collections.abc import Callable, Mapping
from itertools import cycle
from typing import NamedTuple

from smq.client.consuming.consumer_settings import (
    ASSIGNORS as NAMES,
    COOPERATIVE,
    RANGE,
    ROUNDROBIN,
)
from smq.client.names import TopicPartition


class Member(NamedTuple):
    """A member's subscription: its topics, and the partitions it owns since which generation."""

    topics: frozenset[str]
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = -1
    instance_id: str | None = None  # Of a static member: its name, which outlives its id.


Members = Mapping[str, Member]
Assignment = dict[str, set[TopicPartition]]
Assignor = Callable[[Members, Mapping[str, int]], Assignment]


def assign_range(members: Members, partition_counts: Mapping[str, int]) -> Assignment:
    """Neighbouring partitions of each topic to each member; the first members get one more."""
    assignment: Assignment = {each: set() for each in members}
    for topic, count in partition_counts.items():
        takers = [each for each in _in_order(members) if topic in members[each].topics]
        start = 0
        for index, taker in enumerate(takers):
            share = count // len(takers) + (index < count % len(takers))
            assignment[taker] |= {
                TopicPartition(topic, each) for each in range(start, start + share)
            }
            start += share
    return assignment


def assign_roundrobin(members: Members, partition_counts: Mapping[str, int]) -> Assignment:
    """In turns, skipping members without the topic."""
    assignment: Assignment = {each: set() for each in members}
    turns = cycle(_in_order(members))
    for partition in _partitions(partition_counts):
        if any(partition.topic in member.topics for member in members.values()):
            taker = next(each for each in turns if partition.topic in members[each].topics)
            assignment[taker].add(partition)
    return assignment


def _in_order(members: Members) -> list[str]:
    def place(member_id: str) -> tuple[bool, str]:
        name = members[member_id].instance_id
        return name is None, name or member_id

    return sorted(members, key=place)


def assign_cooperative_sticky(members: Members, partition_counts: Mapping[str, int]) -> Assignment:
    """As fair as possible with few moves; partitions that another member still owns stay
    unassigned."""
    owners = _owners(members, partition_counts)
    assignment: Assignment = {each: set() for each in members}
    for partition, owner in owners.items():
        assignment[owner].add(partition)
    for partition in _partitions(partition_counts):
        takers = _takers(members, partition)
        if partition not in owners and takers:
            assignment[_poorest(takers, assignment)].add(partition)
    _balance(members, assignment)
    for member, partitions in assignment.items():
        partitions -= {each for each in partitions if owners.get(each, member) != member}
    return assignment


def _owners(members: Members, partition_counts: Mapping[str, int]) -> dict[TopicPartition, str]:
    """Owners that may keep a partition; of several claims, one of the latest generation."""
    owners: dict[TopicPartition, str] = {}
    for member in sorted(members, key=lambda each: (members[each].generation, each)):
        for each in members[member].owned:
            wanted = each.topic in members[member].topics
            if wanted and each.partition < partition_counts.get(each.topic, 0):
                owners[each] = member
    return owners


def _balance(members: Members, assignment: Assignment) -> None:
    """Move partitions from the fullest to the emptiest member while they differ by more than 1."""
    moved = True
    while moved:
        moved = False
        for giver in sorted(assignment, key=lambda each: (-len(assignment[each]), each)):
            for partition in sorted(assignment[giver], reverse=True):
                taker = _poorest(_takers(members, partition), assignment)
                if len(assignment[giver]) - len(assignment[taker]) < 2:
                    continue
                assignment[giver].remove(partition)
                assignment[taker].add(partition)
                moved = True


def _takers(members: Members, partition: TopicPartition) -> list[str]:
    return [each for each, member in members.items() if partition.topic in member.topics]


def _poorest(takers: list[str], assignment: Assignment) -> str:
    return min(takers, key=lambda each: (len(assignment[each]), each))


def _partitions(partition_counts: Mapping[str, int]) -> list[TopicPartition]:
    return sorted(
        TopicPartition(topic, each)
        for topic, count in partition_counts.items()
        for each in range(count)
    )


ASSIGNORS: dict[str, Assignor] = {
    RANGE: assign_range,
    ROUNDROBIN: assign_roundrobin,
    COOPERATIVE: assign_cooperative_sticky,
}
assert (*ASSIGNORS,) == NAMES, "the settings take every assignor that there is"
