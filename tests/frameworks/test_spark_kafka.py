"""Spark's own Kafka source and sink, `format("kafka")`, read and write SMQ."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from smq.testing.processes import Broker
from spark_jobs.session import start_session
from tests.clients import toolchain
from tests.clients.brokers import running
from tests.frameworks import topics
from tests.frameworks.topics import Reader

pytestmark = [pytest.mark.clients, pytest.mark.long, pytest.mark.timeout(500)]

PROJECT = Path(__file__).parent / "spark"
RECORDS = 1000
QUERY_SECONDS_MAX = 150
LATER_MS = 4_102_444_800_000  # The year 2100.


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    jars = PROJECT / "target" / "libs"
    if not jars.exists():
        toolchain.build(["mvn", "--quiet", "--batch-mode", "package"], PROJECT)
    settings = {
        "spark.master": "local[2]",
        "spark.jars": ",".join(map(str, jars.glob("*.jar"))),
        "spark.driver.memory": "512m",
        "spark.sql.shuffle.partitions": "2",
        "spark.local.dir": str(tmp_path_factory.mktemp("spark")),
    }
    with start_session("kafka", **settings) as session:
        yield session


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with running(tmp_path / "broker") as started:
        yield started


def kafka(io: Any, broker: Broker, **options: object) -> Any:
    io = io.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
    for name, value in options.items():
        io = io.option(name, value)
    return io


def written(spark: SparkSession, broker: Broker, topic: str, first: int, end: int) -> None:
    rows = spark.range(first, end).selectExpr(
        "cast(id as string) as key",
        "concat('v', id) as value",
        "array(struct('h' as key, cast('x' as binary) as value)) as headers",
    )
    kafka(rows.write, broker, topic=topic, includeHeaders="true").save()


def strings(found: DataFrame) -> list[str]:
    return [row.value for row in found.selectExpr("cast(value as string) as value").collect()]


def test_a_batch_is_written_and_read(spark: SparkSession, broker: Broker) -> None:
    topics.create(broker.bootstrap, "t")
    written(spark, broker, "t", 0, RECORDS)
    found = kafka(spark.read, broker, subscribe="t", includeHeaders="true").load()
    assert sorted(strings(found)) == sorted(f"v{number}" for number in range(RECORDS))
    row = found.where("cast(key as string) = '7'").first()
    assert row is not None
    assert (bytes(row.value), row.topic, row.headers[0].key) == (b"v7", "t", "h")
    parts = {each.partition: each["count"] for each in found.groupBy("partition").count().collect()}
    assert len(parts) == topics.PARTITIONS
    ranges = {
        "startingOffsets": '{"t": {"0": 5, "1": -2, "2": 3}}',
        "endingOffsets": '{"t": {"0": 9, "1": -1, "2": 3}}',
    }
    some = kafka(spark.read, broker, subscribe="t", **ranges).load()
    assert some.count() == 4 + parts[1]
    none = kafka(
        spark.read,
        broker,
        subscribePattern="t.*",
        startingTimestamp=LATER_MS,
        startingOffsetsByTimestampStrategy="latest",
    )
    assert none.load().count() == 0


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_aborted_records_are_read_only_by_who_asks_for_them(
    spark: SparkSession, broker: Broker, isolation: str
) -> None:
    topics.create(broker.bootstrap, "t", partitions=1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "x"})
    producer.init_transactions(topics.SECONDS_MAX)
    for number in range(4):
        producer.begin_transaction()
        producer.produce("t", f"{'kept' if number % 2 else 'aborted'}".encode())
        end = producer.commit_transaction if number % 2 else producer.abort_transaction
        assert producer.flush(topics.SECONDS_MAX) == 0
        end(topics.SECONDS_MAX)
    found = kafka(spark.read, broker, subscribe="t", **{"kafka.isolation.level": isolation}).load()
    aborted = 2 if isolation == "read_uncommitted" else 0
    assert Counter(strings(found)) == Counter(kept=2, aborted=aborted)


def test_a_stream_goes_on_where_it_stopped_and_through_a_killed_shard(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """From a topic to a topic; what Spark's sink promises is at least once."""
    topics.create(broker.bootstrap, "came", "went")
    reader = Reader(broker.bootstrap, "went")

    def copying() -> StreamingQuery:
        options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": RECORDS // 4}
        came = kafka(spark.readStream, broker, subscribe="came", **options).load()
        went = kafka(came.select("key", "value").writeStream, broker, topic="went")
        query: StreamingQuery = went.option("checkpointLocation", str(tmp_path / "c")).start()
        return query

    def until_copied(count: int, query: StreamingQuery) -> None:
        def all_there() -> bool:
            assert query.isActive, query.exception()
            return len({value for _, value in reader.found}) >= count

        reader.poll_until(all_there, QUERY_SECONDS_MAX, f"not {count} are copied")

    written(spark, broker, "came", 0, RECORDS)
    query = copying()
    until_copied(RECORDS // 2, query)
    query.stop()
    written(spark, broker, "came", RECORDS, 2 * RECORDS)
    query = copying()
    until_copied(RECORDS + RECORDS // 4, query)
    broker.kill("shard-1")
    broker.restart()
    written(spark, broker, "came", 2 * RECORDS, 3 * RECORDS)
    until_copied(3 * RECORDS, query)
    query.stop()
    found = {value for _, value in reader.found}
    assert found == {f"v{number}" for number in range(3 * RECORDS)}
