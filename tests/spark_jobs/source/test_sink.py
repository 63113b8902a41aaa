"""`write` and `writeStream` of `format("smq")`."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, LongType, StringType, StructType

import smq
from smq.model.errors import BrokerError
from smq.model.security_settings import STANDARD_AUTHORIZER
from smq.testing.smq_broker import SmqBroker
from spark_jobs.source.options import WrongOption
from spark_jobs.source.sink import SmqWriter, checked_topic
from tests.broker.guarded import address_of, config_of, guarded_broker, new_topic
from tests.spark_jobs.conftest import send
from tests.spark_jobs.source.test_publishing import values

VALUE = StructType().add("value", BinaryType())


def test_rows_have_a_topic() -> None:
    assert checked_topic({"TOPIC": "t"}, VALUE) == "t"
    assert checked_topic({"topic": "t"}, VALUE.add("topic", StringType())) == "t"
    named = StructType().add("value", StringType()).add("topic", StringType())
    assert checked_topic({}, named) is None


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (StructType().add("value", BinaryType()), "topic option required"),
        (StructType().add("topic", StringType()), "Required attribute 'value' not found"),
        (StructType().add("value", LongType()), "column value is bigint; the sink's columns are"),
        (StructType().add("n", LongType()), "column n is bigint"),
    ],
)
def test_wrong_columns_are_named(schema: StructType, said: str) -> None:
    with pytest.raises(WrongOption, match=said):
        checked_topic({}, schema)


def test_a_topic_is_not_overwritten() -> None:
    with pytest.raises(WrongOption, match="cannot be overwritten"):
        SmqWriter({"dataDir": "/d", "topic": "t"}, VALUE, overwrite=True)


@pytest.mark.spark
def test_a_frame_is_written_to_a_topic(spark: SparkSession, smq_broker: SmqBroker) -> None:
    with smq_broker.connect() as client:
        client.create_topic("orders", 2)
    rows = spark.range(100).selectExpr("cast(id as string) as value", "cast(id as string) as key")
    writer = rows.write.format("smq").option("kafka.bootstrap.servers", smq_broker.bootstrap)
    writer.option("topic", "orders").mode("append").save()
    assert values(smq_broker) == list(range(100))


def copy(spark: SparkSession, data_dir: Path, checkpoint: Path) -> None:
    """Copy what is new in `orders`, by a stream that names the broker's data directory."""
    rows: DataFrame = (
        spark.readStream.format("smq")
        .option("dataDir", str(data_dir))
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
        .select("key", "value")
    )
    query = (
        rows.writeStream.format("smq")
        .option("dataDir", str(data_dir))
        .option("topic", "copy")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)


@pytest.mark.spark
def test_a_stream_is_written_once_through_restarts(
    spark: SparkSession, smq_broker: SmqBroker, tmp_path: Path
) -> None:
    with smq_broker.connect() as client:
        client.create_topic("orders", 2)
        client.create_topic("copy", 3)

    checkpoint = tmp_path / "checkpoint"
    for first in (0, 20):
        with smq_broker.connect() as client:
            send(client, first, 20)
        copy(spark, smq_broker.data_dir, checkpoint)
        # As if Spark had died between the sink's commit and its own.
        last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda each: int(each.name))
        last.unlink()
        (checkpoint / "commits" / f".{last.name}.crc").unlink(missing_ok=True)
    copy(spark, smq_broker.data_dir, checkpoint)
    assert values(smq_broker, "copy") == list(range(40))


@pytest.mark.spark
def test_a_stream_by_the_data_directory_has_the_rights_of_its_unix_user(
    spark: SparkSession, tmp_path: Path
) -> None:
    """At a TCP listener it would be nobody, who may do nothing."""
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER}
    with SmqBroker(tmp_path / "broker", settings) as broker:
        data_dir = broker.data_dir
        with pytest.raises(BrokerError), broker.connect() as client:
            client.create_topic("orders", 2)
        with smq.connect(data_dir) as client:
            client.create_topic("orders", 2)
            client.create_topic("copy", 1)
            send(client, 0, 20)
        copy(spark, data_dir, tmp_path / "checkpoint")
        rows = spark.read.format("smq").option("dataDir", str(data_dir)).option("subscribe", "copy")
        read = rows.load().selectExpr("cast(value as string)").collect()
    assert sorted(int(row[0]) for row in read) == list(range(20))


@pytest.mark.spark
def test_a_frame_is_written_and_read_with_files_of_properties(
    spark: SparkSession, tmp_path: Path
) -> None:
    with guarded_broker(tmp_path / "broker") as broker:
        topic, address = new_topic(broker), address_of(broker)
        for user in ("writer", "reader"):
            lines = (f"{name}={value}\n" for name, value in config_of(user).items())
            (tmp_path / user).write_text("".join(lines))
        rows = spark.range(100).selectExpr("cast(id as string) as value")
        writer = rows.write.format("smq").option("kafka.bootstrap.servers", address)
        writer = writer.option("topic", topic).option("clientConfig", str(tmp_path / "writer"))
        writer.mode("append").save()
        reader = spark.read.format("smq").option("kafka.bootstrap.servers", address)
        reader = reader.option("subscribe", topic).option("clientConfig", str(tmp_path / "reader"))
        read = reader.load().selectExpr("cast(value as string)").collect()
    assert sorted(int(row[0]) for row in read) == list(range(100))
