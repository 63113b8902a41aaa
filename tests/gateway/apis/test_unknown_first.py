"""Rows about committed offsets stand in Kafka's order."""

from gateway.apis.unknown_first import unknown_first
from smq.wire.generated.offset_delete import (
    OffsetDeleteResponsePartition as Row,
    OffsetDeleteResponseTopic as Topic,
)


def shown(*topics: tuple[str, dict[int, int]]) -> list[tuple[str, list[int]]]:
    given = [
        Topic(
            name=name,
            partitions=[Row(partition_index=i, error_code=code) for i, code in codes.items()],
        )
        for name, codes in topics
    ]
    found = unknown_first(given)
    return [(each.name, [row.partition_index for row in each.partitions]) for each in found]


def test_partitions_that_are_not_there_come_first() -> None:
    """Data fault 37."""
    assert shown(("t", {0: 0, 9: 3, 1: 0, 8: 3, 2: 86})) == [("t", [9, 8, 0, 1, 2])]


def test_topics_with_a_partition_that_is_not_there_come_first() -> None:
    """Data fault 37."""
    asked = ("a", {0: 0}), ("b", {0: 0, 1: 3}), ("c", {0: 0}), ("d", {0: 100})
    assert [name for name, _ in shown(*asked)] == ["b", "d", "a", "c"]


def test_a_topic_that_is_named_twice_is_one_row_once_something_is_not_there() -> None:
    """Data fault 37."""
    asked = ("a", {0: 0}), ("b", {0: 0}), ("a", {1: 3, 2: 0})
    assert shown(*asked) == [("a", [1, 0, 2]), ("b", [0])]
    good = ("a", {0: 0}), ("b", {0: 0}), ("a", {1: 0})
    assert shown(*good) == [("a", [0]), ("b", [0]), ("a", [1])]
