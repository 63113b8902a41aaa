"""OffsetDelete (key 47), version 0 (KIP-496).

- Deletes offsets of partitions, committed ones and those that wait for a transaction's end; a
  partition without one is no error.
- A group with members must be a consumer group, and no member may read the topic: otherwise
  NON_EMPTY_GROUP or GROUP_SUBSCRIBED_TO_TOPIC.
- GROUP_ID_NOT_FOUND for an unknown group, INVALID_GROUP_ID for ""; UNKNOWN_TOPIC_OR_PARTITION for
  an unknown topic or partition.
"""

from collections.abc import Iterator

from gateway.apis.unknown_first import unknown_first
from gateway.coordinator_context import CoordinatorContext
from smq.coordinator.subscriptions import CONSUMER, topics_of
from smq.model.errors import BrokerError, ErrorCode
from smq.wire.generated.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

FORGOTTEN_A_STEP = 500  # Pending offsets: many transactions may have one of a partition.


def handle(
    request: OffsetDeleteRequest, context: CoordinatorContext
) -> Iterator[OffsetDeleteResponse]:
    """Delete offsets of a group. While many are pending, parts of the answer have no rows."""
    try:
        deletion = _Deletion(request.group_id, context)
    except BrokerError as refusal:
        yield OffsetDeleteResponse(error_code=refusal.code)
        return
    topics = [
        OffsetDeleteResponseTopic(name=asked.name, partitions=deletion.take(asked))
        for asked in request.topics
        if asked.partitions
    ]
    store, numbers = context.coordinator.store, deletion.numbers
    while store.transactions.forget_offsets(request.group_id, numbers, FORGOTTEN_A_STEP):
        yield OffsetDeleteResponse()
    store.delete_offsets(request.group_id, numbers)
    yield OffsetDeleteResponse(topics=unknown_first(topics))


class _Deletion:
    """The `numbers` of the partitions to delete. Raises BrokerError if the whole request fails."""

    def __init__(self, group_id: str, context: CoordinatorContext) -> None:
        if not group_id:
            raise BrokerError(ErrorCode.INVALID_GROUP_ID)
        group = context.coordinator.groups.find(group_id)
        has_members = len(group.roster) > 0
        if has_members and group.protocol_type != CONSUMER:
            raise BrokerError(ErrorCode.NON_EMPTY_GROUP)
        self._read = topics_of(group)
        self._catalog = context.coordinator.topics.catalog
        self.numbers: list[int] = []

    def take(self, asked: OffsetDeleteRequestTopic) -> list[OffsetDeleteResponsePartition]:
        """Take a topic's partitions or refuse them."""
        return [
            OffsetDeleteResponsePartition(
                partition_index=each.partition_index,
                error_code=self._take(asked.name, each.partition_index),
            )
            for each in asked.partitions
        ]

    def _take(self, name: str, partition: int) -> ErrorCode:
        topic = self._catalog.find(name)
        if topic is None or not 0 <= partition < topic.partition_count:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if self._read is None or name in self._read:
            return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        self.numbers.append(topic.partition_numbers[partition])
        return ErrorCode.NONE
