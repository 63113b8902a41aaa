"""Describes and deletes consumer groups; commits and deletes offsets, mostly from outside them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from smq.client.errors import Act
from smq.client.kafka.admin import coordinator
from smq.client.kafka.answers import check_partitions, only
from smq.client.kafka.cluster import Cluster, check
from smq.client.kafka.questions import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    OFFSET_COMMIT,
    OFFSET_COMMIT_BY_ID,
    OFFSET_DELETE,
    OFFSET_FETCH,
    Question,
)
from smq.client.names import TopicPartition, by_topic
from smq.wire.api import Request, Response
from smq.wire.codec import ZERO_UUID
from smq.wire.generated.delete_groups import DeleteGroupsRequest
from smq.wire.generated.describe_groups import DescribedGroup, DescribeGroupsRequest
from smq.wire.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from smq.wire.generated.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from smq.wire.generated.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

WITHOUT_MEMBERS = frozenset({"Empty", "Dead"})
NO_GENERATION = -1  # Of a commit from outside the group.


@dataclass(frozen=True, slots=True)
class RefusedOffset:
    """A partition whose offset the coordinator did not take, with Kafka's error code."""

    name: TopicPartition
    error_code: int


class GroupVoice(NamedTuple):
    """Who commits: a member, in its generation, or nobody of the group."""

    member_id: str = ""
    generation: int = NO_GENERATION


OUTSIDE = GroupVoice()


class Committed(NamedTuple):
    """A committed offset, and the note that was committed with it."""

    offset: int
    metadata: str


def describe_group(cluster: Cluster, group_id: str) -> DescribedGroup:
    """State and members of a group.

    A group that does not exist has the state Dead up to version 5 of the API; then the broker
    answers BrokerError GROUP_ID_NOT_FOUND.
    """
    request = DescribeGroupsRequest(groups=[group_id])
    group = only(_ask_coordinator(cluster, group_id, DESCRIBE_GROUPS, request).groups, "group")
    check(group.error_code, group.error_message, Act("describe", group=group_id))
    return group


def delete_group(cluster: Cluster, group_id: str) -> None:
    """Delete a group and its offsets. Raises BrokerError: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND."""
    request = DeleteGroupsRequest(groups_names=[group_id])
    result = only(_ask_coordinator(cluster, group_id, DELETE_GROUPS, request).results, "group")
    check(result.error_code, act=Act("delete", group=group_id))


def committed_offsets(cluster: Cluster, group_id: str) -> dict[TopicPartition, int]:
    """All committed offsets of a group, by topic and partition."""
    return {name: each.offset for name, each in committed(cluster, group_id).items()}


def committed(cluster: Cluster, group_id: str) -> dict[TopicPartition, Committed]:
    """All committed offsets of a group with their notes, by topic and partition."""
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)])
    [group] = _ask_coordinator(cluster, group_id, OFFSET_FETCH, request).groups
    check(group.error_code, act=Act("read offsets of", group=group_id))
    return {
        TopicPartition(topic.name, each.partition_index): Committed(
            each.committed_offset, each.metadata or ""
        )
        for topic in sorted(group.topics, key=lambda topic: topic.name)
        for each in sorted(topic.partitions, key=lambda each: each.partition_index)
        if each.committed_offset >= 0
    }


def commit_offsets(
    cluster: Cluster,
    group_id: str,
    offsets: Mapping[TopicPartition, int],
    by: GroupVoice = OUTSIDE,
    ids: Mapping[str, UUID] | None = None,
) -> list[RefusedOffset]:
    """Commit offsets for a group that has no members, or by one; returns the partitions that were
    refused.

    The coordinator refuses all (UNKNOWN_MEMBER_ID) if the group has got members meanwhile. With the
    `ids` of the topics (KIP-848) another topic that has got a name meanwhile is not meant: then it
    is UNKNOWN_TOPIC_ID.
    """
    topics = [
        OffsetCommitRequestTopic(
            name=topic,
            topic_id=ids[topic] if ids else ZERO_UUID,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=each, committed_offset=offsets[TopicPartition(topic, each)]
                )
                for each in partitions
            ],
        )
        for topic, partitions in by_topic(offsets).items()
    ]
    request = OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=by.generation,
        member_id=by.member_id,
        group_instance_id=None,
        topics=topics,
    )
    question = OFFSET_COMMIT_BY_ID if ids else OFFSET_COMMIT
    response = _ask_coordinator(cluster, group_id, question, request)
    names = {topic_id: name for name, topic_id in (ids or {}).items()}
    for each in response.topics:
        each.name = each.name or names.get(each.topic_id, "")
    return _refused(offsets, response)


def delete_offsets(
    cluster: Cluster, group_id: str, names: Iterable[TopicPartition]
) -> list[RefusedOffset]:
    """Forget committed offsets; which ones were refused. Raises BrokerError if all are."""
    asked = dict.fromkeys(names)
    request = OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic,
                partitions=[
                    OffsetDeleteRequestPartition(partition_index=each) for each in partitions
                ],
            )
            for topic, partitions in by_topic(asked).items()
        ],
    )
    response = _ask_coordinator(cluster, group_id, OFFSET_DELETE, request)
    check(response.error_code, act=Act("delete offsets of", group=group_id))
    return _refused(asked, response)


def _refused(
    asked: Iterable[TopicPartition], response: OffsetCommitResponse | OffsetDeleteResponse
) -> list[RefusedOffset]:
    results = [
        RefusedOffset(TopicPartition(topic.name, each.partition_index), each.error_code)
        for topic in response.topics
        for each in topic.partitions
    ]
    check_partitions(asked, [each.name for each in results])
    return [each for each in results if each.error_code]


def _ask_coordinator(
    cluster: Cluster, group_id: str, question: Question[Request, Response], request: Request
) -> Response:
    def ask() -> Response:
        return cluster.broker(coordinator(cluster, group_id)).ask(question, request)

    return cluster.retrying(ask)
