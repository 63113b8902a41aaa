"""smq import, against a broker; tests/app/cli/records/test_export.py reads what export wrote."""

import json
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from typer.testing import CliRunner

from smq.app.cli.main import app
from smq.testing.smq_broker import SmqBroker


def run(broker: SmqBroker, *arguments: str, exit_code: int = 0) -> str:
    done = CliRunner().invoke(app, [*arguments, "--bootstrap", broker.bootstrap])
    assert done.exit_code == exit_code, done.output
    return done.output


def test_rows_of_any_file_become_json_objects(
    smq_session_broker: SmqBroker, tmp_path: Path
) -> None:
    topic = uuid4().hex[:8]
    run(smq_session_broker, "topic", "create", topic)
    (tmp_path / "a.csv").write_text('id,name\n1,"ä, b"\n2,\n')
    pq.write_table(pa.table({"id": [3], "at": [pa.scalar(0, pa.date32())]}), tmp_path / "b.parquet")
    files = [str(tmp_path / name) for name in ("a.csv", "b.parquet")]
    facts = json.loads(run(smq_session_broker, "import", topic, *files, "--key", "id", "--json"))
    assert facts == {"topic": topic, "records": 3}
    lines = run(smq_session_broker, "consume", topic, "--keys").splitlines()
    assert lines == [
        '1\t{"id": 1, "name": "ä, b"}',
        '2\t{"id": 2, "name": ""}',
        '3\t{"id": 3, "at": "1970-01-01"}',
    ]


def test_lines_of_json_become_values_unless_they_are_records(
    smq_session_broker: SmqBroker, tmp_path: Path
) -> None:
    topic = uuid4().hex[:8]
    run(smq_session_broker, "topic", "create", topic)
    plain, records = tmp_path / "plain.ndjson", tmp_path / "records.jsonl"
    plain.write_text('{"id": 1, "name": "ä"}\n {"id": "two"}\n{"id": null}\n')
    records.write_text('{"value": "v", "key": "k", "partition": 7}\n{"value": null, "id": [3]}\n')
    run(smq_session_broker, "import", topic, str(plain), "--key", "id")
    run(smq_session_broker, "import", topic, str(records), "--repartition")
    lines = run(smq_session_broker, "consume", topic, "--json").splitlines()
    assert [(each["key"], each["value"]) for each in map(json.loads, lines)] == [
        ("1", '{"id": 1, "name": "ä"}'),
        ("two", '{"id": "two"}'),
        (None, '{"id": null}'),
        ("k", "v"),
        (None, None),
    ]
    for name, sentence in {"nothing": "it has no column 'nothing', only id, name"}.items():
        output = run(smq_session_broker, "import", topic, str(plain), "--key", name, exit_code=1)
        assert sentence in output


def test_what_cannot_be_imported_is_a_sentence(
    smq_session_broker: SmqBroker, tmp_path: Path
) -> None:
    topic = uuid4().hex[:8]
    run(smq_session_broker, "topic", "create", topic)
    for name, content in {
        "a.parquet": b"PAR1 no",
        "a.arrow": b"",
        "a.csv": b"a,b\n1\n",
        "a.xls": b"",
        "a.ndjson": b"{",
        "b.csv": b"value,partition\nx,99\n",
    }.items():
        (tmp_path / name).write_bytes(content)
        output = run(smq_session_broker, "import", topic, str(tmp_path / name), exit_code=1)
        assert output.startswith("smq: "), output
        assert "Traceback" not in output
    output = run(smq_session_broker, "import", topic, str(tmp_path / "none.csv"), exit_code=1)
    assert output == f"smq: {tmp_path / 'none.csv'}: No such file or directory\n"
    output = run(smq_session_broker, "import", topic, str(tmp_path / "b.csv"), exit_code=1)
    assert f"it has records of partition 99, and {topic} has 1 partition: `smq topic add" in output
    (tmp_path / "c.csv").write_text("a\n1\n")
    arguments = [topic, str(tmp_path / "c.csv"), "--key", "b"]
    assert "it has no column 'b', only a" in run(
        smq_session_broker, "import", *arguments, exit_code=1
    )
    assert run(smq_session_broker, "consume", topic) == ""
