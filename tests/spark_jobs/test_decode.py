"""JSON becomes columns, and what does not fit is kept with the reason."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from smq.testing.smq_broker import SmqBroker
from spark_jobs import decode
from spark_jobs.decode import transform
from tests.spark_jobs.conftest import RunJob, frame

pytestmark = pytest.mark.spark
VALUES = [
    b'{"user": "ann", "amount": 1.5, "more": 1}', b'{"user": null}', None,
    b'{"user": "x", "amount": "y"}', b"not json", b"[1]", b'{"user": "\xff"}', b"", b"{}",
]  # fmt: skip
GOOD = [0, 1, 2, 8]


def test_values_are_columns_or_dead_letters(spark: SparkSession) -> None:
    records = frame(spark, [(n, b"k", value) for n, value in enumerate(VALUES)])
    good, bad = transform(records, "user STRING, amount DOUBLE")
    found = {row.offset: (row.user, row.amount) for row in good.collect()}
    assert sorted(found) == GOOD
    assert (found[0], found[1], found[2]) == (("ann", 1.5), (None, None), (None, None))
    letters = bad.collect()
    assert {bytes(row.value) for row in letters} == {
        value for n, value in enumerate(VALUES) if n not in GOOD
    }
    for row in letters:
        told = {each.key: bytes(each.value).decode() for each in row.headers}
        assert VALUES[int(told["smq.dead.offset"])] == row.value
        is_text = b"\xff" not in row.value
        assert told["smq.dead.reason"] == (
            "not a JSON object of the schema" if is_text else "not UTF-8"
        )
    with pytest.raises(ValueError, match="the schema has offset, which is a column of the topic"):
        transform(records, "offset INT")


def test_each_run_of_the_program_adds_what_is_new(
    spark: SparkSession, smq_broker: SmqBroker, tmp_path: Path, run_job: RunJob
) -> None:
    table = tmp_path / "table"
    place = ("--data-dir", smq_broker.data_dir)
    into_topic = ("--output", table, "--dead-letters", "dead")
    with smq_broker.connect() as client:
        client.create_topic("orders", 1)

        def send() -> None:
            with client.producer() as producer:
                for value in VALUES:
                    producer.send("orders", value, key=b"k")

        def run(*output: object, schema: str = "user STRING, amount DOUBLE") -> str:
            said = run_job(decode, "orders", *place, *output, "--schema", schema)
            return said.splitlines()[-1]

        bad = len(VALUES) - len(GOOD)
        send()
        with pytest.raises(SystemExit, match="there is no topic dead; create it first"):
            run(*into_topic)
        client.create_topic("dead", 1)
        assert run(*into_topic) == f"0 rows, {bad} dead letters", "the rows were written before"
        send()
        assert run(*into_topic) == f"{len(GOOD)} rows, {bad} dead letters"
        assert run(*into_topic) == "0 rows, 0 dead letters"
        assert (
            run("--output", tmp_path / "other") == f"{2 * len(GOOD)} rows, {2 * bad} dead letters"
        )
        with client.consumer("dead", start="earliest") as consumer:
            found = list(consumer.read_until(consumer.find("latest")))
        with pytest.raises(SystemExit, match="made with another schema; name a new directory"):
            run(*into_topic, schema="user STRING")
    wanted = sorted([*GOOD, *(len(VALUES) + each for each in GOOD)])
    for each in (table, tmp_path / "other"):
        assert sorted(row.offset for row in spark.read.parquet(str(each)).collect()) == wanted
    assert spark.read.parquet(f"{tmp_path}/other.dead").count() == 2 * bad
    assert len(found) == 2 * bad
    assert {record.key for record in found} == {b"k"}
