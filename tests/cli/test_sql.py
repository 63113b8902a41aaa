"""`smq sql` as a user runs it."""

import csv
import io
import json
import pwd
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from smq.cli.verbs import app
from smq.client.wait import wait_readable
from smq.testing.smq_broker import SmqBroker
from tests.another_user import needs_root, result_as
from tests.app.smq_command import smq
from tests.broker.every_kind import kinds_broker

COUNT = 5
NOBODY = pwd.getpwnam("nobody").pw_uid


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
def test_an_error_behind_the_first_rows_is_one_of_the_query(
    broker: SmqBroker, tmp_path: Path
) -> None:
    """Arrow's readers raise DuckDB's errors as their own: 'None cannot be written: None'."""
    query = "SELECT CASE WHEN range = 2000000 THEN 'x' ELSE '1' END::INT FROM range(3000000)"
    ended = run(broker, query, "--format", "csv", "--output", str(tmp_path / "rows.csv"))
    assert ended.returncode == 1
    assert ended.stderr.startswith("smq: Conversion Error: Could not convert string 'x'")


@pytest.mark.slow
def test_the_transport_kafka_gives_the_same_rows(broker: SmqBroker) -> None:
    query = 'SELECT * FROM clicks WHERE "offset" > 1'
    files = run(broker, query, "--format", "csv")
    wire = run(broker, query, "--format", "csv", "--transport", "kafka")
    assert files.stdout == wire.stdout != ""
    by_directory = ("--transport", "kafka", "--data-dir", str(broker.data_dir))
    assert run(broker, query, "--format", "csv", *by_directory).stdout == files.stdout
    ended = run(broker, query, "--transport", "kafka", "--tail", "sealed")
    assert ended.returncode == 1
    assert "--tail sealed reads the broker's files" in ended.stderr


def sql_as(user: int, *arguments: str) -> list[object]:
    """What `smq sql` says to another user, and its exit code."""

    def act() -> list[object]:
        done = CliRunner().invoke(app, ["sql", *arguments])
        return [done.exit_code, done.output or repr(done.exception)]

    found: list[object] = result_as(user, act)
    return found


@needs_root
def test_another_user_queries_topics_with_a_login(monkeypatch: pytest.MonkeyPatch) -> None:
    query = ("SELECT count(*) AS n FROM mixed", "--format", "csv")
    with kinds_broker() as kinds:
        where = ("--bootstrap", kinds.address)
        monkeypatch.setenv("SMQ_CLIENT_PROPERTIES", str(kinds.properties))
        # Imports what is needed, as root: another user may not read this Python.
        CliRunner().invoke(app, ["sql", *query, "--data-dir", "/nowhere"])
        done = CliRunner().invoke(app, ["sql", *query, *where])
        assert (done.exit_code, done.output) == (0, "n\n116\n")
        assert sql_as(NOBODY, *query, *where) == [0, "n\n116\n"]
        assert sql_as(NOBODY, *query, *where, "--transport", "kafka") == [0, "n\n116\n"]
        assert is_sent_to_the_broker(
            sql_as(NOBODY, *query, "--data-dir", str(kinds.broker.data_dir))
        )


@needs_root
def test_files_in_a_closed_directory_are_another_users() -> None:
    # Imports what is needed, as root: another user may not read this Python.
    CliRunner().invoke(app, ["sql", "SELECT 1", "--data-dir", "/nowhere"])
    with tempfile.TemporaryDirectory(prefix="smq-") as closed:
        data_dir = Path(closed) / "data"
        data_dir.mkdir(mode=0o755)
        assert is_sent_to_the_broker(sql_as(NOBODY, "SELECT 1", "--data-dir", str(data_dir)))


def is_sent_to_the_broker(ended: list[object]) -> bool:
    return ended[0] == 1 and "give --bootstrap instead, and all records come" in str(ended[1])


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
