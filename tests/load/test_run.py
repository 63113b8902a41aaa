"""A step of a workload, against brokers."""

from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from smq.load import run, schedule
from smq.load.run import RunEnded, run_step
from smq.load.workload import Workload
from smq.testing.smq_broker import SmqBroker

pytestmark = pytest.mark.slow
SECOND = 1 / 60
SHORT: dict[str, Any] = {
    "message_size": 100,
    "test_duration_minutes": SECOND,
    "warmup_duration_minutes": 0.0,
}


def measured(broker: SmqBroker, **fields: Any) -> dict[str, Any]:
    """The result of a short step; everything that was sent is there, and was read."""
    shown: list[dict[str, Any]] = []
    result = run_step(broker.bootstrap, Workload(**{**SHORT, **fields}), shown.append)
    check = result["check"]
    assert check["acknowledged"] == check["stored"] > 0
    assert check["received"] >= check["expected_by_consumers"]
    assert check["failed"] == 0
    assert shown
    with broker.connect() as client:
        assert not [name for name in client.topics() if name.startswith("bench-")]
    return result


def test_a_rate_is_kept_and_every_message_is_read(smq_session_broker: SmqBroker) -> None:
    result = measured(
        smq_session_broker, producer_rate=200.0, producers_per_topic=2, topics=2,
        subscriptions_per_topic=2, warmup_duration_minutes=SECOND,
    )  # fmt: skip
    assert result["seconds_measured"] >= 1
    assert result["check"]["expected_by_consumers"] == 2 * result["check"]["stored"]
    assert result["latency_us"]["publish"]["p99"] > 0
    assert result["latency_us"]["end_to_end"]["count"] > 0
    assert {each["phase"] for each in result["seconds"]} >= {"warm-up", "test"}
    assert result["client"]["ceiling_of_one_producer"]["msg_s"] > 0
    assert result["cost"]["memory_mb"] > 10


def test_a_backlog_is_built_then_drained(smq_session_broker: SmqBroker) -> None:
    result = measured(smq_session_broker, producer_rate=100.0, consumer_backlog_size_gb=0.001)
    assert result["backlog"]["bytes"] == 1_000_000
    assert result["backlog"]["drained_seconds"] >= 1
    assert result["check"]["stored"] >= 10_000


def test_groups_rebalance_and_commit(smq_session_broker: SmqBroker) -> None:
    result = measured(
        smq_session_broker, producer_rate=100.0, partitions_per_topic=2,
        consumer_per_subscription=2, commits_per_second=10.0, rebalance_every_seconds=1.0,
        test_duration_minutes=4 * SECOND,
    )  # fmt: skip
    assert result["events"][0]["what"] == "a consumer left and came back"
    assert result["latency_us"]["rejoin"]["count"] >= 1
    assert result["latency_us"]["commit"]["count"] >= 1


def test_connections_are_held(smq_session_broker: SmqBroker) -> None:
    result = measured(smq_session_broker, producer_rate=100.0, idle_connections=50)
    assert result["latency_us"]["request"]["count"] > 10


def test_without_a_rate_the_sustainable_one_is_searched(
    smq_session_broker: SmqBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "SEARCH_PRECISION", 1.5)  # Some trials are enough.
    result = run_step(
        smq_session_broker.bootstrap,
        Workload(**SHORT, subscriptions_per_topic=0),
        lambda _row: None,
    )
    search = result["search"]
    assert search["trials"]
    assert 0 < search["sustainable_rate"] <= search["highest_closed_loop"] * 1.5
    assert result["parameters"]["producer_rate"] == search["sustainable_rate"]


def test_processes_are_killed_and_nothing_is_missing(tmp_path: Path) -> None:
    with SmqBroker(tmp_path) as broker:
        result = measured(
            broker, producer_rate=100.0, kill_every_seconds=1.0, test_duration_minutes=5 * SECOND
        )
        assert {each["what"] for each in result["events"]} >= {"killed shard-1"}
        broker.restart()


def test_a_broker_that_dies_ends_the_run_with_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "SILENT_S_MAX", 3.0)
    with SmqBroker(tmp_path) as broker:
        workload = Workload(**{**SHORT, "producer_rate": 100.0, "test_duration_minutes": 1.0})
        timer = Timer(8.0, broker.kill, ["supervisor"])
        timer.start()
        with pytest.raises(RunEnded, match="has answered no producer") as ended:
            run_step(broker.bootstrap, workload, lambda _row: None)
        timer.join()
    assert ended.value.result is not None
    assert "has answered no producer" in ended.value.result["ended"]
    assert sum(each.get("acked", 0) for each in ended.value.result["seconds"]) > 0
