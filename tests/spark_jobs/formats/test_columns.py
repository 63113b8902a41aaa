"""A batch of values becomes a batch of structs."""

import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_type

from smq.testing.smq_broker import SmqBroker
from spark_jobs import decode
from spark_jobs.decode import transform
from spark_jobs.formats.avro import Avro
from spark_jobs.formats.columns import _decoded
from spark_jobs.formats.protobuf import Protobuf
from tests.spark_jobs.conftest import RunJob, frame, wait_for
from tests.spark_jobs.formats import test_avro, test_protobuf
from tests.spark_jobs.formats.messages import descriptors


def test_a_value_that_is_none_of_its_column_is_a_dead_letter() -> None:
    schema = test_avro.record(
        {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 2}}
    )
    wide = {"type": "bytes", "logicalType": "decimal", "precision": 9}
    wider = test_avro.record({"name": "d", "type": wide})
    values = [test_avro.encoded(wider, {"d": Decimal(n)}) for n in (12, 123456, 34)]
    form = Avro(json.dumps(schema))
    row_type = to_arrow_type(form.columns, timezone="UTC")
    found = _decoded(pa.array([*values, None, b"\xff"], pa.binary()), form, row_type).to_pylist()
    assert [each["row"] and int(each["row"]["d"]) for each in found] == [12, None, 34, None, None]
    assert [each["bad"] is None for each in found] == [True, False, True, True, False]


@pytest.mark.spark
def test_spark_gets_typed_rows_and_dead_letters(
    spark: SparkSession, smq_broker: SmqBroker, tmp_path: Path, run_job: RunJob
) -> None:
    records = frame(spark, enumerate_values([test_protobuf.WHOLE, b"\x0a\xff", None]))
    good, bad = transform(records, Protobuf(descriptors(), "shop.Order"))
    rows = {row.offset: row for row in good.collect()}
    assert (rows[0].user, rows[0].counts, rows[0].lines[0].n) == ("ann", {"c": 7}, -1)
    assert rows[2].user is None
    [letter] = bad.collect()
    assert letter.value == b"\x0a\xff"
    (tmp_path / "order.avsc").write_text(json.dumps(test_avro.ORDER))
    with smq_broker.connect() as client:
        client.create_topic("orders", 1, {"smq.seal.ms": "1000"})
        client.create_topic("dead", 1)
        with client.producer() as producer:
            for value in (test_avro.WHOLE, test_avro.WHOLE[:-1], test_avro.WHOLE):
                producer.send("orders", value, key=b"k")
        wait_for(lambda: next((smq_broker.data_dir / "filer").rglob("*.parquet"), None) is not None)
        table = tmp_path / "table"
        said = run_job(
            decode, "orders", "--data-dir", smq_broker.data_dir, "--output", table,
            "--format", "avro", "--schema", tmp_path / "order.avsc", "--dead-letters", "dead",
        )  # fmt: skip
        assert said.endswith("\n2 rows, 1 dead letters\n"), said  # Behind lines of progress.
        with client.consumer("dead", start="earliest") as consumer:
            [dead] = consumer.read_until(consumer.find("latest"))
            told = {name: bytes(value or b"") for name, value in dead.headers}
    assert told["smq.dead.offset"] == b"1"
    assert told["smq.dead.reason"].startswith(b"not Avro data of this schema: ")
    row = spark.read.parquet(str(table)).first()
    assert row is not None
    assert (row.user, row.price, row.day) == ("ann", test_avro.ROW["price"], test_avro.ROW["day"])


def enumerate_values(values: list[bytes | None]) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(offset, b"k", value) for offset, value in enumerate(values)]


@pytest.mark.parametrize(
    "wrong",
    [
        ["--format", "protobuf", "--schema", "x"],
        ["--format", "avro", "--schema", "x", "--registry", "y"],
        ["--framed", "--schema", "a INT"],
    ],
)
def test_options_that_do_not_go_together_are_refused(run_job: RunJob, wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run_job(decode, "orders", "--data-dir", "d", "--output", "o", *wrong)
    assert ended.value.code == 2
