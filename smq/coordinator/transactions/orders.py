"""The orders of transactions to the shards.

Their sender reports the results. A failed order is given again after a while, by the catalog of
that time: a partition deleted meanwhile needs no marker.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias


class LedPartition(NamedTuple):
    """A partition's topic, index and node. `is_synced`: its topic is `disk`."""

    topic: str
    partition: int
    node: int
    is_synced: bool


FindPlace: TypeAlias = Callable[[int], LedPartition | None]
"""Where a partition is, by its number; None: it was deleted."""


class Places(NamedTuple):
    """Where partitions are, and a number that grows when configs change, so that topics may have
    become `disk`."""

    find: FindPlace
    config_changes: Callable[[], int]


def has_synced(numbers: Iterable[int], find_place: FindPlace) -> bool:
    """Whether one of these partitions belongs to a `disk` topic."""
    for number in numbers:  # Of a large commit there are hundreds.
        place = find_place(number)
        if place is not None and place.is_synced:
            return True
    return False


class MarkerOrder(NamedTuple):
    """Write a decision's markers in the partitions that a node leads (by number).

    `version`: 2 if the epoch is one more than that of the records. `is_synced`: markers count only
    once they are on disk, in every topic, because a power loss must not tear the transaction.
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


class SyncOrder(NamedTuple):
    """Sync a node's part of these partitions, before a commit is decided.

    `serial` tells one EndTxn from the next of the same transactional id. `written`: partitions, and
    the generations of their logs in which the transaction's first records went there.
    """

    transactional_id: str
    node: int
    producer_id: int
    serial: int
    numbers: frozenset[int]
    written: Mapping[int, int]


Order: TypeAlias = MarkerOrder | SyncOrder
