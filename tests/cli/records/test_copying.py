"""Lanes of a copy; tests/cli/records/test_copy.py runs whole copies."""

from smq.cli.records.copying import PartitionCopy


def test_a_lane_is_done_at_the_end_that_the_source_had() -> None:
    lane = PartitionCopy(partition=0, position=4, end=5, destination=0, acknowledged=4)
    assert not lane.is_done
    lane.position = 5
    assert lane.is_done
