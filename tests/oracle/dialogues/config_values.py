"""Which values of a topic's configs are taken: every config with every odd value.

A check creates nothing, so one request asks about all values of a config. Only the values that are
taken are noted, and the errors of the others.
"""

from typing import Any

from smq.wire.generated.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from smq.wire.generated.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.oracle.dialogues import dialogue
from tests.oracle.dialogues.settings import SET
from tests.oracle.dialogues.topics import BROKER, TOPIC, description
from tests.oracle.talk import Talk

# All of Kafka's topic configs.
CONFIGS = (
    "cleanup.policy",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "delete.retention.ms",
    "file.delete.delay.ms",
    "flush.messages",
    "flush.ms",
    "follower.replication.throttled.replicas",
    "index.interval.bytes",
    "leader.replication.throttled.replicas",
    "local.retention.bytes",
    "local.retention.ms",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "min.insync.replicas",
    "preallocate",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "remote.storage.enable",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.index.bytes",
    "segment.jitter.ms",
    "segment.ms",
    "unclean.leader.election.enable",
)
FORMER = (
    "internal.segment.bytes",
    "message.downconversion.enable",
    "message.format.version",
    "message.timestamp.difference.max.ms",
)
NUMBERS = (
    *("0", "-0", "+0", "00", "1", "+1", "007", "-1", "-2", "-3", "2", "3", "4", "5", "9", "10"),
    *("13", "14", "15", "17", "18", "22", "23", "60000", "1048575", "1048576", "1048577"),
    *("2147483646", "2147483647", "2147483648", "-2147483648", "-2147483649"),
    *("-131072", "-131073", "604800000", "604800001", "9223372036854775806"),
    *("9223372036854775807", "9223372036854775808"),
    *("-9223372036854775808", "-9223372036854775809", "99999999999999999999999"),
    *("1.0", "1e3", "0x10", "1_000", "1,000", "1L", "\u0665", "\uff15", "+", "-", "--1", "+-1"),
)
RATIOS = (
    *("0.5", ".5", "5.", "-0.0", "-0.1", "1.0000001", "1e-1", "1E-1", "0.5f", "0.5d", "0.5D", "1F"),
    *("0x1p-1", "0x.8p0", "NaN", "nan", "-NaN", "+NaN", "Infinity", "-Infinity", "inf", "1e400"),
    *("1e-400", "0,5", "0_5", "0.5.5", "e1", ".", "\u0660.\u0665"),
)
YES_OR_NO = ("true", "TRUE", "True", "false", "False", "yes", "no", "on", "t", "null", "none")
SPACES = ("", " ", " 5 ", "5\n", "\t5", "\u00a05", "\x005", "5\x00", " true ", "\u2003true", "5 5")
COMPRESSIONS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer", "GZIP", " gzip ")
TIMES = ("CreateTime", "LogAppendTime", "createtime", "NoTimestampType", " CreateTime ")
POLICIES = (
    *("compact", "delete", "compact,delete", "delete,compact", "delete, compact", "Compact"),
    *("compact,compact", "compact,", ",compact", ",", "compact,,delete", " compact ", ",,"),
    *("compact , delete", "delete,compact,delete", "burn", "compact;delete", "compact\t,delete"),
)
THROTTLED = (
    *("*", "0:1", "0:1,1:1", "0:1,0:1", "0:1, 1:2", "0:1,", ",0:1", "0:1,,1:2", "*,0:1", "*,*"),
    *("0:1,*", "0", "0:", ":1", ":", "0:1:2", "a:b", "0:-1", "-1:0", "0:a", "*:*", "*:1", " 0:1 "),
    *("0 :1", "0: 1", "00:01", "+0:1", "99999999999:1", "0:99999999999", "\u0665:1", "0.5:1"),
)
VALUES = (
    *(*NUMBERS, *RATIOS, *YES_OR_NO, *SPACES, *COMPRESSIONS, *TIMES, *POLICIES, *THROTTLED, "five"),
)
TOGETHER = (
    {"max.compaction.lag.ms": "5", "min.compaction.lag.ms": "6"},
    {"max.compaction.lag.ms": "5", "min.compaction.lag.ms": "5"},
    {"max.compaction.lag.ms": "5"},
    {"min.compaction.lag.ms": "9223372036854775807"},
    {"retention.ms": "5", "local.retention.ms": "6"},
    {"retention.bytes": "5", "local.retention.bytes": "6"},
    {"retention.ms": "5", "local.retention.ms": "-1"},
    {"segment.ms": "5", "segment.jitter.ms": "6"},
    {"retention.ms": "5", "segment.ms": "6"},
    {"max.message.bytes": "9000000", "segment.bytes": "1048576"},
    {"remote.storage.enable": "false", "remote.log.copy.disable": "true"},
    {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"},
    {"cleanup.policy": "", "remote.storage.enable": "false"},
)
SHOWN = {
    "cleanup.policy": "delete , compact,delete",
    "compression.type": " gzip ",
    "delete.retention.ms": "+1",
    "file.delete.delay.ms": "-0",
    "flush.messages": "1000",
    "flush.ms": "\u0665",
    "leader.replication.throttled.replicas": "0:1, 1:2,",
    "min.cleanable.dirty.ratio": "0x1p-1",
    "preallocate": "TRUE",
    "retention.bytes": "-2",
    "segment.ms": " 5 ",
}


def check(talk: Talk, *topics: dict[str, str]) -> list[int]:
    """The error of each topic's configs, if it were created."""
    made = [
        CreatableTopic(
            name=talk.own(str(number)),
            num_partitions=1,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in topic.items()],
        )
        for number, topic in enumerate(topics)
    ]
    request = CreateTopicsRequest(topics=made, timeout_ms=30_000, validate_only=True)
    answer = talk.quietly(request, talk.version)
    codes = {each.name: each.error_code for each in answer.topics}
    return [codes[each.name] for each in made]


