"""What shards and the coordinator ask each other about transactions (KIP-98, KIP-890).

    coordinator ──WriteMarkers, SyncLogs──────────────▶ shard
    shard       ──AddPartitions, FindTransactions─────▶ coordinator

`numbers` are partitions' numbers in the catalog; an answer for each has one of Kafka's error codes,
in their order.
"""

from dataclasses import dataclass
from typing import NamedTuple

from smq.wire.internal.form import Question


@dataclass(frozen=True, slots=True)
class WriteMarkers(Question[list[int]]):
    """End a producer's transaction in these partitions, as Kafka's WriteTxnMarkers.

    Answered when the markers are durable at their topics' levels, or on disk if `is_synced`: the
    transaction is in a `disk` topic too. Again is harmless: where nothing
    of the producer is open and its epoch is known, nothing is appended.

    NONE, UNKNOWN_TOPIC_OR_PARTITION (the partition is gone: there is nothing to end),
    NOT_LEADER_OR_FOLLOWER, INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED,
    KAFKA_STORAGE_ERROR (ask again).
    """

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    transaction_version: int
    numbers: list[int]
    is_synced: bool = False


@dataclass(frozen=True, slots=True)
class SyncLogs(Question[bool]):
    """Sync the logs of these partitions up to what they have appended so far.

    Answered when that is on disk; Failed when it cannot be.
    """

    numbers: list[int]


@dataclass(frozen=True, slots=True)
class AddPartitions(Question[list[int]]):
    """Take partitions into a producer's ongoing transaction, or begin one with them (KIP-890).

    `verify_only`: only say whether they are in it, for clients that add partitions themselves
    (Produce below 12). Answered when stored. Errors as AddPartitionsToTxn 4 to 5 from brokers:
    PRODUCER_FENCED, INVALID_PRODUCER_ID_MAPPING, CONCURRENT_TRANSACTIONS (the one before is still
    being ended: ask again), TRANSACTION_ABORTABLE (not in it), INVALID_TXN_STATE.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    numbers: list[int]
    verify_only: bool = False


class ProducerEpoch(NamedTuple):
    """A producer that has a transaction open in a partition."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class FindTransactions(Question[list[bool]]):
    """Whether the coordinator knows a transaction of each producer that is not completed.

    A shard asks for those that are open for longer than any may be. One that the coordinator
    does not know, as after a power loss that took markers away, is aborted by the shard.
    """

    producers: list[ProducerEpoch]
