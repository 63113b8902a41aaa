"""SeaweedMQ's messages of topics and partitions, and what SMQ calls them."""

from collections.abc import Iterator

from smq.agent.layouts import RingRange, ranges_of
from smq.agent.proto.mq_broker_pb2 import BrokerPartitionAssignment
from smq.agent.proto.mq_schema_pb2 import Partition, Topic
from smq.agent.topic_names import TopicName, named
from smq.app.agent.topics import KnownTopic


def topic_name(message: Topic) -> TopicName:
    """The topic that a message names. Raises ValueError."""
    return named(message.namespace, message.name)


def topic_message(name: TopicName) -> Topic:
    """The message of a topic's name."""
    return Topic(namespace=name.namespace, name=name.name)


def range_of(message: Partition) -> RingRange:
    """The range that a message names."""
    return RingRange(
        message.ring_size, message.range_start, message.range_stop, message.unix_time_ns
    )


def partition_message(found: RingRange) -> Partition:
    """The message of a range."""
    return Partition(
        ring_size=found.ring_size,
        range_start=found.start,
        range_stop=found.stop,
        unix_time_ns=found.began_ns,
    )


def assignments(topic: KnownTopic, broker: str) -> Iterator[BrokerPartitionAssignment]:
    """Where the partitions of a topic are: all behind one door, which needs no followers."""
    return (
        BrokerPartitionAssignment(partition=partition_message(each), leader_broker=broker)
        for each in ranges_of(topic.layout)
    )
