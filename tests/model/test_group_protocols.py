"""Which groups' assignments can be read."""

from smq.model.group_protocols import CONSUMER, SEAWEEDMQ, assigns_partitions


def test_assignments_of_consumers_and_of_seaweedmqs_subscribers_are_partitions() -> None:
    assert [assigns_partitions(each) for each in (CONSUMER, SEAWEEDMQ, "connect", None)] == [
        True,
        True,
        False,
        False,
    ]
