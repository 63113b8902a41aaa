"""DescribeConfigs: the value that holds, where it is from, what would hold otherwise."""

from typing import Any

import pytest

from smq.coordinator.topics import NewTopic
from smq.model.config import SETTINGS
from smq.model.errors import ErrorCode
from smq.model.topic_configs import TOPIC_CONFIGS
from smq.wire.generated.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.gateway.coordinator_bench import CoordinatorBench

E = ErrorCode
TOPIC, BROKER = 2, 4


def describe(
    bench: CoordinatorBench,
    version: int,
    resource_type: int,
    name: str,
    keys: list[str] | None = None,
    **fields: bool,
) -> Any:
    resource = DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=keys
    )
    request = DescribeConfigsRequest(resources=[resource], **fields)
    [result] = bench.ask("DescribeConfigs", version, request).results
    assert (result.resource_type, result.resource_name) == (resource_type, name)
    return result


@pytest.fixture(autouse=True)
def _topic(bench: CoordinatorBench) -> None:
    configs = {"retention.ms": "5", "smq.durability": "disk"}
    bench.coordinator.topics.create(NewTopic(name="t", configs=configs), bench.now)


@pytest.mark.parametrize("version", range(1, 5))
def test_a_topic_has_every_config_with_its_source(bench: CoordinatorBench, version: int) -> None:
    result = describe(bench, version, TOPIC, "t")
    assert (result.error_code, result.error_message) == (E.NONE, "")
    configs = {each.name: each for each in result.configs}
    assert configs.keys() == TOPIC_CONFIGS.keys()
    assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("5", 1)
    assert (configs["segment.ms"].value, configs["segment.ms"].config_source) == ("604800000", 5)
    assert not any(each.read_only or each.is_sensitive for each in result.configs)
    assert all(each.synonyms == [] for each in result.configs)
    assert configs["retention.ms"].config_type == (5 if version >= 3 else 0)


def test_synonyms_say_what_would_hold_otherwise(bench: CoordinatorBench) -> None:
    bench.store.commit()
    bench.restart(config={"durability": "memory"})
    result = describe(bench, 1, TOPIC, "t", ["smq.durability", "zzz"], include_synonyms=True)
    [config] = result.configs
    assert [(each.name, each.value, each.source) for each in config.synonyms] == [
        ("smq.durability", "disk", 1),
        ("durability", "memory", 4),
        ("durability", "os", 5),
    ]


def test_kafkas_log_retention_ms_has_no_default(bench: CoordinatorBench) -> None:
    [config] = describe(bench, 4, TOPIC, "t", ["retention.ms"], include_synonyms=True).configs
    assert [(each.name, each.value) for each in config.synonyms] == [("retention.ms", "5")]


def test_a_brokers_setting_holds_where_the_topic_says_nothing(bench: CoordinatorBench) -> None:
    bench.store.commit()
    bench.restart(config={"message_max_bytes": 777_777})
    [config] = describe(bench, 4, TOPIC, "t", ["max.message.bytes"]).configs
    assert (config.value, config.config_source) == ("777777", 4)


@pytest.mark.parametrize("keys", [None, []])
def test_no_keys_are_all_keys(bench: CoordinatorBench, keys: list[str] | None) -> None:
    assert len(describe(bench, 4, TOPIC, "t", keys).configs) == len(TOPIC_CONFIGS)


def test_documentation_comes_when_asked_for(bench: CoordinatorBench) -> None:
    plain = describe(bench, 4, TOPIC, "t", ["retention.ms"])
    full = describe(bench, 4, TOPIC, "t", ["retention.ms"], include_documentation=True)
    assert plain.configs[0].documentation is None
    assert full.configs[0].documentation == TOPIC_CONFIGS["retention.ms"].doc


@pytest.mark.parametrize("version", range(1, 5))
def test_a_broker_tells_its_settings(bench: CoordinatorBench, version: int) -> None:
    bench.store.commit()
    bench.restart(config={"num_partitions": 9})
    result = describe(bench, version, BROKER, "1", include_synonyms=True)
    assert result.error_code == E.NONE
    configs = {each.name: each for each in result.configs}
    assert SETTINGS.keys() < configs.keys()
    assert configs["port"].read_only
    assert not configs["num.partitions"].read_only
    assert (configs["num.partitions"].value, configs["num.partitions"].config_source) == ("9", 4)
    assert [each.value for each in configs["num.partitions"].synonyms] == ["9", "1"]
    assert configs["auto.create.topics.enable"].value == "true"
    assert configs["node.id"].value == "1"
    assert configs["advertised.listeners"].value == "PLAINTEXT://one:9092"
    assert configs["listeners"].value == "PLAINTEXT://127.0.0.1:9092"
    assert configs["log.dirs"].value.endswith("/logs")
    assert configs["default.replication.factor"].value == "1"


def test_for_all_brokers_only_the_replicas_in_sync_are_set(bench: CoordinatorBench) -> None:
    """Data fault 33: as Kafka's controller does."""
    result = describe(bench, 4, BROKER, "")
    assert result.error_code == E.NONE
    found = [(each.name, each.value, each.config_source) for each in result.configs]
    assert found == [("min.insync.replicas", "1", 3)]


@pytest.mark.parametrize(
    ("resource_type", "name", "error"),
    [
        (TOPIC, "none", E.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a b", E.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", E.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", E.INVALID_REQUEST),
        (BROKER, "one", E.INVALID_REQUEST),
        (64, "g", E.INVALID_REQUEST),
        (0, "", E.INVALID_REQUEST),
    ],
)
def test_a_missing_resource_has_an_error_and_no_configs(
    bench: CoordinatorBench, resource_type: int, name: str, error: ErrorCode
) -> None:
    result = describe(bench, 4, resource_type, name)
    assert (result.error_code, result.configs) == (error, [])
