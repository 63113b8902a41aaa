"""What a topic's settings come to: one way to read them, `settings_of` a topic.

A setting that is added is a row of `smq.model.topic_configs` and a field here.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

from smq.model.catalog import Topic
from smq.model.config import Config
from smq.model.given_configs import parse
from smq.model.record_columns import schema_of_record_type
from smq.model.setting import INT64_MAX
from smq.model.topic_configs import (
    COMPACT,
    DELETE,
    DURABILITY,
    FLUSH_CONFIGS,
    NO_TABLE,
    RECORD_TYPE,
    SCHEMA,
    SEGMENT_BYTES_MIN,
    TABLE,
    own_or_default,
)

AS_SENT = "producer"
CONFIGS_MAX = 4  # Of nodes, for which a process derives a topic's settings.


def settings_of(topic: Topic, broker: Config) -> "TopicSettings":
    """A topic's settings under a config of the broker: derived once, and kept with the topic."""
    for config, settings in topic.derived:
        if config is broker:
            assert isinstance(settings, TopicSettings)
            return settings
    settings = TopicSettings.of(topic.configs, broker)
    topic.derived[:] = [*topic.derived, (broker, settings)][-CONFIGS_MAX:]
    return settings


def schema_of(own: Mapping[str, str]) -> str:
    """The types of a topic's values, "" without: its `smq.schema`, or what its record type makes.
    No setting of the broker's stands behind it."""
    return own.get(SCHEMA, "") or schema_of_record_type(own.get(RECORD_TYPE, ""))


def table_of(own: Mapping[str, str]) -> str:
    """The format of a topic's lake table, or NO_TABLE: the broker has no default for it."""
    return own.get(TABLE, NO_TABLE)


def orphan_ms_of(own: Mapping[str, str], broker: Config) -> int:
    """How old an unreferenced payload gets before it is deleted."""
    return int(own_or_default("smq.reference.orphan.ms", own, broker))


def _durability(own: Mapping[str, str], broker: Config) -> str:
    """When a record of a topic with these configs of its own is visible and acknowledged.

    A topic that Kafka would sync from time to time is synced before each acknowledgement.
    """
    flushes = any(int(own.get(name, INT64_MAX)) < INT64_MAX for name in FLUSH_CONFIGS)
    if flushes and DURABILITY not in own:
        return "disk"
    return own_or_default(DURABILITY, own, broker)


class TopicSettings(NamedTuple):
    """A topic's effective settings, those that have an effect."""

    durability: str
    message_bytes_max: int
    log_append_time: bool
    timestamp_after_max_ms: int
    timestamp_before_max_ms: int
    retention_ms: int
    retention_bytes: int
    seal_bytes: int
    seal_ms: int
    reference_orphan_ms: int
    compacts: bool = False
    dirty_min_ppm: int = 500_000
    compaction_lag_min_ms: int = 0
    compaction_lag_max_ms: int = INT64_MAX
    tombstone_ms: int = 86_400_000
    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    table: str = NO_TABLE
    schema: str = ""
    deletes: bool = True
    delivers_inline: bool = False
    validates: bool = False
    compression: str = AS_SENT
    compression_level: int | None = None  # None: the default one.

    @property
    def looks_into(self) -> bool:
        """Whether batches are looked into before they are appended."""
        return self.validates or self.compacts or self.compression != AS_SENT

    @classmethod
    def of(cls, configs: Mapping[str, str], broker: Config) -> "TopicSettings":
        """The settings of a topic with these configs of its own.

        A topic that is only compacted has no retention, and is sealed before compaction is due.
        """

        def text(name: str) -> str:
            return own_or_default(name, configs, broker)

        policies = {each.strip() for each in text("cleanup.policy").split(",")}
        compacts, lag_max_ms = COMPACT in policies, int(text("max.compaction.lag.ms"))
        segment_bytes = max(SEGMENT_BYTES_MIN, int(text("segment.bytes")))
        segment_ms = int(text("segment.ms"))
        seal_ms = min(int(text("smq.seal.ms")), segment_ms)
        return cls(
            durability=_durability(configs, broker),
            message_bytes_max=int(text("max.message.bytes")),
            log_append_time=text("message.timestamp.type") == "LogAppendTime",
            timestamp_after_max_ms=int(text("message.timestamp.after.max.ms")),
            timestamp_before_max_ms=int(text("message.timestamp.before.max.ms")),
            retention_ms=int(text("retention.ms")) if DELETE in policies else -1,
            retention_bytes=max(-1, int(text("retention.bytes"))) if DELETE in policies else -1,
            seal_bytes=min(int(text("smq.seal.bytes")), segment_bytes),
            seal_ms=min(seal_ms, lag_max_ms) if compacts else seal_ms,
            reference_orphan_ms=orphan_ms_of(configs, broker),
            compacts=compacts,
            dirty_min_ppm=_ppm(float(text("min.cleanable.dirty.ratio"))),
            compaction_lag_min_ms=int(text("min.compaction.lag.ms")),
            compaction_lag_max_ms=lag_max_ms,
            tombstone_ms=int(text("delete.retention.ms")),
            segment_bytes=segment_bytes,
            segment_ms=segment_ms,
            table=table_of(configs),
            schema=schema_of(configs),
            deletes=DELETE in policies,
            delivers_inline=text("smq.reference.delivery") == "inline",
            validates=text("smq.validate") == "records",
            compression=text("compression.type"),
            compression_level=_level(configs, text("compression.type")),
        )


def _level(own: Mapping[str, str], codec: str) -> int | None:
    """The level of a codec; None: the default one, also where a level was taken before there were
    bounds, and means nothing."""
    name = f"compression.{codec}.level"
    try:
        return int(parse(name, own[name])) if name in own else None
    except ValueError:
        return None


def _ppm(ratio: float) -> int:
    """A share in millionths. More than NaN is nothing: as more than all of it."""
    return 1_000_000 if math.isnan(ratio) else round(ratio * 1_000_000)
