"""How rows of every type are written."""

import csv
import io
import json
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from smq.cli.output import Format
from smq.cli.sql_output import TABLE_ROWS_MAX, writer

QUERY = """
    SELECT 1 AS i, 0.5 AS d, 'é' AS t, '\\xFF'::BLOB AS b, NULL AS n, true AS y, [1, 2] AS l,
        {'a': 'x'} AS s, TIMESTAMP '2026-01-02 03:04:05' AS at, 'a,"b' AS c
"""


def written(output_format: str, path: Path, query: str = QUERY, times: int = 1) -> str:
    with duckdb.connect() as database, writer(Format(output_format), path) as write:
        for _ in range(times):
            write(database.sql(query).to_arrow_reader(1000))
    return path.read_bytes().decode()


def test_json_lines(tmp_path: Path) -> None:
    [line] = written("json", tmp_path / "x").splitlines()
    assert json.loads(line) == {
        "i": 1,
        "d": "0.5",
        "t": "é",
        "b": {"base64": "/w=="},
        "n": None,
        "y": True,
        "l": [1, 2],
        "s": {"a": "x"},
        "at": "2026-01-02T03:04:05",
        "c": 'a,"b',
    }


def test_csv_has_one_head_for_all_results(tmp_path: Path) -> None:
    head, *rows = csv.reader(io.StringIO(written("csv", tmp_path / "x", times=2)))
    assert head == [*("i", "d", "t", "b", "n", "y", "l", "s", "at", "c")]
    assert len(rows) == 2
    assert rows[0][-1] == 'a,"b'
    assert rows[0][4] == ""


def test_a_line_of_csv_ends_with_a_line_feed_alone(tmp_path: Path) -> None:
    """Data fault 35: what `cut` and `read` take for the last column had a CR at its end."""
    query = "SELECT 'a' AS \"first\", chr(13) AS cr, chr(10) AS lf, chr(13) || chr(10) AS both"
    text = written("csv", tmp_path / "x", query)
    assert text == 'first,cr,lf,both\na,"\r","\n","\r\n"\n'
    [_, row] = csv.reader(io.StringIO(text, newline=""))
    assert row == ["a", "\r", "\n", "\r\n"]


def test_a_table_is_bounded_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = written("table", tmp_path / "x", "SELECT range AS number FROM range(2000)")
    assert len(text.splitlines()) == TABLE_ROWS_MAX + 2
    assert "LIMIT" in capsys.readouterr().err
    [head, _, row] = written("table", tmp_path / "y").splitlines()
    assert head.split() == [*("i", "d", "t", "b", "n", "y", "l", "s", "at", "c")]
    assert row.split()[:3] == ["1", "0.5", "é"]


def test_parquet_keeps_types(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with duckdb.connect() as database, writer(Format.PARQUET, path) as write:
        for _ in range(2):
            write(database.sql("SELECT 1 AS i, 'x'::BLOB AS b").to_arrow_reader(10))
    assert pq.read_table(path).to_pylist() == [{"i": 1, "b": b"x"}] * 2


def test_a_file_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    for output_format in Format:
        with pytest.raises(SystemExit, match="cannot be written"):
            written(output_format, tmp_path / "none" / "x", "SELECT 1")


def test_an_empty_text_of_csv_is_not_null(tmp_path: Path) -> None:
    """Awkward records: both were nothing between two commas. These lines are PostgreSQL's."""
    query = "SELECT NULL AS n, '' AS e, 'NULL' AS t, ' ' AS s UNION ALL SELECT '', NULL, NULL, ''"
    text = written("csv", tmp_path / "x", query)
    assert text == 'n,e,t,s\n,"",NULL, \n"",,,""\n'
    made = f"SELECT * FROM read_csv('{tmp_path / 'x'}', all_varchar=true, allow_quoted_nulls=false)"
    assert duckdb.execute(made).fetchall() == [(None, "", "NULL", " "), ("", None, None, "")]


def test_numbers_that_json_lacks_are_text(tmp_path: Path) -> None:
    """Awkward records: `NaN` alone is no JSON."""
    query = "SELECT 'nan'::DOUBLE AS n, ['inf'::FLOAT, 1] AS l, {'a': '-inf'::DOUBLE} AS s"
    text = written("json", tmp_path / "x", query)
    assert text == '{"n": "NaN", "l": ["Infinity", 1.0], "s": {"a": "-Infinity"}}\n'
    assert written("csv", tmp_path / "y", query).splitlines()[1].startswith("NaN,")


def test_columns_of_one_name_are_refused_where_a_name_holds_one(tmp_path: Path) -> None:
    """Awkward records: of two such columns JSON had the last."""
    query = "SELECT 1 AS a, 2 AS a, 3 AS b"
    with pytest.raises(SystemExit, match="several columns a; name them with AS"):
        written("json", tmp_path / "x", query)
    assert written("csv", tmp_path / "y", query) == "a,a,b\n1,2,3\n"
