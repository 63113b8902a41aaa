"""`readStream.format("smq")`: every record once, through restarts; limits; what is gone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, functions as f
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows
from pyspark.sql.types import LongType, StructType

from smq.client.kafka.cluster import Cluster
from smq.client.kafka.group_admin import committed_offsets
from smq.tables.plan import Unreadable
from smq.testing.smq_broker import SmqBroker
from spark_jobs.source.stream import SmqStreamReader
from tests.spark_jobs.conftest import send, wait_for

Batches = list[list[int]]


@pytest.fixture
def broker(smq_broker: SmqBroker) -> SmqBroker:
    """A broker with the topic "orders" of two partitions."""
    with smq_broker.connect() as client:
        client.create_topic("orders", 2, {"smq.seal.ms": "1000"})
    return smq_broker


def reader(broker: SmqBroker, **options: object) -> SmqStreamReader:
    given = {"subscribe": "orders", "kafka.bootstrap.servers": broker.bootstrap}
    schema = StructType().add("offset", LongType())
    return SmqStreamReader(given | {name: str(value) for name, value in options.items()}, schema)


def add(broker: SmqBroker, first: int, count: int) -> None:
    with broker.connect() as client:
        send(client, first, count)


def offsets(zero: int, one: int) -> dict[str, dict[str, int]]:
    return {"orders": {"0": zero, "1": one}}


def latest(source: SmqStreamReader, start: Any, limit: ReadLimit) -> dict[str, Any]:
    """Where a batch ends, without topics' ids."""
    return {topic: found for topic, found in source.latestOffset(start, limit).items() if topic}


def covered(source: SmqStreamReader, start: Any, end: Any) -> int:
    tasks: Any = source.partitions(start, end)
    return sum(piece.end - piece.start for task in tasks for piece in task.pieces)


def test_the_first_batch_pins_where_the_stream_starts(broker: SmqBroker) -> None:
    add(broker, 0, 10)
    source = reader(broker)
    try:
        first = latest(source, source.initialOffset(), ReadAllAvailable())
        assert first == offsets(5, 5)
        assert source.partitions(source.initialOffset(), first) == []
        add(broker, 10, 4)
        assert latest(source, first, ReadAllAvailable()) == offsets(7, 7)
        assert source.reportLatestOffset() == offsets(7, 7)
        assert covered(source, first, offsets(7, 7)) == 4
    finally:
        source.stop()


def test_limits_are_kept_unless_spark_wants_all(broker: SmqBroker) -> None:
    add(broker, 0, 20)
    source = reader(broker, maxOffsetsPerTrigger=6)
    assert source.getDefaultReadLimit() == ReadMaxRows(6)
    try:
        assert latest(source, offsets(0, 0), ReadMaxRows(6)) == offsets(3, 3)
        assert latest(source, offsets(0, 0), ReadAllAvailable()) == offsets(10, 10)
        source.prepareForTriggerAvailableNow()
        add(broker, 20, 4)
        assert latest(source, offsets(9, 9), ReadMaxRows(6)) == offsets(10, 10)
        assert latest(source, offsets(10, 10), ReadMaxRows(6)) == offsets(10, 10)
    finally:
        source.stop()


def test_few_records_wait(broker: SmqBroker) -> None:
    add(broker, 0, 20)
    source = reader(broker, minOffsetsPerTrigger=6)
    assert source.getDefaultReadLimit() == ReadMinRows(6)
    try:
        assert latest(source, offsets(0, 0), ReadMinRows(6)) == offsets(10, 10)
        add(broker, 20, 4)
        assert latest(source, offsets(10, 10), ReadMinRows(6)) == offsets(10, 10)
        add(broker, 24, 2)
        assert latest(source, offsets(10, 10), ReadMinRows(6)) == offsets(13, 13)
    finally:
        source.stop()


def test_a_group_says_how_far_the_stream_is(
    broker: SmqBroker, caplog: pytest.LogCaptureFixture
) -> None:
    add(broker, 0, 20)
    source = reader(broker, commitGroup="orders-stream")
    with Cluster(broker.bootstrap) as cluster:
        try:
            source.latestOffset(source.initialOffset(), ReadAllAvailable())
            assert committed_offsets(cluster, "orders-stream") == {}
            source.latestOffset(offsets(4, 5), ReadAllAvailable())
            found = committed_offsets(cluster, "orders-stream")
            assert {each.partition: offset for each, offset in found.items()} == {0: 4, 1: 5}
            with (
                broker.connect() as client,
                client.consumer("orders", group="orders-stream") as other,
            ):
                other.poll(5)  # A group with members is theirs.
                source.latestOffset(offsets(5, 5), ReadAllAvailable())
        finally:
            source.stop()
    assert "offsets could not be committed to group orders-stream" in caplog.text


