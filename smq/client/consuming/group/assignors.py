"""How the members of a group share partitions. The group's leader decides for all, so each assignor
must come to the same as Kafka's of its name.

    range               topic by topic, neighbours to each member, in order
    roundrobin          partition by partition, in turns
    cooperative-sticky  everybody keeps what it has as far as that is fair; what must move is given
                        away in one rebalance and taken in the next, so that the rest goes on

Members are Member values by id; the result is what each gets. Members stand in the order of their
ids; static ones before, in that of their names, so that who comes back under another id gets what
it had.
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
    """What a member says of itself: the topics it wants, and what it has from which generation."""

    topics: frozenset[str]
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = -1
    instance_id: str | None = None  # Of a static member: what it is called in all its lives.


Members = Mapping[str, Member]
Assignment = dict[str, set[TopicPartition]]
Assignor = Callable[[Members, Mapping[str, int]], Assignment]


def assign_range(members: Members, partition_counts: Mapping[str, int]) -> Assignment:
    """Neighbouring partitions of each topic; the first members get one more."""
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
    """In turns; a member that does not want a topic is passed over."""
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
    """As fair as can be, moving as little as can be; nothing is given that another still has."""
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
    """Who has what and may keep it: of several who say so, one of the latest generation."""
    owners: dict[TopicPartition, str] = {}
    for member in sorted(members, key=lambda each: (members[each].generation, each)):
        for each in members[member].owned:
            wanted = each.topic in members[member].topics
            if wanted and each.partition < partition_counts.get(each.topic, 0):
                owners[each] = member
    return owners


def _balance(members: Members, assignment: Assignment) -> None:
    """Move partitions from who has most to who has least while they differ by more than one."""
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
