"""Places in partitions, and the offsets that brokers resolve them to.

An `OffsetPlace` is an offset or a timestamp. A timestamp stands for the first record at or after
it. Two special ones stand for the first record and for the end of the log.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from smq.client.arguments import milliseconds_of, whole_number
from smq.client.errors import Act
from smq.client.kafka.answers import only
from smq.client.kafka.cluster import Cluster, check
from smq.client.kafka.questions import LIST_OFFSETS
from smq.model.errors import PeerError
from smq.model.offset_types import OffsetType, WantedPlace, problem_of, timestamp_ms
from smq.wire.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

REPLICA_ID_OF_A_CONSUMER = -1
LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3  # Of the record with the latest time (KIP-734).
READ_UNCOMMITTED, READ_COMMITTED = 0, 1  # Isolation levels (KIP-98).
INT63_END = 2**63
ALWAYS_FOUND = frozenset({LATEST_TIMESTAMP, EARLIEST_TIMESTAMP})
NOT_FOUND = -1  # No record is that late.


@dataclass(frozen=True, slots=True)
class OffsetPlace:
    """A place in every partition: an offset, or a timestamp for ListOffsets."""

    offset: int | None = None
    timestamp: int | None = None


class FoundPlace(NamedTuple):
    """An offset, and the time of its record."""

    offset: int
    timestamp_ms: int


EARLIEST = OffsetPlace(timestamp=EARLIEST_TIMESTAMP)
LATEST = OffsetPlace(timestamp=LATEST_TIMESTAMP)
_NAMED = {"earliest": EARLIEST, "latest": LATEST}

Start = str | int | datetime | OffsetPlace
"""How a caller names a place: "earliest", "latest", an offset, or a time with a time zone."""
Begin = Start | OffsetType | WantedPlace
"""How a caller names where a consumer begins: a place, or one of the seven offset types."""


def wanted_of(start: object) -> WantedPlace | None:
    """What a caller names by an offset type; None: it is a place. Raises ValueError."""
    if isinstance(start, OffsetType):
        if start in {OffsetType.EXACT_OFFSET, OffsetType.RESET_TO_OFFSET, OffsetType.EXACT_TS_NS}:
            raise ValueError(f"start: {start.name} needs a number: WantedPlace has it")
        return WantedPlace(start)
    if not isinstance(start, WantedPlace):
        return None
    if problem := problem_of(start):
        raise ValueError(f"start: {problem}")
    return start


def place_of_wanted(wanted: WantedPlace) -> OffsetPlace:
    """The place that an offset type names, whatever a group has committed."""
    match wanted.type:
        case OffsetType.RESUME_OR_EARLIEST | OffsetType.RESET_TO_EARLIEST:
            return EARLIEST
        case OffsetType.RESUME_OR_LATEST | OffsetType.RESET_TO_LATEST:
            return LATEST
    time_ms = timestamp_ms(wanted)
    return OffsetPlace(offset=wanted.offset) if time_ms is None else OffsetPlace(timestamp=time_ms)


def place_of(start: object, name: str = "start") -> OffsetPlace:
    """The place that a caller names. Raises TypeError, ValueError with the argument's name."""
    if isinstance(start, OffsetPlace):
        return start
    if isinstance(start, str):
        if start not in _NAMED:
            raise ValueError(f"{name}: {start!r} is neither 'earliest' nor 'latest'")
        return _NAMED[start]
    if isinstance(start, datetime):
        return OffsetPlace(timestamp=max(0, milliseconds_of(name, start)))  # No record is older.
    if not hasattr(start, "__index__") or isinstance(start, bool):
        kind = type(start).__name__
        raise TypeError(f"{name} is 'earliest', 'latest', an offset or a datetime, not {kind}")
    return OffsetPlace(offset=whole_number(f"{name}, an offset,", start, 0, INT63_END))


def timestamp_of(name: str, time: object) -> int:
    """The milliseconds since 1970 of a time, which is these or a datetime with a time zone."""
    if isinstance(time, datetime):
        found = place_of(time, name).timestamp
        assert found is not None
        return found
    if not hasattr(time, "__index__") or isinstance(time, bool):
        kind = type(time).__name__
        raise TypeError(f"{name} is a datetime or milliseconds since 1970, not {kind}")
    return whole_number(f"{name}, in milliseconds since 1970,", time, 0, INT63_END)


def resolve(
    cluster: Cluster,
    topic: str,
    partitions: Iterable[int],
    place: OffsetPlace,
    *,
    isolation_level: int = READ_UNCOMMITTED,
) -> dict[int, int]:
    """The offset of a place, by partition; the end of the log where no record is that late.

    With READ_COMMITTED the end of the log is the last stable offset.
    """
    partitions = list(partitions)
    if place.offset is not None:
        return dict.fromkeys(partitions, place.offset)
    assert place.timestamp is not None
    level = isolation_level
    offsets = find_offsets(cluster, topic, partitions, place.timestamp, isolation_level=level)
    beyond = [partition for partition, offset in offsets.items() if offset < 0]
    if beyond:
        offsets |= resolve(cluster, topic, beyond, LATEST, isolation_level=level)
    return offsets


def find_offsets(
    cluster: Cluster,
    topic: str,
    partitions: list[int],
    timestamp: int,
    *,
    isolation_level: int = READ_UNCOMMITTED,
) -> dict[int, int]:
    """The first offset at or after a timestamp, by partition; -1 where there is none.

    With READ_COMMITTED the end of the log is the last stable offset.
    """
    found = cluster.retrying(
        lambda: _list_offsets(cluster, topic, partitions, timestamp, isolation_level)
    )
    return {partition: each.offset for partition, each in found.items()}


def find_places(
    cluster: Cluster, topic: str, partitions: list[int], timestamp: int
) -> dict[int, FoundPlace]:
    """As `find_offsets`, with the time of the record there; -1 where there is none."""
    return cluster.retrying(
        lambda: _list_offsets(cluster, topic, partitions, timestamp, READ_UNCOMMITTED)
    )


def _list_offsets(
    cluster: Cluster, topic: str, partitions: list[int], timestamp: int, isolation_level: int
) -> dict[int, FoundPlace]:
    requests = {}
    for leader, led in cluster.by_leader(topic, partitions).items():
        asked = [ListOffsetsPartition(partition_index=each, timestamp=timestamp) for each in led]
        requests[leader] = ListOffsetsRequest(
            replica_id=REPLICA_ID_OF_A_CONSUMER,
            isolation_level=isolation_level,
            topics=[ListOffsetsTopic(name=topic, partitions=asked)],
        )
    offsets = {}
    for response in cluster.ask_each(LIST_OFFSETS, requests):
        for each in only(response.topics, "topic").partitions:
            check(each.error_code, act=Act("describe", topic=topic))
            if each.offset < (0 if timestamp in ALWAYS_FOUND else NOT_FOUND):
                raise PeerError(f"it says that {topic}-{each.partition_index} has {each.offset}")
            offsets[each.partition_index] = FoundPlace(each.offset, each.timestamp)
    if offsets.keys() != set(partitions):
        raise PeerError(f"it answers about other partitions of {topic} than it was asked about")
    return offsets
