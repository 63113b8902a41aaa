"""Names of the system: what each API says of `__consumer_offsets` and `__transaction_state`.

Kafka makes them when they are first wanted, so each dialogue begins a transactional producer.
"""

from typing import Any

from smq.wire.generated.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from smq.wire.generated.describe_configs import DescribeConfigsResponse
from smq.wire.generated.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from smq.wire.generated.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from smq.wire.generated.produce import PartitionProduceData, ProduceRequest
from tests.oracle.batches import batch
from tests.oracle.dialogues import dialogue
from tests.oracle.dialogues.produce import named
from tests.oracle.dialogues.topics import TOPIC, ask, creation, description, topic
from tests.oracle.dialogues.transactions import find
from tests.oracle.talk import Talk

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
LEAST_CONFIGS = ["cleanup.policy", "compression.type", "segment.bytes"]


def make_them(talk: Talk) -> None:
    """Kafka's warm-up has made the one, a transactional producer makes the other."""
    find(talk, talk.own())
    talk.settle(TRANSACTIONS, 50)


@dialogue("Metadata", since=1)
def of_internal_topics(talk: Talk) -> None:
    make_them(talk)

    def trim(answer: MetadataResponse) -> None:
        answer.brokers = []
        for each in answer.topics:
            each.partitions = each.partitions[49:]
            for partition in each.partitions:
                partition.leader_epoch = -1

    topics = [MetadataRequestTopic(name=TRANSACTIONS)]
    talk.ask("created on demand", MetadataRequest(topics=topics), trim=trim)
    if talk.version >= 4:
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        talk.ask("not created on demand", request, trim=trim)


@dialogue("DescribeTopicPartitions")
def of_internal_topics_too(talk: Talk) -> None:
    make_them(talk)

    def trim(answer: DescribeTopicPartitionsResponse) -> None:
        for each in answer.topics:
            each.partitions = each.partitions[49:]
            for partition in each.partitions:
                partition.leader_epoch = -1

    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=TRANSACTIONS)])
    talk.ask("one", request, trim=trim)


@dialogue("DescribeConfigs")
def of_internal_ones(talk: Talk) -> None:
    make_them(talk)

    def trim(answer: DescribeConfigsResponse) -> None:
        for result in answer.results:
            result.configs = sorted(result.configs, key=lambda each: each.name)

    for name in (OFFSETS, TRANSACTIONS):
        talk.ask(name, description(TOPIC, name, LEAST_CONFIGS), trim=trim)


@dialogue("CreateTopics")
def internal(talk: Talk) -> None:
    make_them(talk)
    names = (OFFSETS, TRANSACTIONS, talk.own("not-internal"))
    ask(talk, "with one that is not", creation(*map(topic, names)))


@dialogue("Produce", since=3)
def to_internal_topics(talk: Talk) -> None:
    make_them(talk)
    for name in (OFFSETS, TRANSACTIONS):
        data: list[Any] = [PartitionProduceData(index=0, records=batch(b"v"))]
        request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[named(talk, name, data)])
        talk.ask(name, request)


@dialogue("DeleteRecords")
def of_internal_topics_as_well(talk: Talk) -> None:
    make_them(talk)
    partitions = [DeleteRecordsPartition(partition_index=0, offset=-1)]
    topics = [DeleteRecordsTopic(name=OFFSETS, partitions=partitions)]
    talk.ask("offsets", DeleteRecordsRequest(topics=topics, timeout_ms=5000))
