"""CreateTopics, DeleteTopics, DescribeConfigs: what may be made, and how it is described."""

from typing import Any
from uuid import UUID

from smq.wire.codec import ZERO_UUID
from smq.wire.generated.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from smq.wire.generated.delete_topics import DeleteTopicsRequest, DeleteTopicState
from smq.wire.generated.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tests.oracle.dialogues import dialogue
from tests.oracle.dialogues.produce import UNKNOWN_ID
from tests.oracle.plain import own
from tests.oracle.talk import Talk

TOPIC, BROKER = 2, 4
# What clients and tools look at; a broker has hundreds more of its own.
COMPARED_CONFIGS = {
    "cleanup.policy",
    "compression.type",
    "max.message.bytes",
    "message.timestamp.type",
    "min.insync.replicas",
    "retention.bytes",
    "segment.bytes",
}


def creation(*topics: CreatableTopic, **fields: Any) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=topics, **({"timeout_ms": 10_000} | fields))


def topic(name: str, partitions: int = 1, replicas: int = 1, **configs: Any) -> CreatableTopic:
    settings = [
        CreatableTopicConfig(name=key.replace("_", "."), value=value)
        for key, value in configs.items()
    ]
    return CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replicas, configs=settings
    )


def ask(talk: Talk, step: str, request: CreateTopicsRequest) -> None:
    """The rows come in the order of a hash table."""

    def trim(answer: CreateTopicsResponse) -> None:
        answer.topics = sorted(answer.topics, key=lambda each: each.name)
        for each in answer.topics:
            each.configs = each.configs and [
                config
                for config in sorted(each.configs, key=lambda config: config.name)
                if config.name in COMPARED_CONFIGS
            ]

    talk.ask(step, request, trim=trim)


@dialogue("CreateTopics", also=(4,))
def created(talk: Talk) -> None:
    ask(talk, "one", creation(topic(talk.own("one"))))
    ask(talk, "once more", creation(topic(talk.own("one"))))
    ask(talk, "with configs", creation(topic(talk.own("two"), 3, retention_bytes="5")))
    ask(talk, "by default", creation(topic(talk.own("default"), -1, -1)))
    ask(talk, "only a check", creation(topic(talk.own("check")), validate_only=True))
    ask(talk, "a check of one that is", creation(topic(talk.own("one")), validate_only=True))
    ask(talk, "two", creation(topic(talk.own("b")), topic(talk.own("a"))))
    ask(talk, "one of two", creation(topic(talk.own("a")), topic(talk.own("c"))))
    ask(talk, "one twice", creation(topic(talk.own("d")), topic(talk.own("d"))))
    ask(talk, "none", creation())
    ask(talk, "in no time", creation(topic(talk.own("no-time")), timeout_ms=0))


@dialogue("CreateTopics", also=(4,))
def refused(talk: Talk) -> None:
    for name in ("", ".", "..", "a b", "x" * 250, "\u00e9", "a/b"):
        ask(talk, f"the name {name[:5]!r}", creation(topic(name)))
    ask(talk, "the longest name", creation(topic(talk.own("x").ljust(249, "x"))))
    ask(talk, "a dot", creation(topic(talk.own("a.b"))))
    ask(talk, "an underscore where a dot was", creation(topic(talk.own("a_b"))))
    colliding = creation(topic(talk.own("c.d")), topic(talk.own("c_d")))
    ask(talk, "a dot and an underscore at once", colliding)
    for count in (0, -2, 2**31 - 1):
        ask(talk, f"{count} partitions", creation(topic(talk.own("n"), count)))
    for count in (0, -2, 2):
        ask(talk, f"{count} replicas", creation(topic(talk.own("r"), 1, count)))
    ask(talk, "default partitions, two replicas", creation(topic(talk.own("dr"), -1, 2)))


@dialogue("CreateTopics")
def refused_configs(talk: Talk) -> None:
    bad: dict[str, dict[str, Any]] = {
        "an unknown config": {"no_such_thing": "1"},
        "a number that is none": {"retention_ms": "soon"},
        "a number too small": {"retention_ms": "-2"},
        "a policy that is none": {"cleanup_policy": "burn"},
        "a compression that is none": {"compression_type": "rar"},
        "a null value": {"retention_ms": None},
        "an empty value": {"retention_ms": ""},
        "a negative size": {"max_message_bytes": "-1"},
        "a type of time that is none": {"message_timestamp_type": "Noon"},
        "more replicas in sync than there are": {"min_insync_replicas": "3"},
    }
    for name, configs in bad.items():
        ask(talk, name, creation(topic(talk.own(name.replace(" ", "-")), **configs)))
    for name, policy in (
        ("spaces", "compact, delete"),
        ("none", ""),
        ("doubles", "compact,compact"),
    ):
        asked = topic(talk.own(name), cleanup_policy=policy)
        ask(talk, f"a policy with {name}", creation(asked))
    both = topic(talk.own("both"), cleanup_policy="compact,delete", retention_ms="-1")
    ask(talk, "good ones", creation(both))
    packed = topic(talk.own("packed"), compression_type="gzip")
    ask(talk, "a compression of the broker's", creation(packed))
    twice = topic(talk.own("twice"), retention_ms="1000")
    twice.configs = [*twice.configs, CreatableTopicConfig(name="retention.ms", value="2000")]
    ask(talk, "a config twice", creation(twice))


