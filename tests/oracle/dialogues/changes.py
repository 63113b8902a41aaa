"""CreatePartitions, AlterConfigs, IncrementalAlterConfigs, DeleteRecords: how topics change."""

from collections.abc import Sequence
from typing import Any

from smq.wire.generated.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from smq.wire.generated.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from smq.wire.generated.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from smq.wire.generated.incremental_alter_configs import (
    AlterableConfig as IncrementalConfig,
    AlterConfigsResource as IncrementalResource,
    IncrementalAlterConfigsRequest,
)
from smq.wire.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from smq.wire.generated.metadata import MetadataRequest, MetadataRequestTopic
from tests.oracle.batches import batch
from tests.oracle.dialogues import dialogue
from tests.oracle.dialogues.fetch import fill
from tests.oracle.dialogues.topics import BROKER, TOPIC, description
from tests.oracle.talk import Talk

SET, DELETE, APPEND, SUBTRACT = range(4)


@dialogue("CreatePartitions", also=(1,))
def more(talk: Talk) -> None:
    def wanted(
        name: str, count: int, assignments: Sequence[Sequence[int]] | None = None
    ) -> CreatePartitionsTopic:
        given = None
        if assignments is not None:
            given = [CreatePartitionsAssignment(broker_ids=each) for each in assignments]
        return CreatePartitionsTopic(name=name, count=count, assignments=given)

    def ask(step: str, *topics: CreatePartitionsTopic, **fields: Any) -> None:
        request = CreatePartitionsRequest(topics=topics, timeout_ms=10_000, **fields)
        talk.ask(step, request, trim=sort)

    def sort(answer: Any) -> None:
        answer.results = sorted(answer.results, key=lambda each: each.name)

    def count(step: str) -> None:
        asked = [MetadataRequestTopic(name=topic)]
        answer = talk.quietly(MetadataRequest(topics=asked), 4)
        talk.note(step, len(answer.topics[0].partitions))

    topic = talk.make_topic()
    ask("two", wanted(topic, 2))
    talk.settle(topic, 2)
    ask("two again", wanted(topic, 2))
    for number in (1, 0, -1):
        ask(f"{number} of 2", wanted(topic, number))
    ask("only a check", wanted(topic, 5), validate_only=True)
    ask("a check of no increase", wanted(topic, 2), validate_only=True)
    ask("an unknown topic", wanted(talk.own("unknown"), 5))
    ask("a bad name", wanted("a b", 5))
    ask("no name", wanted("", 5))
    ask("no topics")
    ask("a topic twice", wanted(topic, 5), wanted(topic, 6))
    ask("a good and a bad one", wanted(topic, 3), wanted(talk.own("unknown"), 6))
    ask("by hand", wanted(topic, 5, [[1], [1]]))
    ask("by hand, too few", wanted(topic, 7, [[1]]))
    ask("by hand, too many", wanted(topic, 6, [[1], [1]]))
    ask("by hand, none", wanted(topic, 6, []))
    ask("by hand, an unknown broker", wanted(topic, 6, [[99]]))
    ask("by hand, a broker twice", wanted(topic, 6, [[1, 1]]))
    talk.settle(topic, 5)
    count("so many there are")


def values(talk: Talk, step: str, topic: str, **expected: str) -> None:
    """Note what a topic has of its own; Kafka may take a moment until it is as expected."""
    wanted = sorted([key.replace("_", "."), value] for key, value in expected.items())
    names = ["retention.ms", "retention.bytes", "cleanup.policy", "max.message.bytes"]

    def own(answer: Any) -> list[list[str]]:
        configs = answer.results[0].configs
        return sorted([each.name, each.value] for each in configs if each.config_source == 1)

    request = description(TOPIC, topic, names)
    talk.note(step, own(talk.until(request, lambda answer: own(answer) == wanted, 4)))


@dialogue("AlterConfigs")
def replaced(talk: Talk) -> None:
    def resource(name: str, kind: int = TOPIC, **configs: str | None) -> AlterConfigsResource:
        settings = [
            AlterableConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ]
        return AlterConfigsResource(resource_type=kind, resource_name=name, configs=settings)

    def ask(step: str, *resources: AlterConfigsResource, **fields: Any) -> None:
        request = AlterConfigsRequest(resources=resources, **fields)
        talk.ask(step, request, trim=sort)

    topic = talk.make_topic(retention_bytes="12345")
    ask("another one", resource(topic, retention_ms="1000000"))
    values(talk, "only that is left", topic, retention_ms="1000000")
    ask("a check", resource(topic, retention_ms="5"), validate_only=True)
    ask("a bad value", resource(topic, retention_ms="soon"))
    ask("an unknown config", resource(topic, no_such_thing="1"))
    ask("a null value", resource(topic, retention_ms=None))
    values(talk, "it is as before", topic, retention_ms="1000000")
    ask("none", resource(topic))
    values(talk, "nothing is left", topic)
    ask("an unknown topic", resource(talk.own("unknown"), retention_ms="1000000"))
    ask("a bad name", resource("a b", retention_ms="1000000"))
    twice = resource(topic, retention_ms="1000")
    twice.configs = [*twice.configs, AlterableConfig(name="retention.ms", value="2000")]
    ask("a config twice", twice)
    ask("type 0", resource(topic, 0, retention_ms="1000"))
    ask("a type that is none", resource(topic, 77, retention_ms="1000"))
    ask("broker 99", resource("99", BROKER, log_retention_ms="1000"))
    ask("a read-only setting of the broker", resource("1", BROKER, num_partitions="1"))
    ask("nothing")


