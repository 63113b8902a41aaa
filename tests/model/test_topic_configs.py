"""The table of topic configs: defaults, bounds, and what each refusal says."""

from pathlib import Path
from typing import Any

import pytest

from smq.model.config import SETTINGS, Config
from smq.model.topic_configs import (
    TOPIC_CONFIGS,
    TopicSettings,
    batch_bytes_max,
    broker_default,
    parse,
    problem_of,
)

MiB = 1024 * 1024
BROKER = Config(data_dir=Path("/data"), ring_bytes=8 * MiB, wal_segment_bytes=4 * MiB)


@pytest.mark.parametrize("name", TOPIC_CONFIGS)
def test_every_default_is_a_value_that_could_be_set(name: str) -> None:
    config = TOPIC_CONFIGS[name]
    parse(name, config.default)
    assert config.doc.endswith(".")


@pytest.mark.parametrize("name", [n for n, each in TOPIC_CONFIGS.items() if each.setting])
def test_a_brokers_setting_of_the_same_meaning_has_the_same_default(name: str) -> None:
    config = TOPIC_CONFIGS[name]
    assert SETTINGS[config.broker_key].key == config.setting
    assert broker_default(config, Config(data_dir=Path("/data"))) == config.default


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.ms", "-1", -1),
        ("retention.ms", " 5 ", 5),
        ("retention.bytes", str(2**63 - 1), 2**63 - 1),
        ("preallocate", "TRUE", True),
        ("min.cleanable.dirty.ratio", "0.25", 0.25),
        ("message.timestamp.type", "LogAppendTime", "LogAppendTime"),
        ("cleanup.policy", "delete", "delete"),
        ("smq.durability", "disk", "disk"),
    ],
)
def test_these_values_are_understood(name: str, text: str, value: object) -> None:
    assert parse(name, text) == value


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("retention.hours", "1", "Unknown topic config name: retention.hours"),
        ("retention.ms", "a week", "Not a number of type LONG"),
        ("retention.ms", str(2**63), "Not a number of type LONG"),
        ("retention.ms", "1_000", "Not a number of type LONG"),
        ("retention.ms", "-2", "at least -1"),
        ("max.message.bytes", str(2**31), "Not a number of type INT"),
        ("preallocate", "yes", "either true or false"),
        ("min.cleanable.dirty.ratio", "2", "between 0 and 1"),
        ("min.cleanable.dirty.ratio", "half", "DOUBLE"),
        ("message.timestamp.type", "createtime", "CreateTime, LogAppendTime"),
        ("cleanup.policy", "burn", "String must be one of: compact, delete"),
        ("cleanup.policy", "compact,burn", "String must be one of: compact, delete"),
        ("min.insync.replicas", "2", "one replica"),
        ("flush.messages", "1", "smq.durability=disk"),
        ("smq.durability", "fsync", "memory, os, disk"),
        ("smq.seal.bytes", "0", "at least 1"),
    ],
)
def test_these_are_refused_with_the_reason(name: str, text: str, word: str) -> None:
    problem = problem_of({name: text}, BROKER)
    assert problem is not None
    assert word in problem
    assert name in problem


def test_a_null_is_refused() -> None:
    problem = problem_of({"retention.ms": "1", "segment.ms": None}, BROKER)
    assert problem == "Null value not supported for topic configs: segment.ms"


def test_batches_that_fit_in_no_ring_are_refused() -> None:
    assert problem_of({"max.message.bytes": str(batch_bytes_max(BROKER))}, BROKER) is None
    problem = problem_of({"max.message.bytes": str(batch_bytes_max(BROKER) + 1)}, BROKER)
    assert problem is not None
    assert "raise ring.bytes" in problem


def test_no_configs_are_no_problem() -> None:
    assert problem_of({}, BROKER) is None


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
    assert problem_of(configs, BROKER) is None
    settings = TopicSettings.of(configs, BROKER)
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
        ({"segment.bytes": "14"}, 600_000, 1_048_576),
        ({"segment.bytes": "14", "smq.seal.bytes": "7"}, 600_000, 7),
    ],
)
def test_a_topic_is_sealed_by_what_is_less_of_kafkas_settings_and_ours(
    configs: dict[str, str], seal_ms: int, seal_bytes: int
) -> None:
    assert problem_of(configs, BROKER) is None
    settings = TopicSettings.of(configs, BROKER)
    assert (settings.seal_ms, settings.seal_bytes) == (seal_ms, seal_bytes)
