"""`stream_topic`: plans from the stream, rows by Spark's own reader, every record once."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from smq.client.kafka.cluster import Cluster
from smq.client.kafka.topic_changes import alter_topic
from smq.testing.smq_broker import SmqBroker
from spark_jobs.source.options import WrongOption
from spark_jobs.source.reading import PLAN_COLUMNS
from spark_jobs.stream_topic import planned_ranges, stream_topic
from tests.spark_jobs.conftest import send, wait_for
from tests.spark_jobs.test_read import _offsets

pytestmark = pytest.mark.spark


def leave_unsealed(broker: SmqBroker) -> None:
    """Seal nothing of the topic from now on."""
    with Cluster(broker.bootstrap) as cluster:
        alter_topic(cluster, "orders", {"smq.seal.ms": "3600000"}, [])


def test_every_record_once_sealed_or_not_through_restarts(
    spark: SparkSession, smq_broker: SmqBroker, tmp_path: Path
) -> None:
    found: list[int] = []
    sizes: list[int] = []
    plans: list[str] = []

    def keep(rows: DataFrame, _: int) -> None:
        plans.append(rows._jdf.queryExecution().executedPlan().toString())
        found.extend(int(row.value) for row in rows.select("value").collect())
        sizes.append(len(found))

    def fail(rows: DataFrame, batch: int) -> None:
        if batch > 1:
            raise RuntimeError("the table is full")
        keep(rows, batch)

    with smq_broker.connect() as client:
        client.create_topic("orders", 2, {"smq.seal.ms": "1000"})
        send(client, 0, 40)
        wait_for(lambda: len(_offsets(spark, smq_broker.data_dir)) == 40)
        leave_unsealed(smq_broker)
        send(client, 40, 20)
        stream = stream_topic(
            spark, "orders", dataDir=smq_broker.data_dir, startingOffsets="earliest",
            maxOffsetsPerTrigger=16,
        )  # fmt: skip
        checkpoint = tmp_path / "checkpoint"
        query = stream.foreach_batch(fail, checkpoint=checkpoint, availableNow=True)
        with pytest.raises(Exception, match="the table is full"):
            query.awaitTermination(120)
        assert sizes == [16]
        for _ in range(2):
            query = stream.foreach_batch(keep, checkpoint=checkpoint, availableNow=True)
            assert query.awaitTermination(120)
    assert sorted(found) == list(range(60))
    assert sizes == [16, 32, 48, 60]
    assert "FileScan parquet" in plans[0]
    assert "BatchScan smq" in plans[-1]


def test_planning_a_batch_runs_no_spark_job(
    spark: SparkSession, smq_broker: SmqBroker, tmp_path: Path
) -> None:
    batches: list[int] = []
    with smq_broker.connect() as client:
        client.create_topic("orders", 2)
        send(client, 0, 40)
    stream = stream_topic(
        spark, "orders", dataDir=smq_broker.data_dir, startingOffsets="earliest",
        maxOffsetsPerTrigger=16,
    )  # fmt: skip
    query = stream.foreach_batch(
        lambda _, batch: batches.append(batch), checkpoint=tmp_path / "checkpoint",
        availableNow=True,
    )  # fmt: skip
    assert query.awaitTermination(120)
    assert batches == [1, 2, 3]
    assert spark.sparkContext.statusTracker().getJobIdsForGroup(str(query.runId)) == []


def test_ranges_that_are_not_a_tasks_input_are_collected(spark: SparkSession) -> None:
    row = ("orders", 1, 5, 9, "0" * 32)
    schema = "topic string, partition int, start bigint, end bigint, topic_id string"
    plan = spark.createDataFrame([row], schema)
    assert planned_ranges(plan) == [dict(zip(PLAN_COLUMNS, row, strict=True))]


def test_options_are_checked_before_it_starts(spark: SparkSession) -> None:
    with pytest.raises(WrongOption, match=r"stream_topic decides mode and includeHeaders"):
        stream_topic(spark, "orders", dataDir="/d", includeHeaders=True)
    with pytest.raises(WrongOption, match="endingOffsets is not valid in streaming queries"):
        stream_topic(spark, "orders", dataDir="/d", endingOffsets="latest")
    with pytest.raises(WrongOption, match=r"kafka\.bootstrap\.servers"):
        stream_topic(spark, ["orders", "others"])
