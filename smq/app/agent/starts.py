"""Finds the offset at which a subscription of a partition begins, for every offset type."""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from smq.app.agent.broker import BrokerSide
from smq.app.agent.topics import KnownTopic
from smq.client.kafka.cluster import Cluster
from smq.client.kafka.offsets import NOT_FOUND, find_offsets
from smq.client.names import TopicPartition
from smq.model.offset_types import (
    LogEnds,
    Start,
    WantedPlace,
    problem_of,
    start_of,
    timestamp_ms,
)


class PlacesKnown(NamedTuple):
    """What a group has committed, and where partitions of a topic begin and end."""

    committed: Mapping[TopicPartition, int]
    ends: Mapping[int, LogEnds]


async def start_at(
    broker: BrokerSide, topic: KnownTopic, partition: int, wanted: WantedPlace, known: PlacesKnown
) -> Start:
    """Where to begin. Raises OutOfRange, ValueError, BrokerError."""
    if problem := problem_of(wanted):
        raise ValueError(problem)
    time_ms = timestamp_ms(wanted)
    by_time = None
    if time_ms is not None:
        find = partial(_at_time, topic=topic.kafka_name, partition=partition, time_ms=time_ms)
        by_time = await broker.ask(find)
    committed = known.committed.get(TopicPartition(topic.kafka_name, partition))
    return start_of(wanted, known.ends[partition], committed=committed, by_time=by_time)


def _at_time(cluster: Cluster, topic: str, partition: int, time_ms: int) -> int | None:
    found = find_offsets(cluster, topic, [partition], time_ms)[partition]
    return None if found == NOT_FOUND else found
