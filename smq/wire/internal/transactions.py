"""Questions between shards and the coordinator about transactions (KIP-98, KIP-890).

    coordinator ──WriteMarkers, SyncLogs──────────────▶ shard
    shard       ──AddPartitions, FindTransactions─────▶ coordinator

`numbers` are partitions' numbers in the catalog; answers have one of Kafka's error codes for each,
in order.
"""

from typing import NamedTuple

from smq.model.frozen import frozen
from smq.wire.internal.form import Question

NOT_WRITTEN = -1


@frozen
class WriteMarkers(Question[list[int]]):
    """End a producer's transaction in these partitions, as Kafka's WriteTxnMarkers.

    Answered when the markers are durable at their topics' levels, or on disk if `is_synced` (the
    transaction is in a `disk` topic too). Repeating it is harmless: if the producer has nothing
    open and its epoch is known, nothing is appended.

    NONE, UNKNOWN_TOPIC_OR_PARTITION (the partition was deleted: there is nothing to end),
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


@frozen
class SyncLogs(Question[list[int]]):
    """Sync the logs of these partitions up to their current ends, before a producer's commit.

    `written`: for each the generation of its log when the transaction's first records went there,
    NOT_WRITTEN: none did. Answered when all is on disk, with the numbers of those that may have
    lost some of the records since; Failed if it cannot be, or if one is not led here.
    """

    producer_id: int
    numbers: list[int]
    written: list[int]


@frozen
class AddPartitions(Question[list[int]]):
    """Add partitions to a producer's ongoing transaction, or begin one with them (KIP-890).

    `verify_only`: only check whether they are in it, for clients that add partitions themselves
    (Produce below 12). The partitions get their first records now, in this `generation` of their
    logs. Answered when stored. Errors as AddPartitionsToTxn 4 to 5 from brokers:
    PRODUCER_FENCED, INVALID_PRODUCER_ID_MAPPING, CONCURRENT_TRANSACTIONS (the former one is still
    ending: ask again), TRANSACTION_ABORTABLE (not in it), INVALID_TXN_STATE.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    numbers: list[int]
    generation: int
    verify_only: bool = False


class OpenProducer(NamedTuple):
    """A producer with an open transaction in a partition."""

    producer_id: int
    producer_epoch: int


@frozen
class FindTransactions(Question[list[bool]]):
    """Ask whether the coordinator knows an uncompleted transaction of each producer, of this epoch.

    A shard asks about transactions that are open for too long. It aborts one that the coordinator
    does not know, as after a power loss that took its markers.
    """

    producers: list[OpenProducer]
