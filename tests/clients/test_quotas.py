"""Quotas as librdkafka sees them: rates are kept, and answers say how long to wait."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from smq.testing.smq_broker import SmqBroker
from smq.wire.generated.alter_client_quotas import AlterClientQuotasRequest
from tests.broker.users import add_users
from tests.oracle.dialogues.quotas import Part, entry
from tests.oracle.talk import Talk

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]

VALUE = b"x" * 10_000
COUNT = 60
PRODUCE_RATE, FETCH_RATE = 200_000, 300_000
TWICE_S_MIN = COUNT * len(VALUE) / PRODUCE_RATE - 1  # The last batches are answered at once.


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SmqBroker]:
    with SmqBroker(tmp_path) as broker:
        yield broker


def limit(broker: SmqBroker, parts: list[Part], *ops: tuple[str, float | None]) -> None:
    talk = Talk(broker.port, "quotas", 1)
    answer = talk.quietly(AlterClientQuotasRequest(entries=[entry(parts, *ops)]))
    talk.close()
    assert [each.error_code for each in answer.entries] == [0]


def produce(broker: SmqBroker, client_id: str, **login: object) -> int:
    """The longest throttle time that was reported."""
    told: list[int] = []

    def statistics(text: str) -> None:
        brokers = json.loads(text)["brokers"].values()
        told.extend(each["throttle"]["max"] for each in brokers)

    settings: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap,
        "client.id": client_id,
        "batch.size": 20_000,
        "statistics.interval.ms": 200,
        "stats_cb": statistics,
        **login,
    }
    producer = Producer(settings)
    for _ in range(COUNT):
        producer.produce("t", VALUE)
        producer.poll(0)
    assert producer.flush(120) == 0
    producer.poll(0.5)  # The last statistics.
    return max(told, default=0)


def consume(broker: SmqBroker, client_id: str, count: int) -> float:
    """How long it takes to read so many, from the first on."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": client_id,
            "group.id": client_id,
            "auto.offset.reset": "earliest",
            "message.max.bytes": 50_000,
            "fetch.max.bytes": 50_000,
            "max.partition.fetch.bytes": 50_000,
        }
    )
    consumer.subscribe(["t"])
    seen, begun, deadline = 0, 0.0, time.monotonic() + 120
    while seen < count and time.monotonic() < deadline:
        seen += len([each for each in consumer.consume(10, 1.0) if each.error() is None])
        begun = begun or (time.monotonic() if seen else 0.0)
    took_s = time.monotonic() - begun
    consumer.close()
    assert seen >= count
    return took_s


def test_rates_of_a_client_are_kept_and_others_are_as_fast_as_ever(broker: SmqBroker) -> None:
    slow: list[Part] = [("client-id", "slow")]
    limit(broker, slow, ("producer_byte_rate", PRODUCE_RATE), ("consumer_byte_rate", FETCH_RATE))
    assert produce(broker, "fast") == 0
    begun = time.monotonic()
    produce(broker, "slow")  # It is answered at once, and owes what is above a second's worth.
    assert produce(broker, "slow") > 0
    assert time.monotonic() - begun > TWICE_S_MIN
    assert consume(broker, "slow", 2 * COUNT) > 2 * COUNT * len(VALUE) / FETCH_RATE - 2.5
    limit(broker, slow, ("producer_byte_rate", None), ("consumer_byte_rate", None))
    assert produce(broker, "slow") == 0


def test_a_client_that_logs_in_has_the_quotas_of_its_user(tmp_path: Path) -> None:
    listeners = {"LOGINS": "SASL_PLAINTEXT"}
    with SmqBroker(tmp_path, listeners=listeners) as broker:
        add_users(broker.bootstrap, {"ann": "a word", "ben": "a word"})
        limit(broker, [("user", "ann")], ("producer_byte_rate", PRODUCE_RATE))

        def produce_as(user: str) -> int:
            return produce(
                broker,
                "one id",
                **{
                    "bootstrap.servers": f"127.0.0.1:{broker.port_of('LOGINS')}",
                    "security.protocol": "SASL_PLAINTEXT",
                    "sasl.mechanism": "SCRAM-SHA-256",
                    "sasl.username": user,
                    "sasl.password": "a word",
                },
            )

        begun = time.monotonic()
        produce_as("ann")
        assert produce_as("ann") > 0
        assert time.monotonic() - begun > TWICE_S_MIN
        assert produce_as("ben") == produce(broker, "one id") == 0


def test_a_client_without_a_login_is_the_anonymous_user(broker: SmqBroker) -> None:
    limit(broker, [("user", "ANONYMOUS")], ("producer_byte_rate", PRODUCE_RATE))
    begun = time.monotonic()
    produce(broker, "anybody")
    assert produce(broker, "somebody else") > 0
    assert time.monotonic() - begun > TWICE_S_MIN
