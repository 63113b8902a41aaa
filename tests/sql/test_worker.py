"""The query process of the HTTP door."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from smq.sql.worker import QueryTask, answer, plain
from tests.sealer.sealed import batch
from tests.spark_jobs.conftest import SealTopic, seal_topic

__all__ = ["seal_topic"]


def task(data_dir: Path, query: str, rows_max: int = 100, bytes_max: int = 1 << 20) -> QueryTask:
    filer = [str(data_dir / "filer"), "", ""]
    return QueryTask(query, None, str(data_dir), filer, 256 << 20, 10.0, rows_max, bytes_max)


def test_rows_of_a_stopped_brokers_topics(tmp_path: Path, seal_topic: SealTopic) -> None:
    seal_topic([batch(0, 5)])
    told = answer(task(tmp_path, 'SELECT "offset" AS o FROM orders ORDER BY o'))
    assert told == {
        "columns": ["o"],
        "types": ["int64"],
        "rows": [[0], [1], [2], [3], [4]],
        "truncated": False,
    }


def test_rows_and_bytes_are_bounded(tmp_path: Path, seal_topic: SealTopic) -> None:
    seal_topic([batch(0, 1)])
    some = answer(task(tmp_path, "SELECT * FROM range(1000)", rows_max=7))
    assert (len(some["rows"]), some["truncated"]) == (7, True)
    few = answer(task(tmp_path, "SELECT repeat('x', 1000) FROM range(1000)", bytes_max=100))
    assert (few["rows"], few["truncated"]) == ([], True)


def test_times_that_python_has_not_are_text(tmp_path: Path, seal_topic: SealTopic) -> None:
    """Use fault 5: the process died, and the front said that it had too little memory."""
    seal_topic([batch(0, 2)])
    query = "SELECT TIMESTAMP '20000-01-02 03:04:05' AS t, [DATE '20000-01-01'] AS l FROM orders"
    assert (
        answer(task(tmp_path, query))["rows"]
        == [["20000-01-02T03:04:05.000000", ["20000-01-01"]]] * 2
    )


def test_a_failure_is_a_sentence(tmp_path: Path, seal_topic: SealTopic) -> None:
    seal_topic([batch(0, 1)])
    assert "the topics are orders" in answer(task(tmp_path, "SELECT * FROM nope"))["error"]


def run(task: QueryTask) -> dict[str, Any]:
    ended = subprocess.run(
        [sys.executable, "-m", "smq.sql.worker"],
        input=json.dumps(task._asdict()),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    told: dict[str, Any] = json.loads(ended.stdout) if ended.returncode == 0 else {"error": "died"}
    return told


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
    told = answer(task(tmp_path, "SELECT 'nan'::DOUBLE AS n, ['-inf'::FLOAT] AS l"))
    assert told["rows"] == [["NaN", ["-Infinity"]]]
    json.dumps(told, allow_nan=False)


def test_values_as_json() -> None:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    assert plain({"a": [b"x", at, None, 1.5, True]}) == {
        "a": [{"base64": "eA=="}, "2026-01-02T00:00:00+00:00", None, 1.5, True]
    }
