"""A topic that is deleted and created again is another one: the same of it on both transports."""

import time
from itertools import count
from typing import Any

import pytest

import smq
from tests.client.both import WAIT_SECONDS, client, running, topic

__all__ = ["client", "running", "topic"]  # Fixtures.

pytestmark = pytest.mark.slow  # A broker is started.
OLD, NEW = range(60), range(1000, 1120)
GROUP: dict[str, Any] = {"start": "earliest", "auto_commit_s": 60}


def fill(client: smq.Client, topic: str, numbers: range) -> None:
    """Records in three partitions, in turns."""
    with client.producer() as producer:
        for at, number in enumerate(numbers):
            producer.send(topic, b"%d" % number, partition=at % 3)


def create_again(client: smq.Client, topic: str) -> None:
    client.delete_topic(topic)
    client.create_topic(topic, 3)


def read(consumer: smq.Consumer, wanted: int) -> list[int]:
    """The numbers of so many records, or of what comes with them."""
    found: list[int] = []
    deadline = time.monotonic() + WAIT_SECONDS
    while len(found) < wanted:
        assert time.monotonic() < deadline, f"{len(found)} of {wanted} records came"
        with consumer.poll(1) as batch:
            found += [int(bytes(record.value or b"")) for record in batch]
    return sorted(found)


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_it_is_read_from_its_beginning(client: smq.Client, topic: str, start: str) -> None:
    with client.consumer(topic, start=start) as consumer:
        fill(client, topic, OLD)
        assert read(consumer, len(OLD)) == [*OLD]
        consumer.pause(topic, 2)
        create_again(client, topic)
        fill(client, topic, NEW)
        assert read(consumer, 80) == [each for at, each in enumerate(NEW) if at % 3 < 2]
        consumer.resume(topic, 2)
        assert read(consumer, 40) == [*NEW[2::3]]
        assert consumer.statistics().resets == 3


def test_a_consumer_that_raised_no_such_topic_reads_the_new_topic_from_start(
    client: smq.Client, topic: str
) -> None:
    with client.consumer(topic, start="earliest") as consumer:
        fill(client, topic, OLD)
        assert read(consumer, len(OLD)) == [*OLD]
        client.delete_topic(topic)
        with pytest.raises(smq.NoSuchTopic):
            consumer.poll(WAIT_SECONDS)
        client.create_topic(topic, 3)
        fill(client, topic, NEW)
        assert read(consumer, len(NEW)) == [*NEW]


def test_a_consumer_that_began_at_an_offset_raises_for_the_new_topic(
    client: smq.Client, topic: str
) -> None:
    fill(client, topic, OLD)
    with client.consumer(start=5) as consumer:
        consumer.assign([(topic, 0)])
        assert read(consumer, 15) == [*OLD[15::3]]
        create_again(client, topic)
        fill(client, topic, NEW)
        for _ in range(2):
            with pytest.raises(smq.BrokerError, match=f"topic {topic} was deleted and created"):
                consumer.poll(WAIT_SECONDS)
        consumer.seek(topic, 0, 38)
        assert read(consumer, 2) == [*NEW[114::3]]


def test_a_consumer_with_topic_ids_raises_for_the_new_topic(client: smq.Client, topic: str) -> None:
    fill(client, topic, OLD)
    with client.consumer(start="earliest", topic_ids=client.topic_ids()) as consumer:
        consumer.assign([(topic, 0)])
        assert read(consumer, 20) == [*OLD[::3]]
        create_again(client, topic)
        fill(client, topic, NEW)
        for _ in range(2):
            with pytest.raises(smq.NoSuchTopic, match=f"topic {topic} was deleted and created"):
                consumer.poll(WAIT_SECONDS)
            consumer.seek(topic, 0, 3)


def test_a_seek_or_assign_after_the_topic_was_created_again_is_obeyed(
    client: smq.Client, topic: str
) -> None:
    fill(client, topic, OLD)
    with client.consumer(topic, start="earliest") as consumer:
        assert read(consumer, len(OLD)) == [*OLD]
        create_again(client, topic)
        fill(client, topic, NEW)
        for partition in range(3):
            consumer.seek(topic, partition, 30)
        assert read(consumer, 30) == [*NEW[90:]]
        create_again(client, topic)
        fill(client, topic, NEW)
        consumer.assign([(topic, 1)])
        assert read(consumer, 40) == [*NEW[1::3]]
        assert consumer.statistics().resets == 0


def test_committed_offsets_are_deleted_with_their_topic(client: smq.Client, topic: str) -> None:
    with client.consumer(topic, group=topic, **GROUP) as consumer:
        fill(client, topic, OLD)
        assert read(consumer, len(OLD)) == [*OLD]
        consumer.commit()
        create_again(client, topic)
        assert consumer.committed() == {}
        fill(client, topic, OLD)
        assert read(consumer, len(OLD)) == [*OLD]
    with client.consumer(topic, group=topic, **GROUP) as consumer:  # It committed at its end.
        fill(client, topic, NEW)
        assert read(consumer, len(NEW)) == [*NEW]


def test_a_producer_goes_on_with_it(client: smq.Client, topic: str) -> None:
    with client.producer() as producer, client.consumer(topic, start="earliest") as consumer:
        numbers = count()
        for _ in range(3):
            sent = [producer.send(topic, b"%d" % next(numbers), partition=0) for _ in range(30)]
            assert [each.result(WAIT_SECONDS).offset for each in sent] == [*range(30)]
            create_again(client, topic)
            for at, number in enumerate(news := [next(numbers) for _ in range(5)]):
                sent_one = producer.send(topic, b"%d" % number, partition=0)
                assert sent_one.result(WAIT_SECONDS).offset == at
            assert read(consumer, 5) == news
            create_again(client, topic)
