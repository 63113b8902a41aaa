"""Which consumers of Kafka's protocol have a topic's partitions, for who asks for subscribers.

The coordinator is asked in the caller's name, and tells of the groups that he may DESCRIBE.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from smq.client.consuming.group.group_protocol import read_assignment
from smq.client.kafka import admin
from smq.client.kafka.cluster import Cluster
from smq.client.kafka.group_admin import committed_offsets, describe_group
from smq.client.names import TopicPartition
from smq.model.errors import BrokerError, PeerError
from smq.model.group_protocols import CONSUMER
from smq.wire.generated.describe_groups import DescribedGroup, DescribedGroupMember

STABLE = "Stable"


class AssignedConsumer(NamedTuple):
    """A member of a group, and a partition that it has. `committed`: -1 if the group has none."""

    group: str
    member: str
    client_id: str
    partition: int
    committed: int


def consumers_of(cluster: Cluster, topic: str) -> list[AssignedConsumer]:
    """Those that read a topic, by group, member and partition. Raises BrokerError."""
    listed = admin.groups(cluster)
    names = [each.group_id for each in listed if each.protocol_type == CONSUMER]
    return [each for name in names for each in _of_group(cluster, name, topic)]


def _of_group(cluster: Cluster, name: str, topic: str) -> Iterator[AssignedConsumer]:
    found: list[tuple[DescribedGroupMember, list[int]]] = []
    committed: dict[TopicPartition, int] = {}
    with suppress(BrokerError):  # It is gone by now, or not the caller's.
        found = [*_having(describe_group(cluster, name), topic)]
        committed = committed_offsets(cluster, name) if found else {}
    for member, partitions in found:
        for each in partitions:
            offset = committed.get(TopicPartition(topic, each), -1)
            yield AssignedConsumer(name, member.member_id, member.client_id, each, offset)


def _having(group: DescribedGroup, topic: str) -> Iterator[tuple[DescribedGroupMember, list[int]]]:
    for member in group.members if group.group_state == STABLE else ():
        with suppress(PeerError):  # Members write what they like.
            names = read_assignment(member.member_assignment)
            if partitions := sorted(each.partition for each in names if each.topic == topic):
                yield member, partitions