@dialogue("CreateTopics", since=7)
def odd_values(talk: Talk) -> None:
    for config in (*CONFIGS, *FORMER):
        codes = check(talk, *({config: value} for value in VALUES))
        pairs = list(zip(map(ascii, VALUES), codes, strict=True))
        taken = {value: "taken" for value, code in pairs if not code}
        refusals = {str(code): "an error" for _, code in pairs if code}
        talk.note(config, taken | refusals)


@dialogue("CreateTopics", since=7)
def values_together(talk: Talk) -> None:
    for configs, code in zip(TOGETHER, check(talk, *TOGETHER), strict=True):
        talk.note(", ".join(f"{name}={value}" for name, value in configs.items()), code)


@dialogue("DescribeConfigs", since=4)
def of_odd_values(talk: Talk) -> None:
    """A value is shown as it was understood."""

    def show(step: str, name: str, *keys: str) -> None:
        asked = description(TOPIC, name, list(keys), include_synonyms=True)
        rows = talk.quietly(asked, talk.version).results[0].configs
        talk.note(step, {each.name: each.value for each in rows})

    configs: dict[str, Any] = {key.replace(".", "_"): value for key, value in SHOWN.items()}
    show("all of them", talk.make_topic(**configs), *SHOWN)
    ratio = "min.cleanable.dirty.ratio"
    ratios = ("NaN", "1e-400", "1", "0.00012", "1e-3", "0.3f", "-0")
    for number, value in enumerate(ratios):
        name = talk.make_topic(str(number))
        talk.quietly(changing(TOPIC, name, (ratio, value)), 1)
        talk.until(
            description(TOPIC, name, [ratio]),
            lambda answer: answer.results[0].configs[0].config_source == 1,
            4,
        )
        show(f"the ratio {value}", name, ratio)


def changing(kind: int, name: str, *values: tuple[str, str]) -> IncrementalAlterConfigsRequest:
    changes = [
        AlterableConfig(name=key, config_operation=SET, value=value) for key, value in values
    ]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
    return IncrementalAlterConfigsRequest(resources=[resource])


@dialogue("DescribeConfigs")
def of_replicas_in_sync(talk: Talk) -> None:
    """Kafka's controller sets this for all brokers."""
    key = "min.insync.replicas"
    name = talk.make_topic()
    for step, kind, which in (
        ("of a topic", TOPIC, name),
        ("of a broker", BROKER, "1"),
        ("of all brokers", BROKER, ""),
    ):
        talk.ask(step, description(kind, which, [key], include_synonyms=True))
    own = talk.make_topic("own", min_insync_replicas="1")
    talk.ask("a topic's own", description(TOPIC, own, [key], include_synonyms=True))
