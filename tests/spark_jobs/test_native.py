"""Who reads which pieces of a topic, and what is planned of thousands of segments."""

import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from smq.client.names import TopicPartition
from smq.tables.plan import Unreadable
from spark_jobs.native import LOG_APPEND_TIME_TYPE, layers, timestamp_type
from spark_jobs.read import read_topic
from spark_jobs.source.topics import Piece
from tests.sealer.sealed import batch
from tests.spark_jobs.conftest import SealTopic

SEGMENTS = 1000
PLANNING_S = 3.0  # Of CPU, a wide bound: it takes a tenth of a second where the machine is quiet.


def test_ranges_of_a_partition_are_joined_or_layered() -> None:
    def piece(partition: int, start: int, end: int) -> Piece:
        return Piece("t", None, partition, start, end)

    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    found = layers([piece(0, 5, 9), piece(0, 0, 5), piece(1, 0, 1), piece(0, 12, 13)])
    assert found == [{first: (0, 9), second: (0, 1)}, {first: (12, 13)}]
    assert layers([]) == []


def test_the_timestamp_type_is_found_however_long_the_footer_is(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"a": [1]})
    for labels in ({}, {"z": "x" * 100_000}):
        facts = {"smq.timestamp_type": "LogAppendTime", **labels}
        pq.write_table(table.replace_schema_metadata(facts), path)
        assert timestamp_type(path) == LOG_APPEND_TIME_TYPE
        pq.write_table(
            table.replace_schema_metadata(facts | {"smq.timestamp_type": "CreateTime"}), path
        )
        assert timestamp_type(path) != LOG_APPEND_TIME_TYPE
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Unreadable, match=r"a\.parquet cannot be read"):
        timestamp_type(path)


@pytest.mark.spark
def test_thousands_of_segments_are_planned_quickly(
    spark: SparkSession, seal_topic: SealTopic, tmp_path: Path
) -> None:
    assert len(seal_topic([batch(n) for n in range(SEGMENTS)], segment_bytes=1)) == SEGMENTS
    read_topic(spark, "orders", data_dir=tmp_path)  # What is done once.
    began_s = time.process_time()
    rows = read_topic(spark, "orders", data_dir=tmp_path)
    assert time.process_time() - began_s < PLANNING_S
    assert rows.count() == SEGMENTS
