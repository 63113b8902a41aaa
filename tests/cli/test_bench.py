"""smq bench."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from smq.cli import bench as verb
from smq.cli.verbs import app
from smq.testing.smq_broker import SmqBroker

# What makes each workload that comes with SMQ a matter of seconds.
VERY_SHORT = {
    "backlog": ["consumerBacklogSizeGB=0.005", "producerRate=200"],
    "endurance": ["producerRate=200"],
    "failures": ["producerRate=100", "testDurationMinutes=0.05", "killEverySeconds=2"],
    "fan-out": ["subscriptionsPerTopic=[1, 3]", "producerRate=50"],
    "flood": ["consumerBacklogSizeGB=0.005", "producerRate=200"],
    "latency": ["producerRate=100"],
    "many-connections": ["idleConnections=20", "producerRate=50"],
    "many-groups": ["subscriptionsPerTopic=3", "consumerPerSubscription=2"],
    "many-partitions": ["partitionsPerTopic=[1, 20]", "producerRate=50"],
    "offsets": ["rebalanceEverySeconds=1", "producerRate=50"],
    "sizes": ["messageSize=1000", "topicConfig={}", "producerRate=50"],
}
SHORT = ["testDurationMinutes=0.017", "warmupDurationMinutes=0"]


def bench(*arguments: str, exit_code: int = 0) -> str:
    done = CliRunner().invoke(app, ["bench", *arguments])
    assert done.exit_code == exit_code, done.output
    return done.output


def given(*fields: str) -> list[str]:
    return [word for field in fields for word in ("--set", field)]


def test_the_workloads_that_come_with_it_are_listed() -> None:
    names = {line.split()[0] for line in bench("list").splitlines()}
    assert names == VERY_SHORT.keys()


def test_each_of_them_can_be_read() -> None:
    assert all(verb.steps_for(name, []) for name in VERY_SHORT)
    assert [step.workload.name for step in verb.steps_for("latency", [], find_rate=True)] == [
        "latency"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", VERY_SHORT)
def test_each_of_them_runs(smq_session_broker: SmqBroker, name: str) -> None:
    fields = given(*SHORT, *VERY_SHORT[name])
    address = ("--bootstrap", smq_session_broker.bootstrap)
    for line in bench("run", name, *address, *fields, "--json").splitlines():
        result = json.loads(line)
        assert result["workload"] == name
        assert result["check"]["acknowledged"] == result["check"]["stored"] > 0
        assert result["check"]["received"] >= result["check"]["expected_by_consumers"]
    smq_session_broker.restart()  # All processes are there again.


@pytest.mark.slow
def test_results_are_kept_compared_and_shown(smq_session_broker: SmqBroker, tmp_path: Path) -> None:
    kept, report = tmp_path / "results.jsonl", tmp_path / "report.html"
    workload = tmp_path / "mine.yaml"
    workload.write_text("producerRate: 100\nmessageSize: 50\nsubscriptionsPerTopic: 0\n")
    address = ("--bootstrap", smq_session_broker.bootstrap)
    command = ("run", str(workload), *address, *given(*SHORT), "--results", str(kept))
    first = bench(*command)
    assert first.startswith(f"mine ({smq_session_broker.bootstrap})\n")
    assert "publish p99, µs" in first
    second = bench(*command, "--against", str(kept), "--report", str(report))
    assert re.search(r"acknowledged, msg/s +[\d,]+ +[\d,]+ +[\d.]+\n", second)
    assert len(kept.read_text().splitlines()) == 2
    assert "Against what was before" in report.read_text()
    other = tmp_path / "other.html"
    assert bench("report", str(kept), "--output", str(other)) == f"written to {other}\n"
    assert "<h2>mine</h2>" in other.read_text()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("topics: [", "is not YAML: while parsing"),
        ("tpics: 1", "tpics: there is no such field"),
        ("- 1", "a workload is a list of fields"),
        ("topics: none", "topics is 'none'; it takes a whole number of at least 1"),
        ("\xff", "cannot be read"),
        ("!!python/object/apply:os.system [x]", "is not YAML"),
    ],
)
def test_a_bad_workload_is_a_sentence(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(text.encode("latin-1"))
    output = bench("run", str(path), exit_code=1)
    assert says in output
    assert output.count("\n") == 1


def test_a_wrong_bench_argument_exits_with_a_sentence(tmp_path: Path) -> None:
    assert "there is no workload nothing" in bench("run", "nothing", exit_code=1)
    assert "--set takes name=value" in bench("run", "flood", "--set", "x", exit_code=1)
    missing = str(tmp_path / "none")
    assert "cannot be read" in bench("run", "flood", "--against", missing, exit_code=1)
    assert "cannot be read" in bench("report", missing, exit_code=1)
    empty = tmp_path / "empty"
    empty.write_text("")
    assert "there are no results" in bench("report", str(empty), exit_code=1)
    broker = bench("run", "flood", "--bootstrap", "127.0.0.1:1", exit_code=1)
    assert "127.0.0.1:1" in broker
    assert broker.count("\n") == 1


def test_the_line_of_progress_says_what_a_second_brought() -> None:
    row = {
        "second": 3, "phase": "test", "message_size": 1000, "acked": 2000, "received": 1000,
        "publish_p99": 1500, "failed": 4,
    }  # fmt: skip
    assert verb.second_in_words(row) == (
        "3 s test · acked 2,000/s 2.0 MB/s · read 1,000/s 1.0 MB/s · publish p99 1.5 ms · failed 4"
    )


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verb, "NEEDED", ("confluent_kafka", "no_such_module"))
    output = bench("run", "flood", exit_code=1)
    assert "no_such_module is not installed; `pip install 'smq-broker[bench]'`" in output
