"""What transactions want of the shards, and what comes of it. Whoever sends them says how it went.

An order that failed is given again after a while, with what the catalog says then: a partition that
was deleted meanwhile needs nothing any more.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias


class LedPartition(NamedTuple):
    """Where a partition is: in its topic, and on which node. `is_synced`: its topic is `disk`."""

    topic: str
    partition: int
    node: int
    is_synced: bool


FindPlace: TypeAlias = Callable[[int], LedPartition | None]
"""Where a partition is, by its number; None: it was deleted."""


def has_synced(numbers: Iterable[int], find_place: FindPlace) -> bool:
    """Whether one of these partitions belongs to a `disk` topic."""
    places = map(find_place, numbers)
    return any(place is not None and place.is_synced for place in places)


class WriteMarkers(NamedTuple):
    """The markers of a decision, of the partitions that a node leads (by number).

    `version`: 2 where the epoch is one more than that of the records. `is_synced`: markers count
    when they are on disk, in every topic, because one of the transaction's is `disk`.
    """

    transactional_id: str
    node: int
    producer_id: int
    epoch: int
    commits: bool
    version: int
    coordinator_epoch: int
    is_synced: bool
    numbers: frozenset[int]


class SyncFirst(NamedTuple):
    """Before a commit is decided: what a node has of these partitions must be on disk.

    `serial` tells one EndTxn from the next of the same transactional id.
    """

    transactional_id: str
    node: int
    serial: int
    numbers: frozenset[int]


Order: TypeAlias = WriteMarkers | SyncFirst