def test_a_topic_that_is_gone_or_new_is_said(broker: SmqBroker) -> None:
    add(broker, 0, 10)
    strict, lenient = reader(broker), reader(broker, failOnDataLoss="false")
    try:
        assert strict.reportLatestOffset() == lenient.reportLatestOffset() == offsets(5, 5)
        with broker.connect() as client:
            client.delete_topic("orders")
            wait_for(lambda: not client.topics())
            with pytest.raises(Unreadable, match=r"there is no topic orders.*failOnDataLoss"):
                strict.latestOffset(offsets(5, 5), ReadAllAvailable())
            assert latest(lenient, offsets(5, 5), ReadAllAvailable()) == {}
            client.create_topic("orders", 2)
        add(broker, 0, 4)
        changed = "orders-0's offset was changed from 5 to 2, some data may have been missed"
        with pytest.raises(Unreadable, match=changed):
            strict.latestOffset(offsets(5, 5), ReadAllAvailable())
        assert latest(lenient, offsets(5, 5), ReadAllAvailable()) == offsets(2, 2)
        assert lenient.partitions(offsets(5, 5), offsets(2, 2)) == []
        assert covered(lenient, {}, offsets(2, 2)) == 4
    finally:
        strict.stop()
        lenient.stop()


def test_a_topic_that_was_created_again_is_another(broker: SmqBroker) -> None:
    add(broker, 0, 6)
    strict, lenient = reader(broker), reader(broker, failOnDataLoss="false")
    everything = ReadAllAvailable()
    try:
        start = strict.latestOffset(strict.initialOffset(), everything)
        start = strict.latestOffset(start, everything)
        with broker.connect() as client:
            client.delete_topic("orders")
            wait_for(lambda: not client.topics())
            client.create_topic("orders", 2)
        add(broker, 100, 20)  # Its ends are behind the stream's offsets.
        for source in (strict, reader(broker)):  # Also one that is started again.
            with pytest.raises(Unreadable, match="Topic orders was deleted and created again"):
                source.latestOffset(start, everything)
            with pytest.raises(Unreadable, match="Topic orders was deleted and created again"):
                source.partitions(start, start)
            source.stop()
        end = lenient.latestOffset(start, everything)
        assert covered(lenient, start, end) == 20
        assert covered(lenient, start, start) == 0
    finally:
        strict.stop()
        lenient.stop()


def run(rows: DataFrame, checkpoint: Path, then: Callable[[DataFrame, int], None]) -> None:
    writer = rows.writeStream.foreachBatch(then).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(120)


def stream(spark: SparkSession, broker: SmqBroker, **options: object) -> DataFrame:
    given = spark.readStream.format("smq").option("subscribe", "orders")
    given = given.option("kafka.bootstrap.servers", broker.bootstrap)
    for name, value in options.items():
        given = given.option(name, str(value))
    return given.load()


@pytest.mark.spark
def test_every_record_once_through_restarts(
    spark: SparkSession, broker: SmqBroker, tmp_path: Path
) -> None:
    batches: Batches = []

    def keep(rows: DataFrame, _: int) -> None:
        batches.append([int(row.value) for row in rows.select("value").collect()])

    def fail(rows: DataFrame, _: int) -> None:
        raise RuntimeError("the sink is down")

    rows = stream(spark, broker, startingOffsets="earliest", maxOffsetsPerTrigger=8)
    for first in (0, 12):
        add(broker, first, 12)
        if first:
            with pytest.raises(Exception, match="the sink is down"):
                run(rows, tmp_path / "checkpoint", fail)
        run(rows, tmp_path / "checkpoint", keep)
    assert sorted(each for batch in batches for each in batch) == list(range(24))
    assert max(map(len, batches)) == 8


@pytest.mark.spark
def test_windows_with_watermarks_sum_up(
    spark: SparkSession, broker: SmqBroker, tmp_path: Path
) -> None:
    with broker.connect() as client, client.producer() as producer:
        for each in range(100):
            producer.send("orders", b"%d" % each, partition=each % 2, timestamp_ms=1000 * each)
    rows = stream(spark, broker, startingOffsets="earliest", maxOffsetsPerTrigger=40)
    counts = (
        rows.withWatermark("timestamp", "5 seconds")
        .groupBy(f.window("timestamp", "10 seconds"))
        .count()
    )
    query = (
        counts.writeStream.outputMode("append")
        .format("memory")
        .queryName("windows")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    found = [row["count"] for row in spark.table("windows").collect()]
    assert found == [10] * 9  # The last window is open.