@dialogue("CreateTopics")
def by_assignment(talk: Talk) -> None:
    def assigned(name: str, *partitions: tuple[int, list[int]], count: int = -1) -> CreatableTopic:
        made = topic(talk.own(name), count, -1)
        made.assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in partitions
        ]
        return made

    ask(talk, "two partitions", creation(assigned("good", (0, [1]), (1, [1]))))
    ask(talk, "and a count", creation(assigned("count", (0, [1]), count=1)))
    ask(talk, "not from 0", creation(assigned("from-1", (1, [1]))))
    ask(talk, "with a gap", creation(assigned("gap", (0, [1]), (2, [1]))))
    ask(talk, "an unknown broker", creation(assigned("unknown", (0, [99]))))
    ask(talk, "no brokers", creation(assigned("none", (0, []))))
    ask(talk, "a broker twice", creation(assigned("twice", (0, [1, 1]))))


@dialogue("DeleteTopics", also=(5,))
def deleted(talk: Talk) -> None:
    def names(*given: str) -> DeleteTopicsRequest:
        states = [DeleteTopicState(name=each) for each in given]
        return DeleteTopicsRequest(topics=states, timeout_ms=10_000)

    def ids(*given: UUID, name: str | None = None) -> DeleteTopicsRequest:
        states = [DeleteTopicState(name=name, topic_id=each) for each in given]
        return DeleteTopicsRequest(topics=states, timeout_ms=10_000)

    def ask(step: str, request: DeleteTopicsRequest) -> None:
        talk.ask(step, request, trim=sort)

    def sort(answer: Any) -> None:
        answer.responses = sorted(answer.responses, key=lambda each: each.name or "")

    first, second = talk.make_topic("first"), talk.make_topic("second")
    ask("one", names(first))
    ask("once more", names(first))
    ask("one and an unknown one", names(talk.own("unknown"), second))
    ask("a bad name", names("a b"))
    ask("no name", names(""))
    ask("none", names())
    third = talk.make_topic("third")
    ask("one twice", names(third, third))
    if talk.version >= 6:
        known = talk.topic_id(third)
        ask("name and id", ids(known, name=third))
        ask("by its id", ids(known))
        ask("by its id once more", ids(known))
        ask("an unknown id", ids(UNKNOWN_ID))
        ask("neither name nor id", ids(ZERO_UUID))


def description(
    kind: int, name: str, keys: list[str] | None = None, **fields: Any
) -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    return DescribeConfigsRequest(resources=[resource], **fields)


def compared(answer: DescribeConfigsResponse) -> None:
    for result in answer.results:
        result.configs = own(
            (each for each in result.configs if each.name in COMPARED_CONFIGS), "name", ""
        )


@dialogue("DescribeConfigs", also=(3,))
def of_topics(talk: Talk) -> None:
    name = talk.make_topic(cleanup_policy="delete", retention_bytes="12345")
    talk.ask("all", description(TOPIC, name), trim=compared)
    synonyms = description(TOPIC, name, include_synonyms=True)
    talk.ask("with synonyms", synonyms, trim=compared)
    talk.ask("some", description(TOPIC, name, ["retention.bytes", "cleanup.policy"]), trim=compared)
    talk.ask("an unknown key", description(TOPIC, name, ["no.such.thing"]))
    retention = description(TOPIC, name, ["retention.ms"], include_synonyms=True)
    talk.ask("a setting of the broker without default", retention)
    talk.ask("no keys", description(TOPIC, name, []), trim=compared)
    if talk.version >= 3:
        documented = description(TOPIC, name, ["retention.bytes"], include_documentation=True)
        talk.ask("with documentation", documented)
    talk.ask("an unknown topic", description(TOPIC, talk.own("unknown")))
    talk.ask("a bad name", description(TOPIC, "a b"))
    talk.ask("no name", description(TOPIC, ""))


@dialogue("DescribeConfigs")
def of_brokers(talk: Talk) -> None:
    keys = ["num.partitions", "auto.create.topics.enable"]
    talk.ask("broker 1", description(BROKER, "1", keys))
    talk.ask("its synonyms", description(BROKER, "1", keys, include_synonyms=True))
    talk.ask("its id", description(BROKER, "1", ["node.id"], include_synonyms=True))
    talk.ask("all brokers", description(BROKER, "", keys))
    talk.ask("broker 99", description(BROKER, "99", keys))
    talk.ask("a broker that is no number", description(BROKER, "one", keys))
    talk.ask("a type that is none", description(77, "1", keys))
    talk.ask("type 0", description(0, "1", keys))
    talk.ask("nothing", DescribeConfigsRequest(resources=[]))
