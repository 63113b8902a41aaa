"""The settings of brokers: values and their sources."""

from dataclasses import replace
from typing import Any

from gateway.apis.configs.brokers import _entry, _listeners
from gateway.apis.configs.entries import Layers
from gateway.apis.configs.kinds import Resource
from smq.model.catalog import Node
from smq.model.config import SETTINGS, Config
from smq.model.config_values import ConfigType
from smq.model.errors import ErrorCode
from tests.gateway.apis.configs.config_asker import APPEND, DELETE, SET, change, describe
from tests.gateway.coordinator_bench import CoordinatorBench

BROKER = Resource.BROKER


def test_a_value_says_where_it_is_from(bench: CoordinatorBench) -> None:
    assert describe(bench, BROKER, "1")["seal.ms"] == ("600000", 5, [("600000", 5)])
    assert change(bench, BROKER, "", ("seal.ms", SET, "5")) == (0, None)
    assert change(bench, BROKER, "1", ("seal.ms", SET, "7")) == (0, None)
    assert describe(bench, BROKER, "1")["seal.ms"] == ("7", 2, [("7", 2), ("5", 3), ("600000", 5)])
    assert describe(bench, BROKER, "2", 2)["seal.ms"] == ("5", 3, [("5", 3), ("600000", 5)])
    assert describe(bench, BROKER, "") == {"seal.ms": ("5", 3, [("5", 3)])}
    assert change(bench, BROKER, "1", ("seal.ms", DELETE, None)) == (0, None)
    assert describe(bench, BROKER, "1")["seal.ms"] == ("5", 3, [("5", 3), ("600000", 5)])
    assert describe(bench, BROKER, "1")["shards"] == ("2", 4, [("2", 4), ("0", 5)])


def test_a_node_is_changed_by_its_id_only_where_it_is_asked(bench: CoordinatorBench) -> None:
    for name in ("2", "x", "\u0661"):
        code, _ = change(bench, BROKER, name, ("seal.ms", SET, "5"))
        assert code == ErrorCode.INVALID_REQUEST
    assert change(bench, BROKER, "2", ("seal.ms", SET, "5"), node_id=2) == (0, None)


def test_a_secret_setting_is_described_without_its_value() -> None:
    """Door fault 7: any client could read a webhook's token."""
    secrets = [each for each in SETTINGS.values() if each.secret]
    assert {each.name for each in secrets} >= {"lag.alert.webhook", "iceberg.catalog.uri"}
    values: dict[str, Any] = {each.key: "http://x/t0ken" for each in secrets}
    started = replace(Config(), **values)
    for each in secrets:
        entry = _entry(each, getattr(started, each.key), Layers(started, {}, "1"))
        assert (entry.value, entry.is_sensitive) == (None, True)
        assert entry.config_type == ConfigType.PASSWORD
        assert [like.value for like in entry.synonyms] == [None, each.default]


def test_a_webhook_is_set_at_the_start_only(bench: CoordinatorBench) -> None:
    """Door fault 11: any client could have the broker post to any host."""
    code, sentence = change(bench, BROKER, "", ("lag.alert.webhook", SET, "http://10.0.0.1/"))
    assert code == ErrorCode.INVALID_REQUEST
    assert "needs a restart" in sentence


def test_changing_a_setting_that_needs_a_restart_is_refused(bench: CoordinatorBench) -> None:
    code, sentence = change(bench, BROKER, "", ("ring.bytes", SET, "5"), ("seal.ms", SET, "5"))
    assert code == ErrorCode.INVALID_REQUEST
    assert "needs a restart" in sentence
    assert describe(bench, BROKER, "") == {}
    assert change(bench, BROKER, "", ("seal.ms", APPEND, "5"))[0] == ErrorCode.INVALID_CONFIG


def test_a_node_tells_all_its_listeners() -> None:
    config = Config(
        shards=2,
        listeners="PLAINTEXT://127.0.0.1:9092,SASL_SSL://0.0.0.0:9192",
        advertised_listeners="SASL_SSL://queue.example:7000",
    )
    listening, advertised = _listeners(Node(2, "127.0.0.1", 9093, 0), config)
    assert listening == "PLAINTEXT://127.0.0.1:9093,SASL_SSL://0.0.0.0:9193"
    assert advertised == "PLAINTEXT://127.0.0.1:9093,SASL_SSL://queue.example:7001"


def test_a_node_asked_through_a_unix_socket_tells_its_other_listeners() -> None:
    config = Config(shards=2, port=9092, advertise="queue.example:7000")
    listening, advertised = _listeners(Node(2, "/run/smq/kafka-2.sock", 0, 0), config)
    assert listening == "PLAINTEXT://127.0.0.1:9093"
    assert advertised == "PLAINTEXT://queue.example:7001"
