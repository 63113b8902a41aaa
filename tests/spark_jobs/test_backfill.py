"""Dates of a topic are written anew, and each run goes on where the last one ended."""

import json
from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from smq.tables.plan import Unreadable
from smq.testing.smq_broker import SmqBroker
from spark_jobs import backfill
from spark_jobs.backfill import DONE, Progress, days
from tests.spark_jobs.conftest import RunJob

DAY_MS = 86_400_000


def test_both_ends_are_dates_of_a_range() -> None:
    assert [day.day for day in days(date(2013, 1, 30), date(2013, 2, 2))] == [30, 31, 1, 2]
    assert [*days(date(2013, 1, 2), date(2013, 1, 1))] == []


def test_a_table_says_which_dates_are_done(tmp_path: Path) -> None:
    Progress(tmp_path, "orders").add(date(2013, 1, 1), 5)
    Progress(tmp_path, "orders").add(date(2013, 1, 2), 0)
    assert Progress(tmp_path, "orders").rows == {"2013-01-01": 5, "2013-01-02": 0}
    with pytest.raises(Unreadable, match="has the topic orders in format 1, not others"):
        Progress(tmp_path, "others")
    (tmp_path / DONE).write_text('{"format": 1, "topic": "orders"}')
    with pytest.raises(Unreadable, match="does not say which dates are done"):
        Progress(tmp_path, "orders")
    (tmp_path / "_spark_metadata").mkdir()
    with pytest.raises(Unreadable, match="is written by a stream"):
        Progress(tmp_path, "orders")


@pytest.mark.spark
def test_a_run_goes_on_where_the_last_one_ended(
    spark: SparkSession, smq_broker: SmqBroker, tmp_path: Path, run_job: RunJob
) -> None:
    table = tmp_path / "table"
    with smq_broker.connect() as client:
        client.create_topic("orders", 2)
        with client.producer() as producer:
            for each in (29, 0, 10, 1, 11, 2):  # Three days, of ten, out of order.
                producer.send("orders", b"%d" % each, timestamp_ms=each // 10 * DAY_MS + each)

    def run(last: str, *more: str) -> dict[str, int]:
        said = run_job(
            backfill, "orders", "--data-dir", smq_broker.data_dir, "--output", table,
            "--from", "1970-01-01", "--to", last, *more,
        )  # fmt: skip
        return {line["date"]: line["rows"] for line in map(json.loads, said.splitlines())}

    def found() -> dict[int, date]:
        rows = spark.read.parquet(str(table)).collect()
        return {int(row.value): row.date for row in rows}

    assert run("1970-01-01") == {"1970-01-01": 3}
    (table / "date=1970-01-02").mkdir()
    (table / "date=1970-01-02" / "part-of-a-killed-run.parquet").write_bytes(b"PAR1")
    assert run("1970-01-03") == {"1970-01-02": 2, "1970-01-03": 1}
    days_of = [date(1970, 1, n) for n in (1, 2, 3)]
    assert found() == {n: days_of[n // 10] for n in (0, 1, 2, 10, 11, 29)}
    assert run("1970-01-03") == {}
    with smq_broker.connect() as client, client.producer() as producer:
        producer.send("orders", b"3", timestamp_ms=3)
    assert run("1970-01-01", "--again") == {"1970-01-01": 4}
    assert len(found()) == 7
