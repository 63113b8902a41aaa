"""Spark's ways in and out, over the awkward records, compared record by record."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from bench.spark.inputs import wait_sealed
from smq.testing.smq_broker import SmqBroker
from spark_jobs.read import read_topic
from tests.app.awkward_ways_in import Place, Records, by_send_batch, columns_of
from tests.app.awkward_ways_out import from_records, of_sql
from tests.awkward import ANY_TIME, INT64_MAX, NO_TIME, RECORDS, Awkward

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
DDL = "key binary, value binary, headers array<struct<key:string,value:binary>>, time bigint"
COLUMNS = ("key", "value", "headers", "timestamp")
STATES = ("live", "sealed")
# Those that Spark has: names as text, times as microseconds.
OF_SPARK = [x for x in RECORDS if x.has_text_names and abs(x.time_ms) <= INT64_MAX // 1000]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Place]]:
    directory = tmp_path_factory.mktemp("ways")
    with SmqBroker(tmp_path_factory.mktemp("broker"), {"seal.ms": "100"}) as broker:
        found = {state: Place(broker, state, directory) for state in STATES}
        with broker.connect() as client:
            for state, seal_ms in zip(STATES, ("86400000", "100"), strict=True):
                client.create_topic(state, 1, ANY_TIME | {"smq.seal.ms": seal_ms})
                by_send_batch(columns_of)(found[state], RECORDS)
        yield found


def of_rows(rows: DataFrame) -> Records:
    """Records of a DataFrame with the columns of Spark's Kafka source."""
    rows = rows.orderBy("offset")
    found = rows.selectExpr("key", "value", "headers", "unix_millis(timestamp) AS time").collect()
    return [
        Awkward(
            _bytes(row.key),
            _bytes(row.value),
            tuple((each.key.encode(), _bytes(each.value)) for each in row.headers or ()),
            NO_TIME if row.time is None else row.time,
        )
        for row in found
    ]


def _bytes(data: bytearray | None) -> bytes | None:
    return None if data is None else bytes(data)


def rows_of(spark: SparkSession, records: Records) -> DataFrame:
    """A DataFrame for the sink."""
    rows: list[tuple[Any, ...]] = [
        (x.key, x.value, [(name.decode(), value) for name, value in x.headers], x.time_ms)
        for x in records
    ]
    frame = spark.createDataFrame(rows, DDL).coalesce(1)
    return frame.selectExpr("key", "value", "headers", "timestamp_millis(time) AS timestamp")


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("reader", ["read_topic", "format"])
def test_spark_reads_the_records_that_were_sent(
    spark: SparkSession, places: dict[str, Place], state: str, reader: str
) -> None:
    place = places[state]
    if state == "sealed":
        wait_sealed(place.broker, place.topic, len(RECORDS))
    if reader == "read_topic":
        tail: Any = state
        rows = read_topic(spark, place.topic, data_dir=place.broker.data_dir, tail=tail)
    else:
        source = spark.read.format("smq").option("subscribe", place.topic)
        source = source.option("dataDir", str(place.broker.data_dir)).option("tail", state)
        rows = source.option("includeHeaders", "true").load()
    assert of_rows(rows) == [*map(of_sql, RECORDS)]


def test_spark_writes_the_rows_of_the_frame(spark: SparkSession, places: dict[str, Place]) -> None:
    """Use fault 6: times before 1970 were refused."""
    place = replace(places["live"], topic="written")
    with place.broker.connect() as client:
        client.create_topic(place.topic, 1, ANY_TIME)
    writer = rows_of(spark, OF_SPARK).write.format("smq").option("topic", place.topic)
    writer.option("dataDir", str(place.broker.data_dir)).mode("append").save()
    assert from_records("kafka")(place) == OF_SPARK


def test_parts_of_a_millisecond_before_1970_are_cut_as_by_sparks_kafka_sink(
    spark: SparkSession, places: dict[str, Place]
) -> None:
    place = replace(places["live"], topic="parts")
    with place.broker.connect() as client:
        client.create_topic(place.topic, 1, ANY_TIME)
    micros = [-1001, -1000, -999, -1, 0, 999]
    rows = spark.createDataFrame([(b"", each) for each in micros], "value binary, us bigint")
    rows = rows.coalesce(1).selectExpr("value", "timestamp_micros(us) AS timestamp")
    writer = rows.write.format("smq").option("topic", place.topic)
    writer.option("dataDir", str(place.broker.data_dir)).mode("append").save()
    times = [each.time_ms for each in from_records("kafka")(place)]
    assert times == [each // 1000 for each in micros]


def test_a_stream_copies_what_spark_has(
    spark: SparkSession, places: dict[str, Place], tmp_path: Path
) -> None:
    """Times that Spark has none for become the time of writing, as docs/records.md says."""
    place = replace(places["live"], topic="streamed")
    with place.broker.connect() as client:
        client.create_topic(place.topic, 1, ANY_TIME)
    where = {"dataDir": str(place.broker.data_dir)}
    source = spark.readStream.format("smq").options(**where, subscribe="live")
    rows = source.options(startingOffsets="earliest", includeHeaders="true").load()
    writer = rows.select(*COLUMNS).writeStream.format("smq").options(**where, topic=place.topic)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert writer.trigger(availableNow=True).start().awaitTermination(120)
    found = from_records("kafka")(place)
    written = [
        x if y.has_calendar_time else x._replace(time_ms=NO_TIME)
        for x, y in zip(found, RECORDS, strict=True)
    ]
    assert written == [*map(of_sql, RECORDS)]
