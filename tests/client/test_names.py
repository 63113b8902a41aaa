"""Names that all of the SDK shares."""

from smq.client.names import TopicPartition, by_topic


def test_partitions_by_topic() -> None:
    names = [TopicPartition("a", 1), TopicPartition("b", 0), TopicPartition("a", 0)]
    assert by_topic(names) == {"a": [1, 0], "b": [0]}
