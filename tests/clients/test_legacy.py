"""A client from before Kafka 0.11 and a modern one, both directions, through `legacy.formats`."""

import json
import os
import subprocess
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer

from smq.testing.smq_broker import SmqBroker
from tests.clients import toolchain

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]

COMPRESSIONS = ["None", "gzip", "snappy", "lz4"]
RECORDS, MODERN = 20, ["none", "gzip", "snappy", "lz4", "zstd"]
READ_SECONDS_MAX = 60


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmqBroker]:
    with SmqBroker(tmp_path_factory.mktemp("broker"), {"legacy.formats": "true"}) as started:
        yield started


def produce(broker: SmqBroker, topic: str) -> list[str]:
    """Records of a modern producer, with headers and in each compression."""
    values = []
    for compression in MODERN:
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "compression.type": compression}
        )
        for number in range(RECORDS):
            values.append(f"modern-{compression}-{number}")
            producer.produce(topic, values[-1].encode(), headers={"h": b"not for the old"})
        assert producer.flush(READ_SECONDS_MAX) == 0
    return values


def read(broker: SmqBroker, topic: str, count: int) -> list[tuple[str, bool]]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"modern-{topic}",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    rows: list[tuple[str, bool]] = []
    while len(rows) < count:
        messages = consumer.consume(count - len(rows), READ_SECONDS_MAX)
        assert messages, f"after {len(rows)} of {count} records"
        rows += [((each.value() or b"").decode(), each.key() is not None) for each in messages]
    consumer.close()
    return rows


@pytest.mark.parametrize("version", ["0.9", "0.10", "0.10.1"])
def test_an_old_client_and_a_modern_one_read_what_either_has_written(
    broker: SmqBroker, version: str
) -> None:
    topic = f"old-{version}"
    modern = [(value, False) for value in produce(broker, topic)]
    old = [(f"{each}-{i}", i % 2 == 0) for each in COMPRESSIONS for i in range(RECORDS)]
    everything = modern + old
    program = toolchain.python("old_kafka_python_client")
    done = subprocess.run(
        [*program, broker.bootstrap, topic, version, str(len(everything))],
        env={**os.environ, "PYTHONPATH": str(toolchain.old_kafka_python())},
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout)
    assert [tuple(row) for row in said["rows"]] == everything
    assert said["committed"] == len(everything)
    assert read(broker, topic, len(everything)) == everything
