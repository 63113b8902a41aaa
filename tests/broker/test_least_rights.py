"""Our own clients work with exactly the rights that Kafka's clients need, and with no less."""

from collections.abc import Iterator
from itertools import islice

import pytest

import smq
from smq.model.errors import ErrorCode
from smq.testing.smq_broker import SmqBroker
from tests.broker.guarded import address_of, config_of, guarded_broker, new_topic

SECONDS_MAX = 60.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmqBroker]:
    with guarded_broker(tmp_path_factory.mktemp("b")) as broker:
        yield broker


@pytest.fixture
def topic(broker: SmqBroker) -> str:
    return new_topic(broker)


def connected(broker: SmqBroker, user: str) -> smq.Client:
    """A client of this user."""
    return smq.connect(address_of(broker), config=config_of(user))


def test_a_writer_needs_write_and_a_reader_read_of_topic_and_group(
    broker: SmqBroker, topic: str
) -> None:
    with connected(broker, "writer") as client, client.producer() as producer:
        sent = [producer.send(topic, b"%d" % i) for i in range(10)]
        assert all(each.result(SECONDS_MAX).offset >= 0 for each in sent)
    with (
        connected(broker, "reader") as client,
        client.consumer(topic, group=topic, start="earliest") as consumer,
    ):
        read = sorted(int(bytes(record.value or b"")) for record in islice(consumer, 10))
        consumer.commit()
    assert read == list(range(10))


def test_a_client_without_a_right_is_refused(broker: SmqBroker, topic: str) -> None:
    with connected(broker, "reader") as client:
        with pytest.raises(smq.BrokerError) as raised:
            client.producer()
        assert raised.value.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    with connected(broker, "writer") as client, client.consumer() as consumer:
        consumer.assign([(topic, 0)])
        consumer.seek(topic, 0, 0)
        with pytest.raises(smq.BrokerError) as raised:
            consumer.poll(SECONDS_MAX)
        assert raised.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with broker.connect() as client, client.consumer() as consumer:
        consumer.assign([(topic, 0), (topic, 1)])
        assert set(consumer.find("latest").values()) == {0}
