"""smq export, against a broker."""

import json
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from smq.cli.verbs import app
from smq.client.consuming.consumer import Consumer
from smq.client.kafka.offsets import Start
from smq.client.names import TopicPartition
from smq.testing.smq_broker import SmqBroker


@pytest.fixture
def topic(smq_session_broker: SmqBroker) -> str:
    name = uuid4().hex[:8]
    with smq_session_broker.connect() as client:
        client.create_topic(name, 2)
        with client.producer() as producer:
            for number in range(10):
                producer.send(
                    name,
                    None if number == 3 else b"v%d" % number,
                    key=b"\xff",
                    headers=[("h", b"x")],
                    timestamp_ms=1000 * number,
                    partition=number % 2,
                )
    return name


def run(broker: SmqBroker, *arguments: str, exit_code: int = 0) -> str:
    done = CliRunner().invoke(app, [*arguments, "--bootstrap", broker.bootstrap])
    assert done.exit_code == exit_code, done.output
    return done.output


@pytest.mark.parametrize("name", ["out.parquet", "out.arrow", "out.ndjson"])
def test_an_exported_file_is_imported_unchanged(
    smq_session_broker: SmqBroker, topic: str, tmp_path: Path, name: str
) -> None:
    file = str(tmp_path / name)
    assert json.loads(run(smq_session_broker, "export", topic, file, "--json"))["records"] == 10
    with smq_session_broker.connect() as client:
        client.create_topic(f"{topic}-to", 2)
    assert "sent 10 records" in run(smq_session_broker, "import", f"{topic}-to", file)
    lines = [
        sorted(run(smq_session_broker, "consume", each, "--json").replace(each, "").splitlines())
        for each in (f"{topic}-to", topic)
    ]
    assert lines[0] == lines[1]
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_a_topic_that_is_created_again_meanwhile_ends_the_export(
    smq_session_broker: SmqBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data fault 8, its kind: the file got as many records of the new topic."""
    find, asked = Consumer.find, 0

    def found(self: Consumer, place: Start) -> dict[TopicPartition, int]:
        nonlocal asked
        offsets, asked = find(self, place), asked + 1
        if asked == 2:  # What is to be exported is known.
            with smq_session_broker.connect() as client:
                client.delete_topic(topic)
                client.create_topic(topic, 2)
                with client.producer() as producer:
                    for number in range(20):
                        producer.send(topic, b"new", partition=number % 2)
        return offsets

    monkeypatch.setattr(Consumer, "find", found)
    said = run(smq_session_broker, "export", topic, str(tmp_path / "out.ndjson"), exit_code=1)
    assert "was deleted and created again" in " ".join(said.split())
    assert list(tmp_path.iterdir()) == []


def test_a_part_of_a_topic_is_exported(
    smq_session_broker: SmqBroker, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "out.parquet"
    chosen = ("--partition", "1", "--from", "@5000")
    run(smq_session_broker, "export", topic, str(file), *chosen)
    table = pq.read_table(file)
    assert table["value"].to_pylist() == [b"v5", b"v7", b"v9"]
    assert table.schema.field("timestamp").type == pa.timestamp("ms", "UTC")
    run(smq_session_broker, "export", topic, str(file), "--from", "latest")
    assert pq.read_table(file).num_rows == 0


def test_an_export_that_is_impossible_exits_with_a_sentence(
    smq_session_broker: SmqBroker, topic: str, tmp_path: Path
) -> None:
    for arguments, sentence in [
        ([topic, str(tmp_path / "out.xls")], "the name of a file to export to ends with .parquet"),
        ([topic, str(tmp_path / "no/out.parquet")], "cannot be written"),
        (["no-such", str(tmp_path / "out.parquet")], "there is no topic no-such"),
        ([topic, str(tmp_path / "out.parquet"), "--partition", "7"], "has no partition 7"),
    ]:
        assert sentence in run(smq_session_broker, "export", *arguments, exit_code=1)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_a_header_key_that_is_not_utf8_is_refused_where_text_is_all_there_is(
    smq_session_broker: SmqBroker, tmp_path: Path, suffix: str
) -> None:
    """Awkward records: replacement characters were written, and imported again."""
    name, file = uuid4().hex[:8], str(tmp_path / f"out.{suffix}")
    with smq_session_broker.connect() as client:
        client.create_topic(name, 1)
        with client.producer() as producer:
            for key in (b"\\xff", "k\u00e4se".encode(), b"k\xe4se"):
                producer.send(name, b"", headers=[(key, b"")])
    output = run(smq_session_broker, "export", name, file, exit_code=1)
    assert "partition 0, offset 2: the header key 'k\\udce4se' is not UTF-8" in output
    assert "export to .ndjson" in output
    assert not list(tmp_path.iterdir())
    run(smq_session_broker, "export", name, str(tmp_path / "out.ndjson"))
