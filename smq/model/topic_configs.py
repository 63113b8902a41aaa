"""The settings of a topic: one table for checking, using and describing them.

A topic's own value takes precedence over the broker's setting of the same meaning, and that over
the default. Names and defaults are Kafka's; `smq.*` are SMQ's. A value that SMQ cannot honour is
refused with a sentence. A setting that is accepted without effect says so in its documentation;
ignoring it harms nobody.
"""

from collections.abc import Mapping
from typing import NamedTuple

from smq.model.config import DURABILITIES, Config
from smq.model.config_values import ConfigType
from smq.model.record_types import parse_record_type
from smq.model.setting import INT64_MAX
from smq.model.topic_schema import check_given
from smq.model.value_rules import (
    Rule,
    at_least,
    between,
    one_of,
    or_default,
    some_of,
    throttled_replicas,
)

NO_MEANING = "Has no effect: "
SEGMENT_BYTES_MIN = 1024 * 1024  # A smaller value would make too many files.


class TopicConfig(NamedTuple):
    """One setting. `rule` returns a sentence about an invalid value, or ''.

    `broker_key` is Kafka's broker setting of the same meaning; `setting` names its field in
    `smq.model.config`, if there is one.
    """

    name: str
    type: ConfigType
    default: str
    doc: str
    rule: Rule = lambda _value: ""
    broker_key: str = ""
    setting: str = ""


def _problem_of_schema(text: str) -> str:
    try:
        check_given(text)
    except ValueError as reason:
        return str(reason)
    return ""


def _problem_of_record_type(text: str) -> str:
    try:
        parse_record_type(text)
    except ValueError as reason:
        return str(reason)
    return ""


def _level(codec: str, default: str, rule: Rule, words: str = "") -> TopicConfig:
    name = f"compression.{codec}.level"
    doc = f"The level at which the broker compresses, where `compression.type` is {codec}. The "
    doc += f"higher it is, the smaller are the batches that it takes (docs/deviations.md). {words}"
    return TopicConfig(name, ConfigType.INT, default, doc.rstrip(), rule, broker_key=name)


