"""From any place to any place, over leaders that move."""

from itertools import islice

import pytest

from smq.client.cluster import Cluster
from smq.client.consumer import EARLIEST, LATEST, Consumer, Place, resolve
from smq.client.line_producer import Producer
from smq.model.errors import BrokerError, ErrorCode
from tests.client.fake_kafka import FakeKafka


def fill(cluster: Cluster, per_partition: int, partitions: int = 2, batch: int = 3) -> None:
    producer = Producer(cluster, "a")
    for number in range(per_partition):
        for partition in range(partitions):
            producer.add(b"%d-%d" % (partition, number), 1000 + number, partition=partition)
        if number % batch == batch - 1:
            producer.flush()
    producer.flush()


def read(cluster: Cluster, starts: dict[int, int], ends: dict[int, int]) -> list[bytes]:
    return sorted(record.value or b"" for _, record in Consumer(cluster, "a", starts).read(ends))


def test_places_become_offsets(kafka: FakeKafka, cluster: Cluster) -> None:
    kafka.add_topic("a", 2)
    fill(cluster, 10)
    assert resolve(cluster, "a", [0, 1], EARLIEST) == {0: 0, 1: 0}
    assert resolve(cluster, "a", [0, 1], LATEST) == {0: 10, 1: 10}
    assert resolve(cluster, "a", [1], Place(offset=7)) == {1: 7}
    assert resolve(cluster, "a", [0, 1], Place(timestamp=1004)) == {0: 4, 1: 4}
    assert resolve(cluster, "a", [0, 1], Place(timestamp=9999)) == {0: 10, 1: 10}


def test_records_are_read_from_the_middle_of_a_batch_to_the_middle_of_another(
    kafka: FakeKafka, cluster: Cluster
) -> None:
    kafka.add_topic("a", 2)
    fill(cluster, 10)
    expected = [b"0-%d" % each for each in range(1, 8)] + [b"1-5"]
    assert read(cluster, {0: 1, 1: 5}, {0: 8, 1: 6}) == expected
    assert read(cluster, {0: 5}, {0: 5}) == []


def test_an_iterator_left_early_has_taken_what_it_gave(kafka: FakeKafka, cluster: Cluster) -> None:
    kafka.add_topic("a", 1)
    fill(cluster, 10, partitions=1)
    consumer = Consumer(cluster, "a", {0: 0})
    assert len(list(islice(consumer.read(), 4))) == 4
    assert consumer.offsets == {0: 4}
    assert next(consumer.read())[1].offset == 4


def test_following_waits_for_records_to_come(kafka: FakeKafka, cluster: Cluster) -> None:
    kafka.add_topic("a", 1)
    following = Consumer(cluster, "a", {0: 0}).read()
    with Cluster(kafka.bootstrap) as other:
        for number in range(3):
            producer = Producer(other, "a")
            producer.add(b"%d" % number, 0)
            producer.flush()
            assert next(following)[1].value == b"%d" % number


def test_reading_goes_on_over_lost_connections_and_leaders_that_move(
    kafka: FakeKafka, cluster: Cluster
) -> None:
    partitions = kafka.add_topic("a", 2)
    fill(cluster, 9)
    kafka.faults["Fetch"] += ["close", ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE]
    partitions[0].leader = 2
    assert len(read(cluster, {0: 0, 1: 0}, {0: 9, 1: 9})) == 18


def test_an_offset_that_does_not_exist_is_told_with_those_that_do(
    kafka: FakeKafka, cluster: Cluster
) -> None:
    kafka.add_topic("a", 1)
    fill(cluster, 10, partitions=1)
    with pytest.raises(BrokerError, match="a-0 has no offset 11: its records are from 0 up to 10"):
        read(cluster, {0: 11}, {0: 12})
