"""OffsetCommit (key 8), versions 2-10.

- A member may commit in its generation, even while it is told to rejoin. Between joining and its
  assignment it gets REBALANCE_IN_PROGRESS. A client that is no member (generation -1) may commit
  while the group has no members; that creates the group if needed.
- An error of the group goes to every partition; UNKNOWN_TOPIC_OR_PARTITION and
  OFFSET_METADATA_TOO_LARGE go to the partition they concern.
- Offset, leader epoch and metadata come back as they are committed; null metadata as "".
- 2-4: the client's retention time is honoured. From 6: leader epoch (KIP-320). From 7: static
  members (KIP-345).
- From 9: an unknown group is GROUP_ID_NOT_FOUND, before it was ILLEGAL_GENERATION (KIP-848).
- From 10: topics by id; an unknown one is UNKNOWN_TOPIC_ID.

An offset is as durable as its topic's records: only offsets of `disk` topics are synced before the
answer. A power loss may revert those of other topics to older ones.
"""

from functools import cached_property

from gateway.apis.unknown_first import unknown_first
from gateway.coordinator_context import CoordinatorContext
from smq.coordinator.group_events import Commit
from smq.model.catalog import Topic
from smq.model.errors import BrokerError, ErrorCode
from smq.model.setting import INT64_MAX
from smq.store.rows import CommittedOffset
from smq.wire.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

GROUP_NOT_FOUND_FROM = 9
IDS_FROM = 10


def handle(request: OffsetCommitRequest, context: CoordinatorContext) -> OffsetCommitResponse:
    """Commit offsets of a group."""
    commits = _Commits(request, context)
    response = OffsetCommitResponse(
        topics=unknown_first(
            OffsetCommitResponseTopic(
                name=asked.name,
                topic_id=asked.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=each.partition_index,
                        error_code=commits.take(_find(asked, context), each),
                    )
                    for each in asked.partitions
                ],
            )
            for asked in request.topics
            if asked.partitions  # Leave out a topic without partitions, as Kafka does.
        )
    )
    coordinator = context.coordinator
    lazy = not coordinator.has_synced(commits.taken)
    coordinator.store.commit_offsets(request.group_id, commits.taken, lazy=lazy)
    return response


def _find(asked: OffsetCommitRequestTopic, context: CoordinatorContext) -> Topic | None:
    catalog = context.coordinator.topics.catalog
    if context.version >= IDS_FROM:
        return catalog.find_by_id(asked.topic_id)
    return catalog.find(asked.name)


class _Commits:
    """The offsets of one request. The group is asked at most once."""

    def __init__(self, request: OffsetCommitRequest, context: CoordinatorContext) -> None:
        self._request = request
        self._context = context
        self.taken: dict[int, CommittedOffset] = {}

    def take(self, topic: Topic | None, asked: OffsetCommitRequestPartition) -> ErrorCode:
        """Take one partition's offset or refuse it."""
        if topic is None and self._context.version >= IDS_FROM:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if topic is None or not 0 <= asked.partition_index < topic.partition_count:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if self._refusal is not ErrorCode.NONE:
            return self._refusal
        metadata = asked.committed_metadata or ""
        if len(metadata) > self._context.coordinator.config.offset_metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        if topic.is_internal:  # It is always empty: there is nothing to remember.
            return ErrorCode.NONE
        now_ms, retention_ms = self._context.now.monotonic_ms, self._request.retention_time_ms
        self.taken[topic.partition_numbers[asked.partition_index]] = CommittedOffset(
            asked.committed_offset,
            asked.committed_leader_epoch,
            metadata,
            now_ms,
            None if retention_ms < 0 else min(now_ms + retention_ms, INT64_MAX),
        )
        return ErrorCode.NONE

    @cached_property
    def _refusal(self) -> ErrorCode:
        """The group's error, or NONE."""
        request, groups = self._request, self._context.coordinator.groups
        event = Commit(
            request.member_id, request.group_instance_id, request.generation_id_or_member_epoch
        )
        try:
            groups.handle(request.group_id, event, self._context.now)
        except BrokerError as refusal:
            unknown_group = refusal.code is ErrorCode.GROUP_ID_NOT_FOUND
            if unknown_group and self._context.version < GROUP_NOT_FOUND_FROM:
                return ErrorCode.ILLEGAL_GENERATION
            return refusal.code
        return ErrorCode.NONE
