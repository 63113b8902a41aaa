"""Counts of workers, second by second."""

from smq.load.histogram import Latencies
from smq.load.timeline import TEST, Timeline


def encoded(*values: int) -> str:
    latencies = Latencies()
    latencies.record(values)
    return latencies.encoded()


def test_reports_of_several_workers_add_up() -> None:
    timeline = Timeline()
    timeline.add({"second": 3, "acked": 10, "latencies": {"publish": encoded(5, 5)}})
    timeline.add({"second": 3, "acked": 1, "received": 4, "latencies": {"publish": encoded(900)}})
    timeline.add({"second": 4, "acked": 2, "latencies": {}})
    assert timeline.totals == {"acked": 13, "received": 4}
    assert timeline.counts([3]) == {"acked": 11, "received": 4}
    assert timeline.latencies(range(10))["publish"]["count"] == 3
    assert timeline.row(3, TEST) == {
        "second": 3,
        "phase": "test",
        "acked": 11,
        "received": 4,
        "publish_p50": 5,
        "publish_p99": 900,
        "publish_max": 900,
    }


def test_a_second_without_reports_is_empty() -> None:
    assert Timeline().row(9, TEST) == {"second": 9, "phase": "test"}
    assert Timeline().latencies(range(5)) == {}
