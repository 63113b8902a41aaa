"""The page of results."""

import re
from typing import Any

from smq.load.histogram import Latencies
from smq.load.page import page
from smq.load.results import stamped


def a_result(partitions: int, rate: float, name: str = "many") -> dict[str, Any]:
    latencies = Latencies()
    latencies.record([*range(100, 1100), 50_000])
    second = {"phase": "test", "acked": rate, "received": rate, "publish_p99": 900}
    result = {
        "parameters": {"message_size": 1000},
        "rates": {"acked_msg_s": rate, "acked_mb_s": rate / 1000},
        "latency_us": {"publish": latencies.summary(), "end_to_end": latencies.summary()},
        "seconds": [{"second": each, **second} for each in range(5)],
        "events": [{"second": 1.0, "what": "killed shard-1"}],
        "check": {"acknowledged": 5, "stored": 5},
        "client": {"name": "librdkafka 2", "ceiling_of_one_producer": {"msg_s": 9, "mb_s": 1}},
        "cost": {"memory_mb": 170 + partitions / 1000, "cpu_seconds": 3},
    }
    return stamped(result, name, {"partitionsPerTopic": partitions}, "here:9092")


def titles(html: str) -> set[str]:
    return set(re.findall(r'font-weight: bold">([^<]*)<', html))


def test_a_sweep_has_plots_against_what_it_varies() -> None:
    html = page([a_result(1, 1000), a_result(1000, 900)])
    assert titles(html) == {
        "Throughput against partitionsPerTopic",
        "p99 against partitionsPerTopic",
        "The broker&#x27;s memory against partitionsPerTopic",
        "The broker&#x27;s CPU against partitionsPerTopic",
        "Latency by percentile",
        "Throughput over time",
        "Latency over time",
    }
    assert "acknowledged 5, stored 5" in html
    assert "killed shard-1 (1)" in html


def test_one_step_has_no_sweep() -> None:
    assert titles(page([a_result(1, 1000)])) == {
        "Latency by percentile", "Throughput over time", "Latency over time",
    }  # fmt: skip


def test_the_page_needs_nothing_else() -> None:
    html = page([a_result(1, 1000)])
    without_namespace = html.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://|<script|<link|url\(", without_namespace)


def test_ratios_are_coloured_by_what_is_better() -> None:
    html = page([a_result(1, 500)], [a_result(1, 1000)])
    assert '<td class="worse">0.50</td>' in html
    assert '<td class="">1.00</td>' in html


def test_a_run_that_ended_early_and_a_strange_name_are_shown() -> None:
    broken = stamped({"ended": "it <died>"}, "<b>", {}, "here:9092")
    html = page([broken])
    assert "it &lt;died&gt;" in html
    assert "<h2>&lt;b&gt;</h2>" in html
