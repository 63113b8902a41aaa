"""The query process of the HTTP door."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from smq.sql.worker import REFUSED, SENTENCE_CHARS_MAX, QueryTask, answer, plain
from tests.sealer.sealed import batch
from tests.spark_jobs.conftest import SealTopic, seal_topic

__all__ = ["seal_topic"]


def task(data_dir: Path, query: str, rows_max: int = 100, bytes_max: int = 1 << 20) -> QueryTask:
    filer = [str(data_dir / "filer"), "", ""]
    return QueryTask(query, None, str(data_dir), filer, 256 << 20, 10.0, rows_max, bytes_max)


def told(task: QueryTask) -> dict[str, Any]:
    """The answer as the front's client reads it."""
    exit_code, text = answer(task)
    found: dict[str, Any] = json.loads(text)
    assert exit_code == (REFUSED if "error" in found else 0)
    return found


def test_rows_of_a_stopped_brokers_topics(tmp_path: Path, seal_topic: SealTopic) -> None:
    seal_topic([batch(0, 5)])
    assert told(task(tmp_path, 'SELECT "offset" AS o FROM orders ORDER BY o')) == {
        "columns": ["o"],
        "types": ["int64"],
        "rows": [[0], [1], [2], [3], [4]],
        "truncated": False,
    }


def test_rows_and_bytes_are_bounded(tmp_path: Path, seal_topic: SealTopic) -> None:
    seal_topic([batch(0, 1)])
    some = told(task(tmp_path, "SELECT * FROM range(1000)", rows_max=7))
    assert (len(some["rows"]), some["truncated"]) == (7, True)
    few = told(task(tmp_path, "SELECT repeat('x', 1000) FROM range(1000)", bytes_max=100))
    assert (few["rows"], few["truncated"]) == ([], True)


@pytest.mark.parametrize(
    "value",
    [
        f"{{'{'n' * 2000}': 1}}",
        "repeat(chr(1), 1000)",
        "repeat(chr(8364), 1000)",
        "[NULL FOR x IN range(1000)]",
    ],
    ids=["names of fields", "escapes", "letters of several bytes", "values of no bytes"],
)
def test_the_bytes_of_the_json_are_bounded(
    tmp_path: Path, seal_topic: SealTopic, value: str
) -> None:
    """What Arrow holds once, or in few bytes, JSON repeats in each row."""
    seal_topic([batch(0, 1)])
    asked = task(tmp_path, f"SELECT {value} AS v FROM range(100)", bytes_max=50_000)
    text = answer(asked).json
    assert 40_000 < len(text) < 50_000 + 100
    some = json.loads(text)
    assert some["truncated"] is True
    assert 0 < len(some["rows"]) < 100


def test_columns_beyond_the_bound_are_refused(tmp_path: Path, seal_topic: SealTopic) -> None:
    seal_topic([batch(0, 1)])
    structs = f"SELECT {{'{'n' * 2000}': 1}} AS a, a AS b, a AS c"
    refused = told(task(tmp_path, structs, bytes_max=5000))
    assert "names and types take more than 5000 bytes" in refused["error"]


def test_a_result_at_the_bound_is_whole(tmp_path: Path, seal_topic: SealTopic) -> None:
    seal_topic([batch(0, 1)])
    whole = told(task(tmp_path, "SELECT * FROM range(100)", rows_max=100))
    assert (len(whole["rows"]), whole["truncated"]) == (100, False)
    none = told(task(tmp_path, "SELECT * FROM range(0)"))
    assert (none["rows"], none["truncated"]) == ([], False)


def test_the_sentence_of_a_failure_is_bounded(tmp_path: Path, seal_topic: SealTopic) -> None:
    seal_topic([batch(0, 1)])
    refused = told(task(tmp_path, "SELECT error(repeat('x', 1000000))"))
    assert len(refused["error"]) == SENTENCE_CHARS_MAX


def test_times_that_python_has_not_are_text(tmp_path: Path, seal_topic: SealTopic) -> None:
    """Use fault 5: the process died, and the front said that it had too little memory."""
    seal_topic([batch(0, 2)])
    query = "SELECT TIMESTAMP '20000-01-02 03:04:05' AS t, [DATE '20000-01-01'] AS l FROM orders"
    assert (
        told(task(tmp_path, query))["rows"]
        == [["20000-01-02T03:04:05.000000", ["20000-01-01"]]] * 2
    )


def test_a_failure_is_a_sentence(tmp_path: Path, seal_topic: SealTopic) -> None:
    seal_topic([batch(0, 1)])
    assert "the topics are orders" in told(task(tmp_path, "SELECT * FROM nope"))["error"]


def run(task: QueryTask) -> dict[str, Any]:
    ended = subprocess.run(
        [sys.executable, "-m", "smq.sql.worker"],
        input=json.dumps(task._asdict()),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    has_died = ended.returncode not in {0, REFUSED}
    found: dict[str, Any] = {"error": "died"} if has_died else json.loads(ended.stdout)
    assert has_died or (ended.returncode == REFUSED) == ("error" in found)
    return found


@pytest.mark.slow
def test_it_is_a_program(tmp_path: Path, seal_topic: SealTopic) -> None:
    seal_topic([batch(0, 2)])
    assert run(task(tmp_path, "SELECT count(*) AS n FROM orders"))["rows"] == [[2]]


@pytest.mark.slow
@pytest.mark.parametrize(
    "expression",
    ["repeat('x', 4000000000)", "format('{:2000000000d}', 1)"],
)
def test_a_function_that_builds_too_much_fails(
    tmp_path: Path, seal_topic: SealTopic, expression: str
) -> None:
    seal_topic([batch(0, 2)])
    assert "error" in run(task(tmp_path, f"SELECT length({expression})"))


def test_numbers_that_json_lacks_are_text(tmp_path: Path, seal_topic: SealTopic) -> None:
    """Awkward records: the front could not encode its answer."""
    query = "SELECT 'nan'::DOUBLE AS n, ['-inf'::FLOAT] AS l"
    assert told(task(tmp_path, query))["rows"] == [["NaN", ["-Infinity"]]]
    assert b':[["NaN",["-Infinity"]]]' in answer(task(tmp_path, query)).json


def test_values_as_json() -> None:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    assert plain({"a": [b"x", at, None, 1.5, True]}) == {
        "a": [{"base64": "eA=="}, "2026-01-02T00:00:00+00:00", None, 1.5, True]
    }
