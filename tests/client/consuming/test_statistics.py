"""Statistics are those of a moment."""

from smq.client.consuming.source.reading import ReadCounts
from smq.client.consuming.statistics import ConsumerStatistics


def test_they_stay_as_they_were_while_the_counts_go_on() -> None:
    counts = ReadCounts(5, 4, 3, 2, 1)
    found = ConsumerStatistics.of(counts, resets=7, rebalances=8)
    counts.records += 1
    assert found == ConsumerStatistics(5, 4, 3, 2, 1, resets=7, rebalances=8)
