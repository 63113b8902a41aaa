"""What transactions want of the shards, and what comes of it. Whoever sends them says how it went.

An order that failed is given again after a while, with what the catalog says then: a partition that
was deleted meanwhile needs nothing any more.
"""

from typing import NamedTuple, TypeAlias


class LedPartition(NamedTuple):
    """Where a partition is: in its topic, and on which node. `is_synced`: its topic is `disk`."""

    topic: str
    partition: int
    node: int
    is_synced: bool


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
