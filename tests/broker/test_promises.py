"""Promises that only a whole broker can keep, each tried as its user would."""

import threading
from collections.abc import Iterator

import confluent_kafka
import pytest

from smq.app.process.clock import monotonic_ms, wall_ms
from smq.client.kafka.cluster import Cluster
from smq.model.errors import BrokerError, ErrorCode
from smq.testing import broker as fresh_broker
from smq.testing.smq_broker import SUPERVISOR, SmqBroker
from smq.wire.generated.api_versions import ApiVersionsRequest
from smq.wire.generated.metadata import MetadataRequest
from smq.wire.records import Record, write_batch
from tests.broker.hostile import RawClient
from tests.broker.one_topic import OneTopic

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

STOP_MS_MAX = 5000
LEVELS = ("memory", "os", "disk")


@pytest.fixture
def broker() -> Iterator[SmqBroker]:
    with fresh_broker(shards=2) as broker:
        yield broker


def numbered(number: int) -> bytes:
    return write_batch([Record(0, wall_ms(), None, b"%d" % number)])


def numbers(topic: OneTopic, end: int) -> list[int]:
    return [int(record.value or b"") for record in topic.records(end)]


@pytest.mark.parametrize("version", [0, 3, 4])
def test_every_node_advertises_the_same_versions(broker: SmqBroker, version: int) -> None:
    said = []
    for address in broker.bootstrap.split(","):
        with RawClient(int(address.rpartition(":")[2])) as client:
            message = ApiVersionsRequest(client_software_name="t", client_software_version="1")
            keys = client.ask("ApiVersions", version, message).api_keys
            said.append([(each.api_key, each.min_version, each.max_version) for each in keys])
    assert said[0] == said[1]
    assert len(said[0]) > 20


def test_metadata_names_the_advertised_address() -> None:
    with (
        fresh_broker(shards=2, advertise="queue.example:7000") as broker,
        RawClient(broker.port) as client,
    ):
        nodes = client.ask("Metadata", 12, MetadataRequest(topics=[])).brokers
        assert [(node.node_id, node.host, node.port) for node in nodes] == [
            (1, "queue.example", 7000),
            (2, "queue.example", 7001),
        ]


def test_a_stop_under_load_is_quick_and_keeps_what_was_acknowledged(broker: SmqBroker) -> None:
    acknowledged = list[int]()

    def load(topic: OneTopic) -> None:
        for number in range(1_000_000):
            try:
                answer = topic.produce(numbered(number))
            except BrokerError:  # It has gone.
                return
            if answer.error_code == ErrorCode.NONE:
                acknowledged.append(number)

    with Cluster(broker.bootstrap) as cluster:
        topic = OneTopic(broker, cluster, "t")
        thread = threading.Thread(target=load, args=(topic,))
        thread.start()
        while len(acknowledged) < 100:
            assert thread.is_alive()
        began_ms = monotonic_ms()
        broker.stop()
        assert monotonic_ms() - began_ms < STOP_MS_MAX
        thread.join()
        broker.restart()
        cluster.forget()
        end = topic.offset_at(-1)
        assert numbers(topic, end)[: len(acknowledged)] == acknowledged


def test_each_level_survives_what_it_promises(broker: SmqBroker) -> None:
    with Cluster(broker.bootstrap) as cluster:
        topics = {
            level: OneTopic(broker, cluster, level, {"smq.durability": level}) for level in LEVELS
        }
        end = 0
        for victim in ("shard-1", "shard-2", "coordinator", "sealer", SUPERVISOR):
            for number in range(end, end + 50):
                for topic in topics.values():
                    assert topic.append(numbered(number)) == number
            end += 50
            broker.kill(victim)
            broker.restart()
            cluster.forget()
            for level, topic in topics.items():
                if not (victim == SUPERVISOR and level == "memory"):
                    assert numbers(topic, end) == [*range(end)]


@pytest.mark.clients
def test_groups_and_offsets_survive_the_death_of_every_process(broker: SmqBroker) -> None:
    settings: dict[str, str | bool] = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "g",
        "enable.auto.commit": False,
    }
    with Cluster(broker.bootstrap) as cluster:
        topic = OneTopic(broker, cluster, "t")
        for number in range(10):
            topic.append(numbered(number))
    place = confluent_kafka.TopicPartition("t", 0, 7)
    first = confluent_kafka.Consumer(settings)
    first.commit(offsets=[place], asynchronous=False)
    first.close()
    for victim in ("coordinator", "shard-1", "shard-2", "sealer", SUPERVISOR):
        broker.kill(victim)
        broker.restart()
        again = confluent_kafka.Consumer(settings)
        again.subscribe(["t"])
        message = again.poll(30)
        assert message is not None
        assert message.error() is None
        assert message.value() == b"7"
        again.commit(offsets=[place], asynchronous=False)
        again.close()
