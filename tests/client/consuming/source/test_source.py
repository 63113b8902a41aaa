"""Whose position it is: that of one topic, and of no other with its name."""

from uuid import UUID

from smq.client.consuming.source.source import Partition
from smq.client.names import TopicPartition
from smq.wire.codec import ZERO_UUID

OLD, NEW = UUID(int=1), UUID(int=2)


def test_a_position_is_in_the_first_topic_that_is_seen() -> None:
    partition = Partition(TopicPartition("t", 0), 5)
    assert partition.is_in(OLD)
    assert not partition.is_in(NEW)
    assert partition.is_in(OLD)


def test_a_partition_without_topic_ids_is_in_every_topic_of_its_name() -> None:
    partition = Partition(TopicPartition("t", 0), 5)
    assert partition.is_in(ZERO_UUID)
    assert partition.is_in(OLD)
    assert partition.is_in(ZERO_UUID)
    assert partition.is_in(NEW)
