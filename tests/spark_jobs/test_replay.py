"""Topics and tables are sent to topics again, each record once."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from smq.sealer.years import TIME_MS_MAX
from smq.tables.plan import Unreadable
from smq.testing.smq_broker import SmqBroker
from spark_jobs import replay
from tests.awkward import ANY_TIME
from tests.spark_jobs.conftest import RunJob, frame, send

pytestmark = pytest.mark.spark
Found = dict[bytes, tuple[bytes | None, int, int, list[tuple[str, bytes | None]]]]


def records(broker: SmqBroker, topic: str) -> Found:
    """By value: key, partition, timestamp, and headers."""
    with broker.connect() as client, client.consumer(topic, start="earliest") as consumer:
        found = [*consumer.read_until(consumer.find("latest"))]
    assert len({bytes(record.value or b"") for record in found}) == len(found), (
        "a record came twice"
    )
    return {
        bytes(record.value or b""): (
            record.key, record.partition, record.timestamp_ms, [*record.headers],
        )
        for record in found
    }  # fmt: skip


def test_a_range_of_a_topic_is_replayed_once_by_two_runs(
    spark: SparkSession, smq_broker: SmqBroker, tmp_path: Path, run_job: RunJob
) -> None:
    with smq_broker.connect() as client:
        client.create_topic("orders", 2)
        client.create_topic("again", 2)
        with client.producer() as producer:
            for each in range(40):
                producer.send(
                    "orders", b"%d" % each, key=b"k%d" % each, partition=each % 2,
                    timestamp_ms=1000 * each, headers=[("h", b"%d" % each)],
                )  # fmt: skip

    def run() -> str:
        return run_job(
            replay, "orders", "--to", "again", "--data-dir", smq_broker.data_dir,
            "--state", tmp_path / "state", "--from", "1970-01-01T00:00:10",
            "--until", "1970-01-01T00:00:50", "--rate", "1000", "--keep-partitions",
        )  # fmt: skip

    run()
    before = records(smq_broker, "orders")
    assert records(smq_broker, "again") == {b"%d" % n: before[b"%d" % n] for n in range(10, 40)}
    with smq_broker.connect() as client, client.producer() as producer:
        producer.send("orders", b"40", key=b"k", timestamp_ms=40_000, partition=0)
        producer.send("orders", b"90", key=b"k", timestamp_ms=90_000, partition=0)
    run()
    assert {int(value) for value in records(smq_broker, "again")} == {*range(10, 41)}


def test_rows_of_a_table_become_json(
    spark: SparkSession, smq_broker: SmqBroker, tmp_path: Path, run_job: RunJob
) -> None:
    with smq_broker.connect() as client:
        client.create_topic("again", 2)
    rows = spark.range(5).selectExpr("id", "concat('u', id) AS user")
    rows.write.parquet(str(tmp_path / "table"))
    for _ in range(2):
        run_job(
            replay, "--table", tmp_path / "table", "--key", "user", "--to", "again",
            "--data-dir", smq_broker.data_dir, "--state", tmp_path / "state",
        )  # fmt: skip
    found = records(smq_broker, "again")
    wanted = {b'{"id":%d,"user":"u%d"}' % (n, n): b"u%d" % n for n in range(5)}
    assert {value: key for value, (key, *_) in found.items()} == wanted


def test_wrong_arguments_are_refused_with_a_sentence(
    spark: SparkSession, smq_broker: SmqBroker, tmp_path: Path, run_job: RunJob
) -> None:
    with pytest.raises(Unreadable, match="there is no column user; the columns are key, value"):
        replay.transform(frame(spark, []), key="user")
    with pytest.raises(Unreadable, match="no column timestamp"):
        replay.transform(spark.range(1), since=datetime(2013, 1, 1, tzinfo=UTC))
    with smq_broker.connect() as client:
        client.create_topic("orders", 2)
        send(client, 0, 1)
    place = ("--data-dir", smq_broker.data_dir, "--state", tmp_path / "state")
    with pytest.raises(SystemExit, match="there is no topic nowhere; create it first"):
        run_job(replay, "orders", "--to", "nowhere", *place)
    for wrong in (["orders", "--to", "orders"], ["--to", "again"], ["orders", "--table", "t"]):
        with pytest.raises(SystemExit):
            run_job(replay, *wrong, *place)


@pytest.mark.parametrize("bounds", [(), ("--from", "1970-01-01T00:00:00")])
def test_a_record_whose_time_spark_lacks_ends_a_replay(
    spark: SparkSession,
    smq_broker: SmqBroker,
    tmp_path: Path,
    run_job: RunJob,
    bounds: tuple[str, ...],
) -> None:
    """Awkward records: it was sent with the time of sending, or with --from left out."""
    with smq_broker.connect() as client:
        client.create_topic("orders", 1, ANY_TIME)
        client.create_topic("again", 1, ANY_TIME)
        with client.producer() as producer:
            producer.send("orders", b"1", timestamp_ms=-1 if not bounds else 1)
            producer.send("orders", b"2", timestamp_ms=TIME_MS_MAX + 1)
    where = ("--data-dir", smq_broker.data_dir, "--state", tmp_path / "state")
    with pytest.raises(SystemExit, match="orders-0: the record at offset 1 has a time"):
        run_job(replay, "orders", "--to", "again", *where, *bounds)
    assert records(smq_broker, "again") == {}
