"""Nothing lost, nothing doubled, keys where they belong."""

import pytest

from smq.client.cluster import Cluster
from smq.client.errors import NoSuchTopic
from smq.client.line_producer import BATCH_BYTES, Producer
from smq.model.errors import BrokerError, ErrorCode
from smq.model.partitioner import partition_of_key
from smq.wire.compression import Codec
from tests.client.fake_kafka import FakeKafka


def values(kafka: FakeKafka, topic: str = "a") -> list[list[bytes]]:
    return [[record.value for record in each.records()] for each in kafka.topics[topic]]


def test_records_keep_their_fields(kafka: FakeKafka, cluster: Cluster) -> None:
    (partition,) = kafka.add_topic("a")
    producer = Producer(cluster, "a", Codec.ZSTD)
    producer.add(b"value", 42, key=b"key", headers=((b"h", b"1"), (b"n", None)))
    producer.add(None, 43)
    producer.flush()
    one, two = partition.records()
    assert one == (0, 42, b"key", b"value", ((b"h", b"1"), (b"n", None)))
    assert two == (1, 43, None, None, ())
    assert (producer.acknowledged, producer.next_offsets) == (2, {0: 2})


def test_keys_go_to_kafkas_partition_and_others_stay_together(
    kafka: FakeKafka, cluster: Cluster
) -> None:
    partitions = kafka.add_topic("a", 4)
    producer = Producer(cluster, "a")
    for number in range(100):
        producer.add(b"", number, key=b"%d" % number)
    producer.flush()
    for index, partition in enumerate(partitions):
        assert {partition_of_key(each.key, 4) for each in partition.records()} == {index}
    for _ in range(10):
        producer.add(b"keyless", 0)
    producer.flush()
    assert sum(b"keyless" in each for each in values(kafka)) == 1


def test_a_full_batch_is_sent_without_a_flush(kafka: FakeKafka, cluster: Cluster) -> None:
    (partition,) = kafka.add_topic("a")
    producer = Producer(cluster, "a")
    producer.add(bytes(BATCH_BYTES), 0)
    assert partition.end == producer.acknowledged == 1


@pytest.mark.parametrize("fault", ["close", "close after"])
def test_a_lost_answer_neither_loses_nor_doubles_records(
    kafka: FakeKafka, cluster: Cluster, fault: str
) -> None:
    kafka.add_topic("a", 2)
    producer = Producer(cluster, "a")
    for number in range(6):
        kafka.faults["Produce"] += [fault] if number % 2 else []
        producer.add(b"%d" % number, 0, partition=number % 2)
        producer.flush()
    assert values(kafka) == [[b"0", b"2", b"4"], [b"1", b"3", b"5"]]
    assert producer.acknowledged == 6


def test_records_follow_a_leader_that_moves(kafka: FakeKafka, cluster: Cluster) -> None:
    (partition,) = kafka.add_topic("a")
    producer = Producer(cluster, "a")
    for node in (1, 2, 1):
        partition.leader = node
        producer.add(b"%d" % node, 0)
        producer.flush()
    assert values(kafka) == [[b"1", b"2", b"1"]]


def test_what_is_refused_for_good_is_told(kafka: FakeKafka, cluster: Cluster) -> None:
    kafka.add_topic("a")
    producer = Producer(cluster, "a")
    kafka.faults["Produce"].append(ErrorCode.MESSAGE_TOO_LARGE)
    producer.add(b"large", 0)
    with pytest.raises(BrokerError) as raised:
        producer.flush()
    assert raised.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert producer.acknowledged == 0


def test_one_partitions_refusal_does_not_forget_the_others(
    kafka: FakeKafka, cluster: Cluster
) -> None:
    partitions = kafka.add_topic("a", 2)
    producer = Producer(cluster, "a")
    partitions[1].leader = 1
    cluster.topic("a")
    partitions[1].leader = 2  # The first request finds one leader and one that is none any more.
    for number in range(2):
        producer.add(b"%d" % number, 0, partition=number)
    producer.flush()
    assert values(kafka) == [[b"0"], [b"1"]]


def test_a_topic_that_does_not_exist_is_told_at_once(cluster: Cluster) -> None:
    with pytest.raises(NoSuchTopic):
        Producer(cluster, "nope")


def test_an_empty_flush_asks_nothing(kafka: FakeKafka, cluster: Cluster) -> None:
    kafka.add_topic("a")
    Producer(cluster, "a").flush()
    assert not [name for _, name in kafka.requests if name == "Produce"]