def sort(answer: Any) -> None:
    answer.responses = sorted(
        answer.responses, key=lambda each: (each.resource_type, each.resource_name)
    )


@dialogue("IncrementalAlterConfigs")
def changed(talk: Talk) -> None:
    def resource(
        name: str, *changes: tuple[str, int, str | None], kind: int = TOPIC
    ) -> IncrementalResource:
        configs = [
            IncrementalConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ]
        return IncrementalResource(resource_type=kind, resource_name=name, configs=configs)

    def ask(step: str, *resources: IncrementalResource, **fields: Any) -> None:
        request = IncrementalAlterConfigsRequest(resources=resources, **fields)
        talk.ask(step, request, trim=sort)

    topic = talk.make_topic(retention_bytes="12345")
    ms = "retention.ms"
    ask("one more", resource(topic, (ms, SET, "1000000")))
    values(talk, "both are there", topic, retention_bytes="12345", retention_ms="1000000")
    ask("one less", resource(topic, ("retention.bytes", DELETE, None)))
    ask("one that is not there", resource(topic, ("retention.bytes", DELETE, None)))
    values(talk, "one is left", topic, retention_ms="1000000")
    ask("a check", resource(topic, (ms, SET, "5")), validate_only=True)
    ask("a bad value", resource(topic, (ms, SET, "soon")))
    ask("a good and a bad value", resource(topic, (ms, SET, "6"), ("max.message.bytes", SET, "-6")))
    ask("an unknown config", resource(topic, ("no.such.thing", SET, "1")))
    ask("to delete an unknown config", resource(topic, ("no.such.thing", DELETE, None)))
    ask("a null value", resource(topic, (ms, SET, None)))
    ask("appended to a number", resource(topic, (ms, APPEND, "1")))
    ask("subtracted from a number", resource(topic, (ms, SUBTRACT, "1")))
    ask("operation 9", resource(topic, (ms, 9, "1")))
    ask("a config twice", resource(topic, (ms, SET, "1000"), (ms, SET, "2000")))
    policy = "cleanup.policy"
    ask("appended what is there", resource(topic, (policy, APPEND, "delete")))
    ask("subtracted what is not there", resource(topic, (policy, SUBTRACT, "compact")))
    ask("appended nonsense", resource(topic, (policy, APPEND, "burn")))
    values(talk, "it is as before", topic, cleanup_policy="delete", retention_ms="1000000")
    ask("an unknown topic", resource(talk.own("unknown"), (ms, SET, "1000000")))
    ask("a bad name", resource("a b", (ms, SET, "1000000")))
    ask("no name", resource("", (ms, SET, "1000000")))
    other = talk.make_topic("other")
    good, bad = resource(other, (ms, SET, "2000000")), resource(topic, (ms, SET, "soon"))
    ask("a good and a bad topic", good, bad)
    values(talk, "the good one is changed", other, retention_ms="2000000")
    ask("a topic twice", resource(topic, (ms, SET, "1")), resource(topic, (ms, SET, "2")))
    ask("no changes", resource(topic))
    ask("type 0", resource(topic, (ms, SET, "1000"), kind=0))
    ask("a type that is none", resource(topic, (ms, SET, "1000"), kind=77))
    ask("broker 99", resource("99", ("log.retention.ms", SET, "1000"), kind=BROKER))
    ask("a broker that is no number", resource("x", ("num.partitions", SET, "1"), kind=BROKER))
    read_only = resource("1", ("num.partitions", SET, "1"), kind=BROKER)
    ask("a read-only setting of the broker", read_only)
    ask("nothing")


@dialogue("DeleteRecords", also=(1,))
def deleted(talk: Talk) -> None:
    def ask(step: str, *partitions: tuple[int, int], topic: str = "") -> None:
        asked = [DeleteRecordsPartition(partition_index=i, offset=at) for i, at in partitions]
        row = DeleteRecordsTopic(name=topic or name, partitions=asked)
        talk.ask(step, DeleteRecordsRequest(topics=[row], timeout_ms=10_000))

    def starts(step: str) -> None:
        asked = [
            ListOffsetsPartition(partition_index=0, timestamp=timestamp) for timestamp in (-2, -1)
        ]
        for which, each in zip(("start", "end"), asked, strict=True):
            topics = [ListOffsetsTopic(name=name, partitions=[each])]
            answer = talk.quietly(ListOffsetsRequest(replica_id=-1, topics=topics), 4)
            talk.note(f"{step}, {which}", answer.topics[0].partitions[0].offset)

    name = talk.make_topic(partitions=2)
    fill(talk, name, *[batch(b"a")] * 5)
    ask("three", (0, 3))
    starts("after three")
    ask("the same", (0, 3))
    ask("fewer", (0, 1))
    ask("none", (0, 0))
    ask("behind the end", (0, 6))
    ask("-2", (0, -2))
    starts("after what is refused")
    ask("up to the end", (0, 5))
    fill(talk, name, *[batch(b"a")] * 2)
    ask("all", (0, -1))
    starts("after all")
    ask("of an empty partition", (1, -1))
    ask("of an empty partition, by offset", (1, 1))
    ask("a partition that is not there", (2, 0))
    ask("partition -1", (-1, 0))
    ask("an unknown topic", (0, 0), topic=talk.own("unknown"))
    ask("a bad name", (0, 0), topic="a b")
    ask("no partitions")
    talk.ask("no topics", DeleteRecordsRequest(topics=[], timeout_ms=10_000))
