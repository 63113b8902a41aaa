"""What Kafka's tools ask of a cluster: log directories, features, configs, the metadata quorum."""

from collections.abc import Sequence
from typing import Any

from smq.wire.generated.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from smq.wire.generated.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from smq.wire.generated.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from smq.wire.generated.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from smq.wire.generated.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from smq.wire.generated.list_config_resources import ListConfigResourcesRequest
from smq.wire.generated.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.oracle.dialogues import dialogue
from tests.oracle.talk import Talk


@dialogue("DescribeTopicPartitions")
def described_topics(talk: Talk) -> None:
    def ask(step: str, *names: str, limit: int = 2000, cursor: Cursor | None = None) -> None:
        topics = [TopicRequest(name=name) for name in names]
        request = DescribeTopicPartitionsRequest(
            topics=topics, response_partition_limit=limit, cursor=cursor
        )
        talk.ask(step, request, trim=trim)

    def trim(answer: Any) -> None:
        for topic in answer.topics:
            topic.partitions = sorted(topic.partitions, key=lambda each: each.partition_index)
            for each in topic.partitions:
                each.leader_epoch = 0

    one, two = talk.make_topic("a", partitions=3), talk.make_topic("b", partitions=2)
    ask("both", two, one)
    ask("one twice", one, one)
    ask("unknown", talk.own("unknown"), one)
    ask("an impossible name", "no/name", one)
    ask("a page", one, two, limit=2)
    ask("the next page", one, two, limit=2, cursor=Cursor(topic_name=one, partition_index=2))
    ask("from the second on", one, two, cursor=Cursor(topic_name=two, partition_index=1))
    ask("a cursor behind all", one, cursor=Cursor(topic_name=two, partition_index=0))
    ask("a cursor of no topic", one, two, cursor=Cursor(topic_name=talk.own("aa")))
    ask("a cursor behind its topic", one, two, cursor=Cursor(topic_name=one, partition_index=9))
    ask("a cursor before it", one, two, cursor=Cursor(topic_name=one, partition_index=-1))
    ask("no limit", one, limit=0)
    ask("a limit below nothing", one, limit=-1)


@dialogue("ListConfigResources")
def config_resources(talk: Talk) -> None:
    def ask(step: str, *types: int) -> None:
        talk.ask(step, ListConfigResourcesRequest(resource_types=types), trim=trim)

    def trim(answer: Any) -> None:
        mine = [
            each
            for each in answer.config_resources
            if each.resource_type != TOPIC or each.resource_name == topic
        ]
        answer.config_resources = mine

    topic = talk.make_topic()
    ask("all that are supported")
    if talk.version:
        ask("topics", TOPIC)
        ask("brokers", BROKER)
        ask("loggers", LOGGER)
        ask("client metrics", METRICS)
        ask("groups", GROUP)
        ask("two kinds", TOPIC, BROKER)
        ask("a kind that is none", 9)
        ask("one of them is none", TOPIC, 9)


TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


@dialogue("UpdateFeatures", also=(1,))
def features(talk: Talk) -> None:
    def ask(step: str, *updates: FeatureUpdateKey, validate_only: bool = False) -> None:
        request = UpdateFeaturesRequest(
            timeout_ms=10_000, feature_updates=updates, validate_only=validate_only
        )
        talk.ask(step, request)

    ask("none")
    ask("an unknown one", FeatureUpdateKey(feature="no.such", max_version_level=1))
    ask("an empty name", FeatureUpdateKey(feature="", max_version_level=1))
    now, later = (
        FeatureUpdateKey(feature="transaction.version", max_version_level=level) for level in (2, 3)
    )
    ask("the level that it has", now)
    ask("a level that there is not", later)
    ask("a level that it has and one that there is not", now, later)
    ask("the level that it has, only to be checked", now, validate_only=True)


