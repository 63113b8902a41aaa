"""Manages topics and consumer groups: create, list, describe, delete, and the lag of groups."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from smq.client.errors import Act, NoSuchTopic
from smq.client.kafka.answers import number_of, only
from smq.client.kafka.cluster import Cluster, check
from smq.client.kafka.connection import KafkaConnection
from smq.client.kafka.offsets import LATEST, resolve
from smq.client.kafka.questions import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    FIND_COORDINATOR,
    LIST_GROUPS,
    OFFSET_FETCH,
)
from smq.model.errors import BrokerError, ErrorCode
from smq.wire.generated.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from smq.wire.generated.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicState,
)
from smq.wire.generated.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from smq.wire.generated.find_coordinator import (
    FindCoordinatorRequest,
)
from smq.wire.generated.list_groups import (
    ListedGroup,
    ListGroupsRequest,
)
from smq.wire.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)

TIMEOUT_MS = 30_000
DEFAULT_OF_THE_BROKER = -1  # For partition counts and replication factors.
RESOURCE_TOPIC, RESOURCE_BROKER = 2, 4
MESSAGE_BYTES_MAX = "max.message.bytes"
SOURCE_TOPIC = 1  # A setting of this topic, and not a default.
KEY_TYPE_GROUP, KEY_TYPE_TRANSACTION = 0, 1


@dataclass(frozen=True, slots=True)
class Lag:
    """A group's committed offset in a partition, and the partition's end."""

    topic: str
    partition: int
    committed_offset: int
    end_offset: int

    @property
    def lag(self) -> int:
        return max(0, self.end_offset - self.committed_offset)


def create_topic(
    cluster: Cluster,
    name: str,
    partition_count: int = DEFAULT_OF_THE_BROKER,
    configs: Mapping[str, str] | None = None,
) -> int:
    """Create a topic and wait until it has leaders; return the number of its partitions."""
    request_topic(cluster, name, partition_count, configs)
    return wait_for_topic(cluster, name)


def request_topic(
    cluster: Cluster,
    name: str,
    partition_count: int = DEFAULT_OF_THE_BROKER,
    configs: Mapping[str, str] | None = None,
) -> None:
    """Create a topic, which its brokers may not know yet."""
    wanted = CreatableTopic(
        name=name,
        num_partitions=partition_count,
        replication_factor=DEFAULT_OF_THE_BROKER,
        configs=[
            CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()
        ],
    )
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS)
    created = only(cluster.anyone().ask(CREATE_TOPICS, request).topics, "topic")
    check(created.error_code, created.error_message, Act("create", topic=name))


def wait_for_topic(cluster: Cluster, name: str) -> int:
    """Wait until a topic has leaders; return the number of its partitions."""
    return cluster.retrying(lambda: _partitions_with_leaders(cluster, name))


def _partitions_with_leaders(cluster: Cluster, name: str) -> int:
    try:
        leaders = cluster.topic(name).leaders
    except NoSuchTopic as error:  # Not in this broker's metadata yet.
        raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, str(error)) from error
    cluster.by_leader(name, range(len(leaders)))
    return len(leaders)


def delete_topic(cluster: Cluster, name: str) -> None:
    """Delete a topic. Raises NoSuchTopic."""
    cluster.retrying(lambda: cluster.topic(name))
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=TIMEOUT_MS)
    deleted = only(cluster.anyone().ask(DELETE_TOPICS, request).responses, "topic")
    check(deleted.error_code, deleted.error_message, Act("delete", topic=name))
    cluster.forget()


def topic_configs(cluster: Cluster, name: str) -> Sequence[DescribeConfigsResourceResult]:
    """All settings of a topic, defaults included; `config_source` tells the source of each."""
    return configs_of(cluster.anyone(), RESOURCE_TOPIC, name)


def message_bytes_max(cluster: Cluster, name: str) -> int | None:
    """The largest batch that a topic takes; None if the broker does not tell, or not us: a right
    to write is none to ask for settings."""
    try:
        configs = topic_configs(cluster, name)
    except BrokerError as error:
        if error.code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise
        return None
    found = {each.name: each.value for each in configs}
    return number_of(found, MESSAGE_BYTES_MAX, 0) or None


def broker_configs(cluster: Cluster) -> Sequence[DescribeConfigsResourceResult]:
    """All settings of one of the brokers, as above."""
    cluster.metadata([])
    node_id, broker = cluster.some_broker()
    return configs_of(broker, RESOURCE_BROKER, str(node_id))


def configs_of(
    broker: KafkaConnection, resource_type: int, name: str
) -> Sequence[DescribeConfigsResourceResult]:
    """All configs of a resource, as a broker describes it. Raises BrokerError."""
    resource = DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[resource])
    result = only(broker.ask(DESCRIBE_CONFIGS, request).results, "resource")
    check(result.error_code, result.error_message, Act("describe configs of", topic=name))
    return result.configs


def groups(cluster: Cluster) -> list[ListedGroup]:
    """All groups, sorted by id. Each broker lists those that it coordinates."""
    found: dict[str, ListedGroup] = {}
    for broker in cluster.retrying(cluster.brokers):
        response = broker.ask(LIST_GROUPS, ListGroupsRequest())
        check(response.error_code)
        found |= {group.group_id: group for group in response.groups}
    return [found[group_id] for group_id in sorted(found)]


def group_lags(cluster: Cluster, group_id: str) -> list[Lag]:
    """The lag of a group in each partition of which it has committed an offset."""
    committed = cluster.retrying(lambda: _committed(cluster, group_id))
    lags = []
    for topic, offsets in committed.items():
        ends = resolve(cluster, topic, offsets, LATEST)
        lags += [Lag(topic, each, offsets[each], ends[each]) for each in sorted(offsets)]
    return lags


def _committed(cluster: Cluster, group_id: str) -> dict[str, dict[int, int]]:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)])
    [group] = cluster.broker(coordinator(cluster, group_id)).ask(OFFSET_FETCH, request).groups
    check(group.error_code, act=Act("read offsets of", group=group_id))
    return {
        topic.name: {each.partition_index: each.committed_offset for each in topic.partitions}
        for topic in sorted(group.topics, key=lambda topic: topic.name)
    }


def coordinator(cluster: Cluster, name: str, key_type: int = KEY_TYPE_GROUP) -> int:
    """The broker id of the coordinator of a group, or of a transactional id."""
    request = FindCoordinatorRequest(coordinator_keys=[name], key_type=key_type)
    [found] = cluster.anyone().ask(FIND_COORDINATOR, request).coordinators
    check(found.error_code, found.error_message, Act("use", "", name, name))
    cluster.metadata([])
    return found.node_id
