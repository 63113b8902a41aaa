"""smq import, against a broker; tests/cli/records/test_export.py reads what export wrote."""

import json
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from smq.cli.records.tables import ROWS_MAX
from smq.cli.verbs import app
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
    records.write_text('{"value": "v", "key": "k", "partition": 7}\n{"value": null}\n')
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


def test_an_import_that_is_impossible_exits_with_a_sentence(
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


def test_a_refused_import_says_how_many_records_were_sent(
    smq_session_broker: SmqBroker, tmp_path: Path
) -> None:
    """Use fault 7."""
    topic = uuid4().hex[:8]
    run(smq_session_broker, "topic", "create", topic)
    path = tmp_path / "a.csv"
    path.write_text("id,b\n" + "1,x\n" * ROWS_MAX + "2\n")
    output = run(smq_session_broker, "import", topic, str(path), exit_code=1)
    assert f"line {ROWS_MAX + 2}: it has 1 fields, not 2" in output
    assert f"; {ROWS_MAX:,} records of it were sent" in output
    good, bad = tmp_path / "good.csv", tmp_path / "bad.parquet"
    good.write_text("id\n1\n")
    pq.write_table(pa.table({"id": [1.0, float("nan")]}), bad)
    output = run(smq_session_broker, "import", topic, str(good), str(bad), exit_code=1)
    assert "row 2, column 'id' cannot be JSON" in output
    assert "; 1 records of other files were sent" in output


def test_lines_of_json_with_other_fields_are_no_records(
    smq_session_broker: SmqBroker, tmp_path: Path
) -> None:
    """Use fault 7: a field that happens to be called `value` drops no others."""
    topic = uuid4().hex[:8]
    run(smq_session_broker, "topic", "create", topic)
    plain, mixed = tmp_path / "plain.ndjson", tmp_path / "mixed.ndjson"
    line = '{"value": "v", "price": 1.10, "id": 12345678901234567890}'
    plain.write_text(line + "\n")
    run(smq_session_broker, "import", topic, str(plain), "--key", "price")
    run(smq_session_broker, "import", topic, str(plain), "--key", "id")
    assert run(smq_session_broker, "consume", topic, "--keys").splitlines() == [
        f"1.10\t{line}",
        f"12345678901234567890\t{line}",
    ]
    mixed.write_text('{"value": "v"}\n' + line + "\n")
    output = run(smq_session_broker, "import", topic, str(mixed), exit_code=1)
    assert "it has a field 'price', and the first line is that of a record" in output
    assert "records sent before it: 1" in output


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "ndjson"])
def test_awkward_records_are_exported_and_imported_again(
    smq_session_broker: SmqBroker, tmp_path: Path, suffix: str
) -> None:
    """Use faults 6 and 7."""
    topic, again = uuid4().hex[:8], uuid4().hex[:8]
    lines = [
        {"value": None, "key": "", "timestamp": -1001},
        {"value": "", "key": None, "timestamp": -1},
        {"value": "02134", "timestamp": 0, "headers": [["a", "1"], ["a", None], ["a", ""]]},
        {"value": {"base64": "/w=="}, "key": {"base64": "/w=="}, "timestamp": 5},
    ]
    source, exported = tmp_path / "lines", tmp_path / f"x.{suffix}"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for name in (topic, again):
        run(smq_session_broker, "topic", "create", name)
    run(smq_session_broker, "produce", topic, str(source), "--json-lines")
    run(smq_session_broker, "export", topic, str(exported))
    run(smq_session_broker, "import", again, str(exported))
    first, second = (
        [
            json.loads(line) | {"topic": ""}
            for line in run(smq_session_broker, "consume", name, "--json").splitlines()
        ]
        for name in (topic, again)
    )
    assert first == second
    assert [each["timestamp"] for each in first] == [-1001, -1, 0, 5]


def test_another_encoding_is_of_csv_alone(smq_session_broker: SmqBroker, tmp_path: Path) -> None:
    """Use fault 7."""
    topic = uuid4().hex[:8]
    run(smq_session_broker, "topic", "create", topic)
    path = tmp_path / "a.csv"
    path.write_bytes("a\nMünchen\n".encode("latin-1"))
    run(smq_session_broker, "import", topic, str(path), "--encoding", "latin-1")
    assert run(smq_session_broker, "consume", topic) == '{"a": "München"}\n'
    output = run(smq_session_broker, "import", topic, "x.parquet", "--encoding", "x", exit_code=1)
    assert "there is no encoding 'x'" in output
    wrong = ("x.parquet", "--encoding", "latin-1")
    assert "is for .csv files" in run(smq_session_broker, "import", topic, *wrong, exit_code=1)


def test_a_record_with_a_field_twice_is_refused_and_a_value_stays_as_it_is(
    smq_session_broker: SmqBroker, tmp_path: Path
) -> None:
    """Use fault 7: the last one was taken."""
    topic = uuid4().hex[:8]
    run(smq_session_broker, "topic", "create", topic)
    records, plain = tmp_path / "records.ndjson", tmp_path / "plain.ndjson"
    records.write_text('{"value": "v"}\n{"value": "v", "value": "w"}\n')
    plain.write_text('{"a": 1, "a": 2}\n')
    for verb, *options in (["import"], ["produce", "--json-lines"]):
        output = run(smq_session_broker, verb, topic, str(records), *options, exit_code=1)
        assert "line 2 of" in output
        assert "it has a field twice; records sent before it: 1" in output
    run(smq_session_broker, "import", topic, str(plain))
    assert run(smq_session_broker, "consume", topic) == 'v\nv\n{"a": 1, "a": 2}\n'


def test_the_mark_of_utf8_is_no_part_of_a_value_and_utf16_is_refused(
    smq_session_broker: SmqBroker, tmp_path: Path
) -> None:
    """Use fault 7: the first value began with the mark, and was no JSON for others."""
    topic = uuid4().hex[:8]
    run(smq_session_broker, "topic", "create", topic)
    path = tmp_path / "a.ndjson"
    path.write_text('{"a": 1}\n{"a": 2}\n', encoding="utf-8-sig")
    run(smq_session_broker, "import", topic, str(path), "--key", "a")
    path.write_text('{"a": 3}', encoding="utf-16")
    output = run(smq_session_broker, "import", topic, str(path), exit_code=1)
    assert "line 1 of" in output
    assert run(smq_session_broker, "consume", topic, "--keys").splitlines() == [
        '1\t{"a": 1}',
        '2\t{"a": 2}',
    ]
