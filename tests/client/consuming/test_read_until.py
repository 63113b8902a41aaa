"""Reading up to some offsets ends there, and leaves the consumer as it was."""

from collections.abc import Iterator
from itertools import islice

import pytest

import smq
from tests.client.both import client, running, topic

__all__ = ["client", "running", "topic"]  # Fixtures.

RECORDS = 60


def fill(client: smq.Client, topic: str) -> None:
    """So many records in three partitions, numbered as their offsets."""
    with client.producer() as producer:
        for number in range(RECORDS):
            producer.send(topic, b"", partition=number % 3)


@pytest.fixture
def consumer(client: smq.Client, topic: str) -> Iterator[smq.Consumer]:
    fill(client, topic)
    with client.consumer(topic, start="earliest") as opened:
        yield opened


def places(records: Iterator[smq.Record]) -> list[tuple[int, int]]:
    return sorted((record.partition, record.offset) for record in records)


def every(partition: int, first: int, end: int) -> list[tuple[int, int]]:
    return [(partition, offset) for offset in range(first, end)]


def test_it_ends_there(consumer: smq.Consumer, topic: str) -> None:
    ends = {(topic, 0): 4, (topic, 2): 0}
    assert places(consumer.read_until(ends)) == every(0, 0, 4)
    assert [consumer.position(topic, each) for each in range(3)] == [4, 0, 0]


def test_the_consumer_goes_on_behind_it(
    client: smq.Client, consumer: smq.Consumer, topic: str
) -> None:
    assert len(places(consumer.read_until(consumer.find("latest")))) == RECORDS
    fill(client, topic)
    assert len(places(consumer.read_until(consumer.find("latest")))) == RECORDS
    fill(client, topic)
    assert places(islice(consumer, RECORDS)) == [
        each for partition in range(3) for each in every(partition, 40, 60)
    ]


@pytest.mark.parametrize("taken", [0, 1, 3, 4])
def test_records_left_by_read_until_come_with_the_next_poll(
    consumer: smq.Consumer, topic: str, taken: int
) -> None:
    reading = consumer.read_until({(topic, 0): 4})
    found = places(islice(reading, taken))
    reading.close()
    assert found == every(0, 0, taken)
    rest = places(islice(consumer, RECORDS - taken))
    assert rest == every(0, taken, 20) + every(1, 0, 20) + every(2, 0, 20)


def test_read_until_reads_a_paused_partition_and_pauses_it_again(
    consumer: smq.Consumer, topic: str
) -> None:
    consumer.pause(topic, 0)
    consumer.pause(topic, 1)
    assert places(consumer.read_until({(topic, 0): 7})) == every(0, 0, 7)
    assert places(islice(consumer, 20)) == every(2, 0, 20)
    assert not consumer.poll(0.05)
    consumer.resume(topic, 0)
    consumer.resume(topic, 1)
    assert places(islice(consumer, 33)) == every(0, 7, 20) + every(1, 0, 20)


def test_a_partition_paused_during_read_until_is_paused_afterwards(
    consumer: smq.Consumer, topic: str
) -> None:
    found = []
    for record in consumer.read_until({(topic, 0): 7, (topic, 1): 3}):
        found.append((record.partition, record.offset))
        consumer.pause(topic, 0)
    assert sorted(found) == every(0, 0, 7) + every(1, 0, 3)
    assert places(islice(consumer, 37)) == every(1, 3, 20) + every(2, 0, 20)
    assert not consumer.poll(0.05)


def test_a_partition_resumed_during_read_until_is_read_afterwards(
    consumer: smq.Consumer, topic: str
) -> None:
    for partition in range(3):
        consumer.pause(topic, partition)
    found = []
    for record in consumer.read_until({(topic, 0): 7}):
        found.append((record.partition, record.offset))
        consumer.resume(topic, 0)
        consumer.resume(topic, 1)
    assert found == every(0, 0, 7)
    assert places(islice(consumer, 33)) == every(0, 7, 20) + every(1, 0, 20)
    assert not consumer.poll(0.05)


def test_read_until_does_not_move_a_position_past_the_end(
    consumer: smq.Consumer, topic: str
) -> None:
    consumer.seek(topic, 0, 9)
    assert places(consumer.read_until({(topic, 0): 4, (topic, 1): 2})) == every(1, 0, 2)
    assert consumer.position(topic, 0) == 9
