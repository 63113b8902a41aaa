"""Latencies."""

from hdrh.histogram import HdrHistogram

from smq.load.histogram import HIGHEST_US, Latencies


def test_values_are_counted_to_three_digits() -> None:
    latencies = Latencies()
    latencies.record([1, 2, 2, 5000, 123_456])
    assert latencies.count == 5
    assert latencies.at(50) == 2
    assert abs(latencies.at(100) - 123_456) <= 128


def test_a_latency_beyond_the_range_counts_at_its_edge() -> None:
    latencies = Latencies()
    latencies.record([-5, 0, 10 * HIGHEST_US])
    assert latencies.count == 3
    assert latencies.at(50) == 1
    assert latencies.at(100) >= HIGHEST_US


def test_histograms_travel_as_text_and_add_up() -> None:
    one, two = Latencies(), Latencies()
    one.record([10] * 99)
    two.record([1000])
    one.add_encoded(two.encoded())
    assert (one.count, one.at(50), one.at(99.9)) == (100, 10, 1000)
    assert HdrHistogram.decode(one.encoded().encode()).get_total_count() == 100


def test_a_summary_has_percentiles_or_only_that_there_is_nothing() -> None:
    latencies = Latencies()
    assert latencies.summary() == {"count": 0}
    latencies.record([100])
    summary = latencies.summary()
    assert {summary[key] for key in ("p50", "p99", "p99.9", "max")} == {100}
    assert summary["mean"] == 100
