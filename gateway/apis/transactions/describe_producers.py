"""DescribeProducers (key 61), version 0 (KIP-664).

- Each idempotent producer that a partition remembers: its epoch, its last sequence and the time of
  its last batch, the epoch of the coordinator that last ended a transaction of it, and where its
  open transaction begins. -1 stands for none.
- INVALID_TOPIC_EXCEPTION; UNKNOWN_TOPIC_OR_PARTITION; NOT_LEADER_OR_FOLLOWER.
"""

from collections.abc import Iterator

import numpy as np

from gateway.context import ShardContext
from shm.kernels.log.producers import (
    R_BATCH_COUNT,
    R_BATCHES,
    R_COORDINATOR_EPOCH,
    R_EPOCH,
    R_LAST_MS,
    R_NEWEST,
    R_PARTITION,
    R_PRODUCER_ID,
)
from smq.model.catalog import Catalog, InternalPartition
from smq.model.errors import ErrorCode
from smq.model.names import is_valid_topic_name
from smq.model.now import Now
from smq.security.acls import Operation
from smq.shard.led import Led
from smq.wire.generated.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

PART_ROWS = 300  # Producers and partitions of a part: a few milliseconds.
Found = dict[tuple[str, int], Led | InternalPartition | ErrorCode]
_NONE = np.empty(0, np.int64)
_LAST_SEQUENCE, _TIMESTAMP = 1, 3  # Fields of a batch in a producer's row.


def handle(
    request: DescribeProducersRequest, context: ShardContext
) -> Iterator[DescribeProducersResponse]:
    """The producers of each partition, in parts; the first ones are empty where logs have many."""
    found = _found(request, context)
    those: dict[int, list[np.ndarray]] = {}
    for index, piece in enumerate(_rows([led for led in found.values() if isinstance(led, Led)])):
        if index:
            yield DescribeProducersResponse()
        for number, some in piece.items():
            those.setdefault(number, []).append(some)
    rows = [TopicResponse(name=each.name) for each in request.topics if not each.partition_indexes]
    held, last, partitions = 0, "", list[PartitionResponse]()
    for topic, described in _described_partitions(found, those, context):
        if held >= PART_ROWS:
            yield DescribeProducersResponse(topics=rows)
            rows, held, last = [], 0, ""
        if topic != last or not partitions:
            last, partitions = topic, []
            rows.append(TopicResponse(name=topic, partitions=partitions))
        partitions.append(described)
        held += 1 + len(described.active_producers)
    yield DescribeProducersResponse(topics=rows)


def _found(request: DescribeProducersRequest, context: ShardContext) -> Found:
    """Where the partitions are, each once."""
    return {
        (topic.name, index): _find(topic.name, index, context)
        for topic in request.topics
        for index in topic.partition_indexes
    }


def _described_partitions(
    found: Found, rows: dict[int, list[np.ndarray]], context: ShardContext
) -> Iterator[tuple[str, PartitionResponse]]:
    """Each partition with some of its producers; one with many comes several times."""
    now, catalog = context.now, context.shard.catalog
    for (topic, index), led in found.items():
        if isinstance(led, ErrorCode):
            yield (
                topic,
                PartitionResponse(
                    partition_index=index,
                    error_code=led,
                    error_message=_sentence(topic, led, catalog),
                ),
            )
            continue
        if isinstance(led, InternalPartition):  # Nobody writes there.
            yield topic, PartitionResponse(partition_index=index)
            continue
        those = np.concatenate(rows.get(led.number, [_NONE]))
        for first in range(0, max(1, len(those)), PART_ROWS):
            some = those[first : first + PART_ROWS].tolist()
            described = [_described(led, row, now) for row in some]
            producers = [each for each in described if each is not None]
            yield topic, PartitionResponse(partition_index=index, active_producers=producers)


def _sentence(name: str, error: ErrorCode, catalog: Catalog) -> str | None:
    """What Kafka says of a topic; of a partition the code says it."""
    if error is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return "Topic authorization failed."
    is_unknown = error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and catalog.find(name) is None
    return "This server does not host this topic-partition." if is_unknown else None


def _find(name: str, index: int, context: ShardContext) -> Led | InternalPartition | ErrorCode:
    if not is_valid_topic_name(name):
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return context.find(Operation.READ, name, index)


def _rows(those: list[Led]) -> Iterator[dict[int, np.ndarray]]:
    """The rows of the partitions' producers. Scans each log's table once, in pieces."""
    numbers = dict[int, list[int]]()
    for led in those:
        numbers.setdefault(led.log.number, []).append(led.number)
    logs = {led.log.number: led.log for led in those}
    for log_number, of_log in numbers.items():
        yield from logs[log_number].producers.rows_of(of_log)


def _described(led: Led, row: int, now: Now) -> ProducerState | None:
    """One producer; None: the log has forgotten it since its row was found."""
    state = led.log.producers.table[row].tolist()
    if state[R_PARTITION] != led.number + 1:
        return None
    newest = R_BATCHES + 4 * state[R_NEWEST]
    has_batches = state[R_BATCH_COUNT] > 0
    opened = led.log.transactions.open_of(led.number, state[R_PRODUCER_ID])
    return ProducerState(
        producer_id=state[R_PRODUCER_ID],
        producer_epoch=state[R_EPOCH],
        last_sequence=state[newest + _LAST_SEQUENCE] if has_batches else -1,
        last_timestamp=state[newest + _TIMESTAMP] if has_batches else now.wall_of(state[R_LAST_MS]),
        coordinator_epoch=state[R_COORDINATOR_EPOCH] - 1,
        current_txn_start_offset=-1 if opened is None else opened.first_offset,
    )
