"""Typed columns in Spark: from files of all ages and from what is not sealed, by every reader."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from smq.client.kafka.cluster import Cluster
from smq.client.kafka.topic_changes import alter_topic
from smq.sealer.typed import typed_columns
from smq.testing.smq_broker import SmqBroker
from spark_jobs.read import read_topic
from spark_jobs.source.options import WrongOption
from spark_jobs.source.reading import all_columns, columns_of
from spark_jobs.source.typed import typed_ddl, typed_kinds
from spark_jobs.stream_topic import stream_topic
from tests.spark_jobs.conftest import wait_for
from tests.spark_jobs.source.test_reading import sealed_end

PRICE: dict[str, object] = {"name": "price", "type": "double"}
MORE: list[dict[str, object]] = [
    {"name": "n", "type": "int32"},
    {"name": "count", "type": "int64"},
    {"name": "f", "type": "float"},
    {"name": "ok", "type": "bool"},
    {"name": "order", "type": "string"},
    {"name": "tags", "type": {"list": "string"}},
    {"name": "buyer", "type": {"struct": [{"name": "id", "type": "int64"}]}},
    {"name": "sent", "type": "timestamp", "from": "timestamp"},
    {"name": "raw", "type": "bytes"},
    {"name": "day", "type": "date"},
    {"name": "cost", "type": "decimal"},
    {"name": "at", "type": "time"},
]
FULL = (
    b'{"price": 2.5, "n": 1, "count": 9, "f": 0.5, "ok": true, "order": "a", "tags": ["x", null],'
    b' "buyer": {"id": 3}, "timestamp": "2026-01-02T03:04:05.000006Z",'
    b' "raw": "x", "day": "2026-01-02", "cost": "-1.5", "at": 7}'
)
DAY, COST = date(2026, 1, 2), Decimal("-1.5")
SENT = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
ALL = (2.5, 1, 9, 0.5, True, "a", ["x", None], (3,), SENT, b"x", DAY, COST, 7)
NONE = (None,) * len(ALL)
# Sealed before there was a schema; with one column, two rows; with all; not sealed, two rows.
ROWS = [NONE, (2.5, *NONE[1:]), NONE, ALL, ALL, NONE]
KAFKAS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


def schema(*fields: dict[str, object]) -> str:
    return json.dumps({"fields": fields})


def test_sparks_types_are_those_of_the_files() -> None:
    text = schema(PRICE, *MORE)
    kinds = typed_kinds(text)
    columns = typed_columns(text)
    assert columns is not None
    assert list(kinds) == columns.names
    assert kinds["tags"] == "array<string>"
    assert kinds["buyer"] == "struct<id:bigint>"
    assert typed_ddl(schema(PRICE)) == ", `price` double"
    assert typed_ddl("") == ""


@pytest.fixture
def orders(smq_broker: SmqBroker) -> SmqBroker:
    """A broker with ROWS."""

    def configured(**configs: str) -> None:
        with Cluster(smq_broker.bootstrap) as cluster:
            alter_topic(
                cluster, "orders", {f"smq.{key}": text for key, text in configs.items()}, []
            )

    with smq_broker.connect() as client:
        client.create_topic("orders", 1, {"smq.seal.ms": "1000"})
        steps: list[tuple[list[dict[str, object]], list[bytes]]] = [
            ([], [FULL]),
            ([PRICE], [FULL, b"no JSON"]),
            ([PRICE, *MORE], [FULL]),
        ]
        end = 0
        for fields, values in steps:
            if fields:
                configured(schema=schema(*fields))
            with client.producer() as producer:
                producer.send_batch("orders", {"value": values})
            end += len(values)
            wait_for(lambda end=end: sealed_end(smq_broker, "orders") == end)  # type: ignore[misc]
        configured(**{"seal.ms": "3600000"})
        with client.producer() as producer:
            producer.send_batch("orders", {"value": [FULL, b'{"price": "dear"}']})
    return smq_broker


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    """The typed columns, in order of offsets."""
    names = [field["name"] for field in [PRICE, *MORE]]
    rows = frame.orderBy("offset").select(*(f"`{name}`" for name in names)).collect()
    at = names.index("sent")
    return [(*row[:at], row.sent and row.sent.astimezone(UTC), *row[at + 1 :]) for row in rows]


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_every_reader_has_the_same_columns(
    spark: SparkSession, orders: SmqBroker, tmp_path: Path
) -> None:
    native = read_topic(spark, "orders", data_dir=orders.data_dir, tail="live", typed=True)
    names = [*KAFKAS, "headers", "price", *(each["name"] for each in MORE)]
    assert native.columns == names
    assert rows_of(native) == ROWS
    kafkas = read_topic(spark, "orders", data_dir=orders.data_dir, tail="live")
    assert kafkas.columns == [*KAFKAS, "headers"]
    plan = native.where("price > 2").select("price")._jdf.queryExecution().executedPlan().toString()
    assert "GreaterThan(price,2.0)" in plan

    source = spark.read.format("smq").option("subscribe", "orders").option("typed", "true")
    rows = source.option("kafka.bootstrap.servers", orders.bootstrap).load()
    assert rows.columns == [each for each in names if each != "headers"]
    assert rows_of(rows) == ROWS
    few = (
        source.option("dataDir", str(orders.data_dir)).schema("order string, offset bigint").load()
    )
    assert sorted(row.offset for row in few.where("`order` = 'a'").collect()) == [3, 4]

    found: list[tuple[Any, ...]] = []
    stream = stream_topic(
        spark, "orders", dataDir=orders.data_dir, startingOffsets="earliest", typed=True
    )
    query = stream.foreach_batch(
        lambda batch, _: found.extend(rows_of(batch)),
        checkpoint=tmp_path / "native",
        availableNow=True,
    )
    assert query.awaitTermination(120)
    assert found == ROWS

    found.clear()
    typed = spark.readStream.format("smq").option("subscribe", "orders").option("typed", "true")
    typed = typed.option("dataDir", str(orders.data_dir)).option("startingOffsets", "earliest")
    writer = typed.load().writeStream.foreachBatch(lambda batch, _: found.extend(rows_of(batch)))
    writer = writer.option("checkpointLocation", str(tmp_path / "rows"))
    assert writer.trigger(availableNow=True).start().awaitTermination(120)
    assert found == ROWS


@pytest.mark.spark
def test_a_topic_without_a_schema_has_kafkas_columns(
    spark: SparkSession, smq_broker: SmqBroker
) -> None:
    with smq_broker.connect() as client:
        client.create_topic("orders", 1)
    rows = read_topic(spark, "orders", data_dir=smq_broker.data_dir, typed=True)
    assert rows.columns == [*KAFKAS, "headers"]
    source = spark.read.format("smq").option("subscribe", "orders").option("typed", "true")
    assert source.option("dataDir", str(smq_broker.data_dir)).load().columns == KAFKAS
    with pytest.raises(WrongOption, match="the typed columns of one topic"):
        read_topic(spark, ["orders"], data_dir=smq_broker.data_dir, typed=True)
    with pytest.raises(WrongOption, match="subscribe must then be one topic"):
        stream_topic(spark, ["a", "b"], dataDir=smq_broker.data_dir, typed=True)
    with pytest.raises(Exception, match="there is no topic nothing"):
        read_topic(spark, "nothing", data_dir=smq_broker.data_dir, typed=True)
    fitting = spark.createDataFrame([], "price double, offset bigint").schema
    assert columns_of(fitting, all_columns(schema(PRICE))).names == ["price", "offset"]
    wrong = spark.createDataFrame([], "price string").schema
    with pytest.raises(WrongOption, match="the schema has price string; the columns are key bin"):
        columns_of(wrong, all_columns(schema(PRICE)))
