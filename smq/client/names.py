"""Names that all of the SDK shares."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


OffsetsIn = Mapping[TopicPartition, int] | Mapping[tuple[str, int], int]
"""Offsets by partition, as a caller passes them: plain tuples will do for names."""


class GroupOffsets(NamedTuple):
    """Offsets to commit for a group, and with which membership; by default: without members.

    `metadata` is a note that the broker keeps beside each of the offsets.
    """

    group: str
    offsets: Mapping[TopicPartition, int]
    generation_id: int = -1
    member_id: str = ""
    instance_id: str | None = None
    metadata: str = ""


def by_topic(names: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The partitions of each topic, in the order of the names."""
    topics: dict[str, list[int]] = {}
    for name in names:
        topics.setdefault(name.topic, []).append(name.partition)
    return topics
