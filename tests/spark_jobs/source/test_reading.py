"""A batch read: what Spark gets."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from smq.store.manifest import open_manifest
from smq.store.store import FILE_NAME
from smq.testing.smq_broker import SmqBroker
from spark_jobs.source import reading
from spark_jobs.source.reading import SmqReader
from tests.sealer.sealed import batch
from tests.spark_jobs.conftest import SealTopic, send, wait_for

pytestmark = pytest.mark.spark


def load(spark: SparkSession, schema: str | None = None, **options: object) -> DataFrame:
    reader = spark.read.format("smq").option("subscribe", "orders")
    for name, value in options.items():
        reader = reader.option(name.replace("__", "."), str(value))
    return reader.schema(schema).load() if schema else reader.load()


def sealed_end(broker: SmqBroker, topic: str) -> int:
    with open_manifest(broker.data_dir / FILE_NAME) as manifest:
        [found] = [each for each in manifest.topics() if each.name == topic]
        return manifest.sealed_end(found.partition_numbers[0])


def test_a_read_right_after_an_ack_has_the_record(
    spark: SparkSession, smq_broker: SmqBroker
) -> None:
    with smq_broker.connect() as client:
        client.create_topic("orders", 2, {"smq.seal.ms": "1000"})
        send(client, 0, 10)
        wait_for(lambda: sealed_end(smq_broker, "orders") == 5)
        send(client, 10, 4)
        rows = load(spark, kafka__bootstrap__servers=smq_broker.bootstrap, includeHeaders="true")
        found = rows.orderBy("value").collect()
    assert sorted(int(row.value) for row in found) == list(range(14))
    assert {row.headers[0].value for row in found if row.headers} == {b"1"}
    narrow = load(spark, "offset bigint, value binary", dataDir=smq_broker.data_dir)
    assert narrow.count() == 14
    assert narrow.columns == ["offset", "value"]


def test_offsets_and_times_bound_a_read(spark: SparkSession, smq_broker: SmqBroker) -> None:
    with smq_broker.connect() as client:
        client.create_topic("orders", 2)
        with client.producer() as producer:
            for each in range(20):
                producer.send("orders", b"%d" % each, partition=each % 2, timestamp_ms=each)

    def values(**options: Any) -> list[int]:
        rows = load(spark, kafka__bootstrap__servers=smq_broker.bootstrap, **options)
        return sorted(int(row.value) for row in rows.select("value").collect())

    from_2_and_9, to_4_and_end = '{"orders":{"0":2,"1":9}}', '{"orders":{"0":4,"1":-1}}'
    assert values(startingOffsets=from_2_and_9, endingOffsets=to_4_and_end) == [4, 6, 19]
    assert values(startingTimestamp=5, endingTimestamp=8) == [5, 6, 7]
    times = '{"orders":{"0":17,"1":17}}'
    assert values(startingOffsetsByTimestamp=times) == [17, 18, 19]
    late: dict[str, Any] = {
        "startingTimestamp": 100,
        "startingOffsetsByTimestampStrategy": "latest",
    }
    assert values(**late) == []
    with pytest.raises(Exception, match="No offset matched from request of topic-partition orders"):
        values(startingTimestamp=100)
    with pytest.raises(Exception, match="you must specify all TopicPartitions"):
        values(startingOffsets='{"orders":{"0":2}}')
    with pytest.raises(Exception, match="orders-0 ends at offset 10, before 12"):
        values(endingOffsets='{"orders":{"0":12,"1":1}}')
    lenient: dict[str, Any] = {
        "endingOffsets": '{"orders":{"0":12,"1":1}}',
        "failOnDataLoss": "false",
    }
    assert values(**lenient) == sorted([1, *range(0, 20, 2)])


def test_a_read_has_as_many_tasks_as_asked_for(
    spark: SparkSession, seal_topic: SealTopic, tmp_path: Path
) -> None:
    seal_topic([batch(each, 4) for each in range(0, 40, 4)], segment_bytes=1)
    rows = load(spark, dataDir=tmp_path, tail="sealed", minPartitions=4)
    assert 4 <= rows.rdd.getNumPartitions() <= 6
    assert sorted(row.offset for row in rows.collect()) == list(range(40))
    rows = load(spark, dataDir=tmp_path, tail="sealed", maxRecordsPerPartition=10)
    assert rows.rdd.getNumPartitions() >= 4


def test_a_large_read_names_the_faster_way_once(
    seal_topic: SealTopic,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    seal_topic([batch(each, 4) for each in range(0, 40, 4)], segment_bytes=1)
    options = {"dataDir": str(tmp_path), "subscribe": "orders", "tail": "sealed"}
    reader = SmqReader({**options, "minPartitions": "4"}, StructType())
    assert len(reader.partitions()) >= 4
    assert caplog.messages == []
    monkeypatch.setattr(reading, "LARGE_READ_BYTES", 1)
    assert len(reader.partitions()) >= 4
    assert ["read_topic" in each for each in caplog.messages] == [True]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"minPartitions": 0}, "minPartitions is '0'"),
        ({"tail": "live"}, "no broker serves the data directory"),
        ({"assign": '{"orders":[0]}'}, "Only one of the following options"),
        ({"schema": "value string"}, "the schema has value string; the columns are key binary"),
    ],
)
def test_wrong_options_are_refused_with_a_sentence(
    spark: SparkSession,
    seal_topic: SealTopic,
    tmp_path: Path,
    options: dict[str, object],
    said: str,
) -> None:
    seal_topic([batch(0, 3)])
    given: dict[str, Any] = {"dataDir": tmp_path, "tail": "sealed", **options}
    with pytest.raises(Exception, match=said):
        load(spark, **given).collect()
