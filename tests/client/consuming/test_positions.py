"""A consumer begins, stands and goes on where it was told to, on both transports."""

from datetime import UTC, datetime

import pytest

import smq
from smq.testing.smq_broker import SmqBroker
from tests.client.both import client, running, topic
from tests.client.numbered import DAY_MS, RECORDS, fill, numbers

__all__ = ["client", "running", "topic"]  # Fixtures.


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ("earliest", 0),
        (15, 45),
        (datetime.fromtimestamp(12.5 * DAY_MS / 1000, UTC), 39),
        ("latest", RECORDS),
        (datetime.fromtimestamp(10_000 * DAY_MS / 1000, UTC), RECORDS),
    ],
    ids=["earliest", "offset", "time", "latest", "later than all"],
)
def test_a_start_is_a_word_an_offset_or_a_time(
    client: smq.Client, topic: str, start: str | int | datetime, first: int
) -> None:
    fill(client, topic)
    with client.consumer(topic, start=start) as consumer:
        fill(client, topic, 6, RECORDS)
        assert numbers(consumer, RECORDS + 6 - first) == list(range(first, RECORDS + 6))


def test_positions_can_be_asked_moved_and_compared_with_the_end(
    client: smq.Client, topic: str
) -> None:
    fill(client, topic)
    with client.consumer(topic, start="earliest") as consumer:
        assert consumer.assignment() == [(topic, 0), (topic, 1), (topic, 2)]
        assert consumer.lag() == {(topic, each): RECORDS // 3 for each in range(3)}
        numbers(consumer, RECORDS)
        assert [consumer.position(topic, each) for each in range(3)] == [RECORDS // 3] * 3
        consumer.seek(topic, 1, 17)
        consumer.seek(topic, 2, "latest")
        assert consumer.lag() == {(topic, 0): 0, (topic, 1): 3, (topic, 2): 0}
        assert numbers(consumer, 3) == [52, 55, 58]
        consumer.seek(topic, 0, datetime.fromtimestamp(18 * DAY_MS / 1000, UTC))
        assert numbers(consumer, 2) == [54, 57]
        with pytest.raises(ValueError, match="is not assigned"):
            consumer.position(topic, 3)


def test_a_paused_partition_gives_nothing_until_it_is_resumed(
    client: smq.Client, topic: str
) -> None:
    fill(client, topic)
    with client.consumer(topic, start="earliest") as consumer:
        consumer.pause(topic, 1)
        assert [each % 3 for each in numbers(consumer, RECORDS * 2 // 3)].count(1) == 0
        with consumer.poll(0.05) as batch:
            assert not batch
        consumer.seek(topic, 1, 10)
        consumer.resume(topic, 1)
        assert numbers(consumer, 10) == list(range(31, RECORDS, 3))


def test_times_become_offsets(client: smq.Client, topic: str) -> None:
    fill(client, topic)
    with client.consumer(topic) as consumer:
        found = consumer.offsets_for_times(
            {
                (topic, 0): 0,
                (topic, 1): datetime.fromtimestamp(5 * DAY_MS / 1000, UTC),
                (topic, 2): 10**15,
            }
        )
        assert found == {(topic, 0): 0, (topic, 1): 5, (topic, 2): None}


def test_partitions_can_be_chosen(client: smq.Client, topic: str) -> None:
    fill(client, topic)
    with client.consumer(start="earliest") as consumer:
        consumer.assign([(topic, 2)])
        assert numbers(consumer, RECORDS // 3) == list(range(2, RECORDS, 3))
        consumer.assign([(topic, 0), (topic, 1)])
        assert consumer.assignment() == [(topic, 0), (topic, 1)]
        assert len(numbers(consumer, RECORDS * 2 // 3)) == RECORDS * 2 // 3
        with pytest.raises(smq.BrokerError, match="has no partition 3"):
            consumer.assign([(topic, 3)])


def test_an_offset_out_of_range_resets_or_raises(client: smq.Client, topic: str) -> None:
    fill(client, topic)
    with client.consumer(topic, start="earliest") as consumer:
        consumer.seek(topic, 0, 99)
        assert numbers(consumer, RECORDS) == list(range(RECORDS))
        assert consumer.statistics().resets == 1
    told = "has no offset 99: its records are from 0 up to"
    with client.consumer(topic, start=99) as consumer, pytest.raises(smq.BrokerError, match=told):
        consumer.poll(5)


def test_partitions_that_a_topic_gets_are_read_from_their_beginning(
    client: smq.Client, topic: str, running: SmqBroker
) -> None:
    with (
        running.connect(transport=client.transport, metadata_max_age_s=1e-6) as quick,
        quick.consumer(topic) as consumer,  # From the end: what is new is all news.
    ):
        client.delete_topic(topic)  # As nothing can add partitions yet: a new one has more.
        client.create_topic(topic, 5)
        with client.producer() as producer:
            for partition in (3, 4):
                producer.send(topic, b"%d" % partition, partition=partition)
        assert numbers(consumer, 2) == [3, 4]
        assert len(consumer.assignment()) == 5
        consumer.assign([(topic, 0)])
        consumer.poll(0)
        assert consumer.assignment() == [(topic, 0)], "who has chosen gets no others"


def test_a_partition_that_is_assigned_twice_is_read_once(client: smq.Client, topic: str) -> None:
    with client.consumer(start="earliest") as consumer:
        consumer.assign([(topic, 0), (topic, 0)])
        assert consumer.assignment() == [(topic, 0)]


def test_a_partition_that_is_new_to_the_consumer_can_be_assigned(
    client: smq.Client, topic: str
) -> None:
    with client.consumer(topic, start="earliest") as consumer:
        client.delete_topic(topic)
        client.create_topic(topic, 4)
        with client.producer() as producer:
            producer.send(topic, b"7", partition=3)
        consumer.assign([(topic, 3)])
        assert numbers(consumer, 1) == [7]


def test_places_become_offsets(client: smq.Client, topic: str) -> None:
    fill(client, topic, 9)
    with client.consumer(topic) as consumer:
        assert consumer.find("earliest") == {(topic, each): 0 for each in range(3)}
        assert consumer.find("latest") == {(topic, each): 3 for each in range(3)}
        assert consumer.find(2) == {(topic, each): 2 for each in range(3)}
        time = datetime.fromtimestamp(DAY_MS / 1000, UTC)
        assert consumer.find(time) == {(topic, each): 1 for each in range(3)}
        consumer.assign([(topic, 1)])
        assert consumer.find("latest") == {(topic, 1): 3}
