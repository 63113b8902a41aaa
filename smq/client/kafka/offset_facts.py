"""Offsets of a topic's partitions: their ends, a group's lag, and where a reader would start."""

from typing import NamedTuple

from smq.client.kafka.cluster import Cluster
from smq.client.kafka.group_admin import committed_offsets
from smq.client.kafka.offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    NOT_FOUND,
    READ_COMMITTED,
    find_offsets,
)
from smq.client.names import TopicPartition
from smq.model.offset_types import (
    LogEnds,
    OffsetType,
    OutOfRange,
    WantedPlace,
    problem_of,
    start_of,
    timestamp_ms,
)

RESUME = WantedPlace(OffsetType.RESUME_OR_EARLIEST)


class PartitionOffsets(NamedTuple):
    """Of a partition, at about one moment.

    earliest    of its first record
    high_water  the next record's, and the end for who reads uncommitted records
    stable_end  the end for who reads committed records alone
    committed   where the group goes on; None: it has not been here, or no group was named
    lag         from there to the high water mark
    start       where a reader with the offset type that was named would start; None: nowhere
    note        why it is nowhere, or elsewhere than it asks for
    """

    earliest: int
    high_water: int
    stable_end: int
    committed: int | None
    lag: int | None
    start: int | None
    note: str


def offsets_of(
    cluster: Cluster, topic: str, group: str | None = None, wanted: WantedPlace = RESUME
) -> dict[int, PartitionOffsets]:
    """The offsets of a topic's partitions, by number. Raises BrokerError, ValueError."""
    if problem := problem_of(wanted):
        raise ValueError(problem)
    partitions = [*range(len(cluster.retrying(lambda: cluster.topic(topic)).leaders))]
    commits = {} if group is None else committed_offsets(cluster, group)
    earliest = find_offsets(cluster, topic, partitions, EARLIEST_TIMESTAMP)
    stable = find_offsets(
        cluster, topic, partitions, LATEST_TIMESTAMP, isolation_level=READ_COMMITTED
    )
    latest = find_offsets(cluster, topic, partitions, LATEST_TIMESTAMP)
    time_ms = timestamp_ms(wanted)
    timed = {} if time_ms is None else find_offsets(cluster, topic, partitions, time_ms)
    return {
        each: _of_partition(
            LogEnds(earliest[each], latest[each]),
            stable[each],
            commits.get(TopicPartition(topic, each)),
            wanted,
            None if timed.get(each, NOT_FOUND) == NOT_FOUND else timed[each],
        )
        for each in partitions
    }


def _of_partition(
    ends: LogEnds, stable_end: int, committed: int | None, wanted: WantedPlace, by_time: int | None
) -> PartitionOffsets:
    try:
        start = start_of(wanted, ends, committed=committed, by_time=by_time)
        offset, note = start.offset, start.note
    except OutOfRange as reason:
        offset, note = None, str(reason)
    lag = None if committed is None else max(0, ends.latest - committed)
    return PartitionOffsets(*ends, stable_end, committed, lag, offset, note)
