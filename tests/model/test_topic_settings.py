"""What a topic's settings come to, of its own and of the broker."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from smq.model.catalog import Topic
from smq.model.config import Config
from smq.model.given_configs import understood
from smq.model.topic_settings import CONFIGS_MAX, TopicSettings, schema_of, settings_of

MiB = 1024 * 1024
BROKER = Config(data_dir=Path("/data"), ring_bytes=8 * MiB, wal_segment_bytes=4 * MiB)


def test_settings_are_derived_once_for_a_topic_and_each_config_of_the_broker() -> None:
    topic = Topic("t", UUID(int=1), (1,), (0,), {"smq.seal.ms": "5"})
    settings = settings_of(topic, BROKER)
    assert settings.seal_ms == 5
    assert settings_of(topic, BROKER) is settings
    synced = replace(BROKER, durability="disk")
    assert settings_of(topic, synced).durability == "disk"
    assert settings_of(topic, BROKER) is settings


def test_a_topic_keeps_the_settings_of_a_few_configs_only() -> None:
    topic = Topic("t", UUID(int=1), (1,), (0,))
    for _ in range(CONFIGS_MAX + 3):
        settings_of(topic, replace(BROKER))
    assert len(topic.derived) == CONFIGS_MAX


def test_the_types_of_values_are_those_of_the_schema_or_else_of_the_record_type() -> None:
    record_type = '{"fields": [{"name": "key", "type": "BOOL"}]}'
    schema = '{"fields": [{"name": "a", "type": "bool"}]}'
    assert schema_of({}) == ""
    assert '"RecordValue"' in schema_of({"smq.record.type": record_type})
    assert schema_of({"smq.record.type": record_type, "smq.schema": schema}) == schema


def test_the_topics_own_value_wins_then_the_brokers_then_the_default() -> None:
    broker = Config(data_dir=Path("/data"), log_retention_ms=9, durability="disk")
    own: dict[str, Any] = {"retention.ms": "7", "message.timestamp.type": "LogAppendTime"}
    settings = TopicSettings.of(own, broker)
    assert settings.retention_ms == 7
    assert settings.log_append_time
    assert settings.durability == "disk"
    assert settings.message_bytes_max == 1048588
    assert settings.timestamp_before_max_ms == 2**63 - 1
    assert TopicSettings.of({}, broker).retention_ms == 9


@pytest.mark.parametrize(
    ("policy", "compacts", "retention_ms"),
    [
        ("delete", False, 1000),
        ("compact", True, -1),
        ("compact,delete", True, 1000),
        ("delete, compact", True, 1000),
        ("", False, -1),
    ],
)
def test_a_policy_says_what_is_deleted_and_whether_it_is_compacted(
    policy: str, compacts: bool, retention_ms: int
) -> None:
    configs = {"cleanup.policy": policy, "retention.ms": "1000", "retention.bytes": "1"}
    settings = TopicSettings.of(understood(configs, BROKER), BROKER)
    assert (settings.compacts, settings.retention_ms) == (compacts, retention_ms)
    assert (settings.retention_bytes == -1) == (retention_ms == -1)


def test_a_compacted_topic_is_sealed_before_it_must_be_compacted() -> None:
    configs = {"max.compaction.lag.ms": "7", "min.cleanable.dirty.ratio": "0.25"}
    assert TopicSettings.of(configs, BROKER).seal_ms == 600_000
    settings = TopicSettings.of({"cleanup.policy": "compact"} | configs, BROKER)
    assert (settings.seal_ms, settings.dirty_min_ppm) == (7, 250_000)


@pytest.mark.parametrize(
    ("configs", "seal_ms", "seal_bytes"),
    [
        ({"segment.ms": "1000"}, 1000, 268_435_456),
        ({"segment.ms": "1000", "smq.seal.ms": "10"}, 10, 268_435_456),
        ({"segment.bytes": "2000000"}, 600_000, 2_000_000),
        ({"segment.bytes": "2000000", "smq.seal.bytes": "7"}, 600_000, 7),
    ],
)
def test_a_topic_is_sealed_by_what_is_less_of_kafkas_settings_and_ours(
    configs: dict[str, str], seal_ms: int, seal_bytes: int
) -> None:
    settings = TopicSettings.of(understood(configs, BROKER), BROKER)
    assert (settings.seal_ms, settings.seal_bytes) == (seal_ms, seal_bytes)


@pytest.mark.parametrize(
    "own",
    [
        {"segment.bytes": "14"},
        {"cleanup.policy": "compact,"},
        {"min.cleanable.dirty.ratio": "0_1"},
        {"leader.replication.throttled.replicas": "nonsense"},
        {"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"},
        {"min.insync.replicas": "1", "flush.ms": str(2**63 - 1)},
    ],
)
def test_a_stored_topic_with_values_that_are_refused_now_still_loads(own: dict[str, str]) -> None:
    """Data fault 33."""
    settings = TopicSettings.of(own, BROKER)
    assert settings.segment_bytes >= MiB
    assert settings.durability == "os"


@pytest.mark.parametrize("name", ["flush.messages", "flush.ms"])
def test_kafkas_flush_configs_mean_durability_disk(name: str) -> None:
    """Data fault 33: smq.durability of its own takes precedence."""
    assert TopicSettings.of({name: "1000"}, BROKER).durability == "disk"
    assert TopicSettings.of({name: str(2**63 - 1)}, BROKER).durability == "os"
    both = {name: "1", "smq.durability": "memory"}
    assert TopicSettings.of(both, BROKER).durability == "memory"


def test_no_limit_of_size_is_any_number_below_0() -> None:
    """Data fault 33."""
    assert TopicSettings.of({"retention.bytes": "-2"}, BROKER).retention_bytes == -1


def test_a_topic_is_never_compacted_for_a_share_above_nan() -> None:
    """Data fault 33."""
    assert TopicSettings.of({"min.cleanable.dirty.ratio": "NaN"}, BROKER).dirty_min_ppm == 1_000_000


@pytest.mark.parametrize(
    ("codec", "text", "level"),
    [("gzip", "9", 9), ("gzip", "0", None), ("lz4", "0", None), ("zstd", "99", None)],
)
def test_a_level_from_before_levels_had_bounds_is_the_default_one(
    codec: str, text: str, level: int | None
) -> None:
    own = {"compression.type": codec, f"compression.{codec}.level": text}
    assert TopicSettings.of(own, BROKER).compression_level == level
    assert TopicSettings.of({"compression.type": codec}, BROKER).compression_level is None
    unknown = {"compression.type": "snappy", "compression.snappy.level": "of another version"}
    assert TopicSettings.of(unknown, BROKER).compression_level is None
