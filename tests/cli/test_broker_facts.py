"""Facts about a running broker, read without its help."""

from pathlib import Path

from smq.app.process.status import COUNTERS
from smq.cli.broker_facts import broker_facts
from tests.app.fake_broker import running


def test_every_log_is_counted_and_every_byte_placed(tmp_path: Path) -> None:
    with running(tmp_path, 2):
        (tmp_path / "logs").mkdir(exist_ok=True)
        (tmp_path / "logs" / "segment").write_bytes(bytes(8192))
        facts = broker_facts(tmp_path, 0.01)
    assert facts
    assert [log["log"] for log in facts["logs"]] == [0, 1]
    assert all(
        log["counters"].keys() == log["per_s"].keys() == set(COUNTERS) for log in facts["logs"]
    )
    assert {log["sealing"] for log in facts["logs"]} == {"trails"}
    assert [node["connections"] for node in facts["nodes"]] == [0, 0]
    assert [node["sessions"] for node in facts["nodes"]] == [0, 0]
    assert facts["bytes"]["write_ahead_logs"] == 8192
    assert facts["bytes"]["sealed"] == 0
    assert facts["topics"] == []


def test_there_is_nothing_to_know_of_no_broker(tmp_path: Path) -> None:
    assert broker_facts(tmp_path, 0.01) is None
