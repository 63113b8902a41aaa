"""`smq sql` as a user runs it."""

import csv
import io
import json
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from smq.client.wait import wait_readable
from smq.testing.smq_broker import SmqBroker
from tests.app.smq_command import smq

COUNT = 5


@pytest.fixture
def broker(smq_broker: SmqBroker) -> SmqBroker:
    with smq_broker.connect() as client:
        client.create_topic("clicks", 1)
        with client.producer() as producer:
            for number in range(COUNT):
                producer.send("clicks", b'{"n": %d}' % number)
    return smq_broker


def run(broker: SmqBroker, *arguments: str) -> subprocess.CompletedProcess[str]:
    where = () if "--data-dir" in arguments else ("--bootstrap", broker.bootstrap)
    command = [sys.executable, "-m", "smq.cli.main", "sql", *arguments, *where]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
def test_each_format(broker: SmqBroker, tmp_path: Path) -> None:
    query = "SELECT (value->>'n')::INT AS n, value FROM clicks ORDER BY n"
    table = run(broker, query).stdout.splitlines()
    assert table[0].split() == ["n", "value"]
    assert len(table) == 2 + COUNT
    rows = list(csv.DictReader(io.StringIO(run(broker, query, "--format", "csv").stdout)))
    assert [(row["n"], row["value"]) for row in rows][1] == ("1", '{"n": 1}')
    lines = run(broker, query, "--format", "json").stdout.splitlines()
    assert [json.loads(line)["n"] for line in lines] == list(range(COUNT))
    file = tmp_path / "rows.parquet"
    assert run(broker, query, "--format", "parquet", "--output", str(file)).returncode == 0
    assert pq.read_table(file)["n"].to_pylist() == list(range(COUNT))


@pytest.mark.slow
def test_wrong_use_is_a_sentence(broker: SmqBroker, tmp_path: Path) -> None:
    for arguments, sentence in {
        ("SELECT * FROM nope",): "the topics are clicks",
        ("DROP TABLE clicks",): "DROP is not a query",
        ("SELECT 1", "--format", "parquet"): "needs --output",
        ("SELECT 1", "--data-dir", str(tmp_path / "none")): "there is no directory",
        ("SELECT 1", "--data-dir", str(tmp_path)): "store.sqlite",
        ("SELECT 1", "--follow"): "reads one topic, not 0",
        ("SELECT 1", "--output", str(tmp_path / "a" / "b")): "cannot be written",
    }.items():
        ended = run(broker, *arguments)
        assert ended.returncode == 1, arguments
        assert sentence in ended.stderr, ended.stderr
        assert ended.stderr.startswith("smq: "), ended.stderr


@pytest.mark.slow
def test_a_stopped_brokers_directory_gives_what_is_sealed(broker: SmqBroker) -> None:
    broker.stop()
    ended = run(
        broker, "SELECT count(*) FROM clicks", "--format", "csv", "--data-dir", str(broker.data_dir)
    )
    assert ended.stdout.split()[1] in {"0", str(COUNT)}  # A clean stop seals, a kill does not.
    assert "only sealed records are read" in ended.stderr


@pytest.mark.slow
def test_follow_queries_what_comes(broker: SmqBroker) -> None:
    command = [sys.executable, "-m", "smq.cli.main", "sql", "--follow", "--every", "0.1"]
    command += ["SELECT value FROM clicks", "--format", "json", "--bootstrap", broker.bootstrap]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
        broker.connect() as client,
        client.producer() as producer,
    ):
        assert process.stdout is not None
        seen: list[str] = []
        while not seen:  # Until it has begun at the end of the topic.
            producer.send("clicks", b"new").result(30)
            seen = [process.stdout.readline()] if has_line(process) else []
        assert json.loads(seen[0]) == {"value": "new"}
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def has_line(process: "subprocess.Popen[str]") -> bool:
    assert process.stdout is not None
    return bool(wait_readable([process.stdout.fileno()], 0.2))


def test_properties_that_cannot_be_read_are_refused_with_a_directory_too(tmp_path: Path) -> None:
    done = smq("sql", "SELECT 1", "--data-dir", str(tmp_path), "--command-config", "nowhere")
    assert done.returncode == 1
    assert done.stderr.startswith("smq: the properties file nowhere cannot be read")