@dialogue("AlterPartitionReassignments")
def moves(talk: Talk) -> None:
    def ask(step: str, name: str, index: int, replicas: Sequence[int] | None) -> None:
        partition = ReassignablePartition(partition_index=index, replicas=replicas)
        topic = ReassignableTopic(name=name, partitions=[partition])
        talk.ask(step, AlterPartitionReassignmentsRequest(timeout_ms=10_000, topics=[topic]))

    topic = talk.make_topic()
    ask("to where it is", topic, 0, [1])
    ask("nothing is to be cancelled", topic, 0, None)
    ask("no replicas", topic, 0, [])
    ask("a broker twice", topic, 0, [1, 1])
    ask("an unknown broker", topic, 0, [77])
    ask("a broker below nothing", topic, 0, [-1])
    ask("no such partition", topic, 9, [1])
    ask("an unknown topic", talk.own("unknown"), 0, [1])
    talk.ask("none", AlterPartitionReassignmentsRequest(timeout_ms=10_000))


@dialogue("AlterReplicaLogDirs")
def other_directories(talk: Talk) -> None:
    def ask(step: str, path: str, name: str, *partitions: int) -> None:
        topic = AlterReplicaLogDirTopic(name=name, partitions=partitions)
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[topic])])
        talk.ask(step, request)

    topic = talk.make_topic()
    ask("a directory that is none", "/no/such", topic, 0)
    ask("an unknown topic", "/no/such", talk.own("unknown"), 0)
    ask("no such partition", "/no/such", topic, 7)
    ask("a relative path", "no/such", topic, 0)


@dialogue("DescribeLogDirs", also=(3, 4))
def directories(talk: Talk) -> None:
    def ask(step: str, *asked: tuple[str, Sequence[int]]) -> None:
        topics = [DescribableLogDirTopic(topic=name, partitions=each) for name, each in asked]
        talk.ask(step, DescribeLogDirsRequest(topics=topics), trim=trim)

    def trim(answer: Any) -> None:
        for directory in answer.results:
            directory.log_dir = ""
            for name in ("total_bytes", "usable_bytes"):
                setattr(directory, name, min(1, getattr(directory, name)))
            for topic in directory.topics:
                topic.partitions = sorted(topic.partitions, key=lambda each: each.partition_index)

    topic = talk.make_topic(partitions=2)
    ask("both", (topic, [0, 1]))
    ask("one", (topic, [1]))
    ask("a partition that is not there", (topic, [0, 9]))
    ask("an unknown topic", (talk.own("unknown"), [0]))
    ask("no partitions", (topic, []))
    ask("no topics")


@dialogue("DescribeQuorum")
def quorum(talk: Talk) -> None:
    def ask(step: str, *asked: tuple[str, Sequence[int]]) -> None:
        topics = [
            DescribeQuorumRequestTopicData(
                topic_name=name,
                partitions=[DescribeQuorumRequestPartitionData(partition_index=i) for i in each],
            )
            for name, each in asked
        ]
        talk.ask(step, DescribeQuorumRequest(topics=topics), trim=trim)

    def trim(answer: Any) -> None:
        answer.nodes = answer.nodes[:0]  # Controllers have listeners of their own there.
        for topic in answer.topics:
            for each in topic.partitions:
                each.leader_epoch = 0
                each.high_watermark = min(1, each.high_watermark)
                for replica in [*each.current_voters, *each.observers]:
                    replica.log_end_offset = min(1, replica.log_end_offset)
                    replica.replica_directory_id = None
                    for name in ("last_fetch_timestamp", "last_caught_up_timestamp"):
                        setattr(replica, name, min(1, getattr(replica, name)))

    ask("the cluster's log", ("__cluster_metadata", [0]))
    ask("another partition of it", ("__cluster_metadata", [1]))
    ask("both", ("__cluster_metadata", [0, 1]))
    ask("a topic", (talk.make_topic(), [0]))
    ask("an unknown topic", (talk.own("unknown"), [0]))
    ask("none")
