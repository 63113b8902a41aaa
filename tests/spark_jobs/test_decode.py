"""JSON becomes columns, and what does not fit is kept with the reason."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from smq.testing.smq_broker import SmqBroker
from spark_jobs import decode
from spark_jobs.decode import transform
from tests.spark_jobs.conftest import RunJob, frame, wait_for

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


def test_the_program_sends_dead_letters_to_a_topic(
    spark: SparkSession, smq_broker: SmqBroker, tmp_path: Path, run_job: RunJob
) -> None:
    with smq_broker.connect() as client:
        client.create_topic("orders", 1, {"smq.seal.ms": "1000"})
        client.create_topic("dead", 1)
        with client.producer() as producer:
            for value in VALUES:
                producer.send("orders", value, key=b"k")
        wait_for(lambda: next((smq_broker.data_dir / "filer").rglob("*.parquet"), None) is not None)
        table = tmp_path / "table"
        said = run_job(
            decode, "orders", "--data-dir", smq_broker.data_dir, "--output", table,
            "--schema", "user STRING, amount DOUBLE", "--dead-letters", "dead",
        )  # fmt: skip
        assert said == f"{len(GOOD)} rows, {len(VALUES) - len(GOOD)} dead letters\n"
        with client.consumer("dead", start="earliest") as consumer:
            found = list(consumer.read_until(consumer.find("latest")))
    assert len(found) == len(VALUES) - len(GOOD)
    assert {record.key for record in found} == {b"k"}
