"""Changes of brokers' settings, against a broker."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from smq.client.kafka.admin import topic_configs
from smq.client.kafka.cluster import Cluster
from smq.client.kafka.config_changes import ALL_BROKERS, alter_broker, changed_settings
from smq.client.kafka.offsets import EARLIEST, resolve
from smq.model.errors import BrokerError, ErrorCode
from smq.testing.smq_broker import SmqBroker
from tests.app.fake_broker import eventually

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SmqBroker]:
    settings = {"shards": "2", "seal.ms": "600000", "log.retention.check.interval.ms": "600000"}
    with SmqBroker(tmp_path, settings) as broker:
        yield broker


def start_of(cluster: Cluster) -> int:
    return resolve(cluster, "t", [0], EARLIEST)[0]


def changed(cluster: Cluster, name: str) -> dict[str, str | None]:
    """What was changed, beside what Kafka, too, shows as changed from the start."""
    found = [each for each in changed_settings(cluster, name) if each.config_source in {2, 3}]
    return {each.name: each.value for each in found if each.name != "min.insync.replicas"}


def test_changes_take_effect_without_a_restart_and_outlive_one(broker: SmqBroker) -> None:
    with Cluster(broker.bootstrap) as cluster, broker.connect() as client:
        alter_broker(cluster, ALL_BROKERS, {"num.partitions": "3"}, [])
        assert client.create_topic("t") == 3
        with client.producer() as producer:
            producer.send("t", b"v", partition=0).result(30)
        alter_broker(cluster, "1", {"message.max.bytes": "2000"}, [])
        assert changed(cluster, "1") == {"num.partitions": "3", "message.max.bytes": "2000"}
        assert changed(cluster, "2") == changed(cluster, ALL_BROKERS) == {"num.partitions": "3"}
        with client.producer() as producer:
            eventually(lambda: _is_too_large(producer), "broker 1 refuses a large batch")
        new = {"seal.ms": "1", "log.retention.check.interval.ms": "1", "log.retention.ms": "1"}
        alter_broker(cluster, ALL_BROKERS, new, [])
        eventually(lambda: start_of(cluster) == 1, "retention has deleted it")
        with pytest.raises(BrokerError) as refused:
            alter_broker(cluster, ALL_BROKERS, {"shards": "3"}, [])
        assert refused.value.code == ErrorCode.INVALID_REQUEST
    broker.restart()
    with Cluster(broker.bootstrap) as cluster:
        assert changed(cluster, ALL_BROKERS) == {**new, "num.partitions": "3"}
        found = {each.name: each.value for each in topic_configs(cluster, "t")}
        assert found["retention.ms"] == "1"


def _is_too_large(producer: object) -> bool:
    try:
        producer.send("t", b"v" * 5000, partition=0).result(30)  # type: ignore[attr-defined]
    except BrokerError as refusal:
        return refusal.code == ErrorCode.MESSAGE_TOO_LARGE
    return False