T = ConfigType
COMPACT, DELETE = "compact", "delete"
NO_TABLE = "none"
TABLE = "smq.table"
SCHEMA, DURABILITY = "smq.schema", "smq.durability"
NAMESPACE, RECORD_TYPE = "smq.namespace", "smq.record.type"
GRPC_ACK_TIMEOUT = "smq.grpc.ack.timeout.ms"
KEY_COLUMNS, SCHEMA_FORMAT = "smq.key.columns", "smq.schema.format"
FLUSH_CONFIGS = ("flush.messages", "flush.ms")
_FLUSHES = (
    "A value of its own has each record synced before it is acknowledged, as smq.durability=disk "
    "does, which takes precedence."
)
_TABLE = (
    TopicConfig(
        "cleanup.policy",
        T.LIST,
        "delete",
        "How old records are removed: `delete` by time or size, `compact` to the last of each key, "
        "both or neither. A compacted topic refuses records without a key.",
        some_of(COMPACT, DELETE),
        "log.cleanup.policy",
    ),
    _level("gzip", "-1", or_default(-1, 1, 9), "-1 is 6."),
    _level("lz4", "9", between(1, 17), "9 is the fast compressor, as in Kafka."),
    TopicConfig(
        "compression.type",
        T.STRING,
        "producer",
        "How batches are compressed: as the `producer` chose, or by the broker, which makes "
        "appending slower. A batch that would take the broker too long (docs/deviations.md), or "
        "that holds handles, stays as it was sent.",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        "compression.type",
    ),
    _level("zstd", "3", between(-131072, 22)),
    TopicConfig(
        "delete.retention.ms",
        T.LONG,
        "86400000",
        "How long a tombstone, a record without a value, stays in a compacted topic after it is "
        "compacted itself.",
        at_least(0),
        "log.cleaner.delete.retention.ms",
    ),
    TopicConfig(
        "file.delete.delay.ms",
        T.LONG,
        "60000",
        NO_MEANING + "the broker's filer.sweep.ms decides when files are deleted.",
        at_least(0),
        "log.segment.delete.delay.ms",
    ),
    TopicConfig(
        "flush.messages",
        T.LONG,
        str(INT64_MAX),
        _FLUSHES,
        at_least(1),
        "log.flush.interval.messages",
    ),
    TopicConfig(
        "flush.ms",
        T.LONG,
        str(INT64_MAX),
        _FLUSHES,
        at_least(0),
    ),
    TopicConfig(
        "follower.replication.throttled.replicas",
        T.LIST,
        "",
        NO_MEANING + "there are no followers.",
        throttled_replicas,
    ),
    TopicConfig(
        "index.interval.bytes",
        T.INT,
        "4096",
        NO_MEANING + "the index has every batch.",
        at_least(0),
        "log.index.interval.bytes",
    ),
    TopicConfig(
        "leader.replication.throttled.replicas",
        T.LIST,
        "",
        NO_MEANING + "there are no followers.",
        throttled_replicas,
    ),
    TopicConfig(
        "local.retention.bytes",
        T.LONG,
        "-2",
        NO_MEANING + "records are deleted by retention.bytes alone.",
        at_least(-2),
        "log.local.retention.bytes",
    ),
    TopicConfig(
        "local.retention.ms",
        T.LONG,
        "-2",
        NO_MEANING + "records are deleted by retention.ms alone.",
        at_least(-2),
        "log.local.retention.ms",
    ),
    TopicConfig(
        "max.compaction.lag.ms",
        T.LONG,
        str(INT64_MAX),
        "A topic is compacted once it has an uncompacted record this old, whatever "
        "min.cleanable.dirty.ratio says.",
        at_least(1),
        "log.cleaner.max.compaction.lag.ms",
    ),
    TopicConfig(
        "max.message.bytes",
        T.INT,
        "1048588",
        "Maximum size of a record batch, as sent.",
        at_least(0),
        "message.max.bytes",
        "message_max_bytes",
    ),
    TopicConfig(
        "message.timestamp.after.max.ms",
        T.LONG,
        "3600000",
        "How far a record's timestamp may be ahead of the broker's clock (CreateTime).",
        at_least(0),
        "log.message.timestamp.after.max.ms",
    ),
    TopicConfig(
        "message.timestamp.before.max.ms",
        T.LONG,
        str(INT64_MAX),
        "How far a record's timestamp may be behind the broker's clock (CreateTime).",
        at_least(0),
        "log.message.timestamp.before.max.ms",
    ),
    TopicConfig(
        "message.timestamp.type",
        T.STRING,
        "CreateTime",
        "Source of a record's timestamp: the producer's clock or the broker's.",
        one_of("CreateTime", "LogAppendTime"),
        "log.message.timestamp.type",
    ),
    TopicConfig(
        "min.cleanable.dirty.ratio",
        T.DOUBLE,
        "0.5",
        "A topic is compacted once more than this share of its sealed bytes is uncompacted; NaN: "
        "never for that reason.",
        between(0, 1),
        "log.cleaner.min.cleanable.ratio",
    ),
    TopicConfig(
        "min.compaction.lag.ms",
        T.LONG,
        "0",
        "Age below which records of a compacted topic are not compacted.",
        at_least(0),
        "log.cleaner.min.compaction.lag.ms",
    ),
    TopicConfig(
        "min.insync.replicas",
        T.INT,
        "1",
        "Everything has one replica.",
        one_of(1, otherwise="there is one replica, so more can never be in sync"),
        "min.insync.replicas",
    ),
    TopicConfig(
        "preallocate",
        T.BOOLEAN,
        "false",
        NO_MEANING + "the log's files are always allocated ahead.",
        broker_key="log.preallocate",
    ),
    TopicConfig(
        "remote.log.copy.disable",
        T.BOOLEAN,
        "false",
        NO_MEANING + "sealed segments are in the filer.",
    ),
    TopicConfig(
        "remote.log.delete.on.disable",
        T.BOOLEAN,
        "false",
        NO_MEANING + "sealed segments are in the filer.",
    ),
    TopicConfig(
        "remote.storage.enable",
        T.BOOLEAN,
        "false",
        "No tiered storage of Kafka's kind: sealed segments are always in the filer.",
        lambda value: "sealed segments are always in the filer" if value else "",
    ),
    TopicConfig(
        "retention.bytes",
        T.LONG,
        "-1",
        "Size above which a partition's oldest records are deleted; below 0: no limit.",
        broker_key="log.retention.bytes",
        setting="log_retention_bytes",
    ),
    TopicConfig(
        "retention.ms",
        T.LONG,
        "604800000",
        "Age at which records are deleted; -1: never.",
        at_least(-1),
        "log.retention.ms",
        "log_retention_ms",
    ),
    TopicConfig(
        "segment.bytes",
        T.INT,
        "1073741824",
        "A partition is sealed when this many unsealed bytes wait, if smq.seal.bytes is not less, "
        "into files of at most this many bytes.",
        at_least(SEGMENT_BYTES_MIN),
        "log.segment.bytes",
    ),
    TopicConfig(
        "segment.index.bytes",
        T.INT,
        "10485760",
        NO_MEANING + "the index grows as needed.",
        at_least(4),
        "log.index.size.max.bytes",
    ),
    TopicConfig(
        "segment.jitter.ms",
        T.LONG,
        "0",
        NO_MEANING + "partitions share the files of their log.",
        at_least(0),
    ),
    TopicConfig(
        "segment.ms",
        T.LONG,
        "604800000",
        "A record is sealed no later than this, if smq.seal.ms is not less, and no sealed file "
        "spans more time.",
        at_least(1),
    ),
    TopicConfig(
        DURABILITY,
        T.STRING,
        "os",
        "When a record is visible and acknowledged: in the ring, in the page cache, or synced.",
        one_of(*DURABILITIES),
        "durability",
        "durability",
    ),
    TopicConfig(
        GRPC_ACK_TIMEOUT,
        T.LONG,
        "30000",
        "How long a subscriber of SeaweedMQ's may take to acknowledge a record, before it is "
        "delivered again.",
        at_least(1),
    ),
    TopicConfig(
        KEY_COLUMNS,
        T.LIST,
        "",
        "The fields that make a record's key, as SeaweedMQ's clients say; kept for them.",
    ),
    TopicConfig(
        NAMESPACE,
        T.STRING,
        "",
        "SeaweedMQ's namespace of a topic whose name begins with it and a dot; without it that is "
        "`kafka`. See docs/seaweedmq.md.",
    ),
    TopicConfig(
        RECORD_TYPE,
        T.STRING,
        "",
        "SeaweedMQ's type of the topic's records, as JSON: publishers through the agent's port are "
        "held to it, and sealed files have its fields as typed columns; see docs/seaweedmq.md. "
        "Fields may be added later, not changed.",
        lambda value: _problem_of_record_type(str(value)),
    ),
    TopicConfig(
        "smq.reference.delivery",
        T.STRING,
        "handle",
        "What a Kafka client reads for a record with a handle: the handle, or the payload itself "
        "if it fits the client's fetch size (`inline`).",
        one_of("handle", "inline"),
    ),
    TopicConfig(
        "smq.reference.orphan.ms",
        T.LONG,
        "86400000",
        "Age at which an unreferenced payload is deleted; until then new records may refer to it.",
        at_least(1),
        "reference.orphan.ms",
        "reference_orphan_ms",
    ),
    TopicConfig(
        SCHEMA,
        T.STRING,
        "",
        "The types of the topic's values (JSON, Arrow or RecordValues), an Arrow schema as JSON: "
        "sealed files have them as typed columns; see docs/tables.md. Columns may be added later, "
        "not changed. A topic with smq.record.type needs none.",
        lambda value: _problem_of_schema(str(value)),
    ),
    TopicConfig(
        SCHEMA_FORMAT,
        T.STRING,
        "",
        "The format from which SeaweedMQ's clients derived the record type; kept for them.",
        one_of("", "AVRO", "PROTOBUF", "JSON_SCHEMA"),
    ),
    TopicConfig(
        "smq.seal.bytes",
        T.LONG,
        "268435456",
        "A partition is sealed when this many unsealed bytes wait and it has stopped growing, in "
        "files of at most 128 MiB.",
        at_least(1),
        "seal.bytes",
        "seal_bytes",
    ),
    TopicConfig(
        "smq.seal.ms",
        T.LONG,
        "600000",
        "A partition is sealed when its oldest unsealed record is this old.",
        at_least(1),
        "seal.ms",
        "seal_ms",
    ),
    TopicConfig(
        TABLE,
        T.STRING,
        NO_TABLE,
        "The lake table that the topic's sealed Parquet files are published as: `iceberg`, `delta` "
        "or `none`; see docs/tables.md.",
        one_of(NO_TABLE, "iceberg", "delta"),
    ),
    TopicConfig(
        "smq.validate",
        T.STRING,
        "header",
        "What the broker checks before it appends a batch: its `header`, or each of its `records` "
        "too, for which it inflates the batch. Batches for compacted topics are always inflated.",
        one_of("header", "records"),
    ),
    TopicConfig(
        "unclean.leader.election.enable",
        T.BOOLEAN,
        "false",
        NO_MEANING + "there are no followers that could become leader.",
        broker_key="unclean.leader.election.enable",
    ),
)

TOPIC_CONFIGS: Mapping[str, TopicConfig] = {each.name: each for each in _TABLE}


def topic_defaults(broker: Config) -> tuple[str, ...]:
    """What topics take from the broker's settings."""
    configs = (each for each in TOPIC_CONFIGS.values() if each.setting)
    return tuple(broker_default(each, broker) for each in configs)


def broker_default(config: TopicConfig, broker: Config) -> str:
    """The value for topics that do not set this."""
    return str(getattr(broker, config.setting)) if config.setting else config.default


def own_or_default(name: str, own: Mapping[str, str], broker: Config) -> str:
    """The value for a topic with these configs of its own."""
    return own[name] if name in own else broker_default(TOPIC_CONFIGS[name], broker)
