"""A sealed topic as a DataFrame."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from shm.kernels.twin import records as plain
from smq.sealer.cold import Damaged
from smq.tables.plan import Unreadable
from smq.testing.records import INT64_MAX
from smq.testing.smq_broker import SmqBroker
from spark_jobs.read import SCHEMA, read_topic
from spark_jobs.source.options import WrongOption
from tests.sealer.sealed import batch
from tests.spark_jobs.conftest import SealTopic, send, wait_for

pytestmark = pytest.mark.spark

LOG_APPEND_TIME = 8


def _offsets(spark: SparkSession, data_dir: Path, **given: object) -> list[int]:
    rows = read_topic(spark, "orders", data_dir=data_dir, **given)  # type: ignore[arg-type]
    return sorted(row.offset for row in rows.select("offset").collect())


def test_columns_are_those_of_sparks_kafka_source(
    spark: SparkSession, seal_topic: SealTopic, tmp_path: Path
) -> None:
    records = [
        plain.PlainRecord(0, 86_400_000, b"key", b"value", ((b"h", b"1"), (b"h", None))),
        plain.PlainRecord(1, INT64_MAX, None, None),
        plain.PlainRecord(2, -1, b"", b""),
    ]
    seal_topic([plain.batch(records, end_offset=3)])
    rows = read_topic(spark, "orders", data_dir=tmp_path)
    assert rows.schema.simpleString() == spark.createDataFrame([], SCHEMA).schema.simpleString()
    first, far, last = rows.orderBy("offset").collect()
    assert (first.key, first.value) == (b"key", b"value")
    assert (first.topic, first.partition, first.offset, first.timestampType) == ("orders", 0, 0, 0)
    assert first.timestamp.astimezone(UTC) == datetime(1970, 1, 2, tzinfo=UTC)
    assert [tuple(header) for header in first.headers] == [("h", b"1"), ("h", None)]
    assert (far.key, far.value, far.timestamp, far.headers) == (None, None, None, [])
    assert (last.key, last.value) == (b"", b"")


def test_offsets_cut_a_topic(spark: SparkSession, seal_topic: SealTopic, tmp_path: Path) -> None:
    seal_topic([batch(i, 4) for i in range(0, 20, 4)], segment_bytes=1)
    assert _offsets(spark, tmp_path) == list(range(20))
    assert _offsets(spark, tmp_path, starting={0: 6}, ending={0: 13}) == list(range(6, 13))
    assert _offsets(spark, tmp_path, starting={0: 8}) == list(range(8, 20))
    assert _offsets(spark, tmp_path, starting={0: 5}, ending={0: 5}) == []


def test_only_exact_files_of_the_manifest_are_read(
    spark: SparkSession, seal_topic: SealTopic, tmp_path: Path
) -> None:
    [segment] = seal_topic([batch(0, 3)])
    file = tmp_path / "filer" / segment.path
    file.with_name("00000000000000000000-3-7.parquet").write_bytes(file.read_bytes())
    file.with_name("00000000000000000003-9-7.parquet").write_bytes(b"of a seal that was killed")
    assert _offsets(spark, tmp_path) == [0, 1, 2]


def test_the_reader_skips_and_prunes_natively(
    spark: SparkSession, seal_topic: SealTopic, tmp_path: Path
) -> None:
    seal_topic([batch(0, 3)])
    rows = read_topic(spark, "orders", data_dir=tmp_path).where("offset = 1").select("value")
    how = rows._jdf.queryExecution().executedPlan().toString()
    assert "PushedFilters: [IsNotNull(_offset), EqualTo(_offset,1)]" in how
    assert "ReadSchema: struct<_offset:bigint,_value:binary>" in how


def test_raw_segments_are_decoded_too(
    spark: SparkSession, seal_topic: SealTopic, tmp_path: Path
) -> None:
    segments = seal_topic([batch(0, 2), batch(2, 3, key=b"\xff"), batch(5)])
    assert [segment.kind for segment in segments] == ["parquet", "raw", "parquet"]
    rows = read_topic(spark, "orders", data_dir=tmp_path).orderBy("offset").collect()
    assert [row.value for row in rows] == [b"value %d" % i for i in range(6)]
    assert [row.headers[0].key for row in rows] == ["h", "h", "\\xff", "\\xff", "\\xff", "h"]
    assert _offsets(spark, tmp_path, starting={0: 3}, ending={0: 4}) == [3]


def test_undecodable_records_are_named(
    spark: SparkSession, seal_topic: SealTopic, tmp_path: Path
) -> None:
    garbage = plain.batch([plain.PlainRecord(2, 0, None, None)], end_offset=4, inflated=b"garbage")
    seal_topic([batch(0, 2), garbage, batch(4)])
    with pytest.raises(PySparkException, match="orders-0: the records at offsets 2 to 3"):
        _offsets(spark, tmp_path)
    assert _offsets(spark, tmp_path, undecodable="warn") == [0, 1, 4]
    assert _offsets(spark, tmp_path, ending={0: 2}) == [0, 1]


def test_each_timestamp_type_is_said(
    spark: SparkSession, seal_topic: SealTopic, tmp_path: Path
) -> None:
    seal_topic([batch(0), batch(1, attributes=LOG_APPEND_TIME), batch(2)])
    rows = read_topic(spark, "orders", data_dir=tmp_path).orderBy("offset").collect()
    assert [row.timestampType for row in rows] == [0, 1, 0]


@pytest.mark.parametrize("cut_bytes", [1, 8, 200])
def test_a_truncated_segment_is_named(
    spark: SparkSession, seal_topic: SealTopic, tmp_path: Path, cut_bytes: int
) -> None:
    [segment] = seal_topic([batch(0, 3)])
    file = tmp_path / "filer" / segment.path
    file.write_bytes(file.read_bytes()[:-cut_bytes])
    with pytest.raises(Unreadable, match=segment.path):
        _offsets(spark, tmp_path)


def test_an_altered_page_is_an_error(
    spark: SparkSession, seal_topic: SealTopic, tmp_path: Path
) -> None:
    [segment] = seal_topic([batch(0, 300)])
    assert len(_offsets(spark, tmp_path, verify=True)) == 300
    file = tmp_path / "filer" / segment.path
    data, column = bytearray(file.read_bytes()), pq.read_metadata(file).row_group(0).column(0)
    data[column.data_page_offset + column.total_compressed_size - 5] ^= 1
    file.write_bytes(data)
    with pytest.raises(Damaged, match=file.name):
        _offsets(spark, tmp_path, verify=True)


def test_an_empty_topic_is_an_empty_frame(
    spark: SparkSession, seal_topic: SealTopic, tmp_path: Path
) -> None:
    assert _offsets(spark, tmp_path) == []


@pytest.mark.usefixtures("seal_topic")
def test_a_topic_that_is_none_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="there is no topic other"):
        read_topic(spark, "other", data_dir=tmp_path)


def test_topics_and_what_is_not_sealed(spark: SparkSession, smq_broker: SmqBroker) -> None:
    with smq_broker.connect() as client:
        for topic in ("orders", "orders-2"):
            client.create_topic(topic, 2, {"smq.seal.ms": "1000"})
            send(client, 0, 10, topic)
        wait_for(lambda: len(_offsets(spark, smq_broker.data_dir)) == 10)
        send(client, 10, 10)

    def read(topic: object, **given: object) -> list[tuple[str, int]]:
        options = {"data_dir": smq_broker.data_dir, "tail": "live", **given}
        rows = read_topic(spark, topic, **options)  # type: ignore[arg-type]
        assert rows.schema.simpleString() == spark.createDataFrame([], SCHEMA).schema.simpleString()
        return sorted((row.topic, int(row.value)) for row in rows.collect())

    orders, others = (
        [(t, each) for each in range(n)] for t, n in (("orders", 20), ("orders-2", 10))
    )
    assert read("orders") == orders
    assert read(["orders", "orders-2"]) == read(re.compile("orders.*")) == orders + others
    assert read(re.compile("order")) == []
    assert [n for _, n in read("orders", starting={0: 3, 1: 8}, ending={0: 7, 1: 9})] == [
        6, 8, 10, 12, 17,
    ]  # fmt: skip
    named = '{"orders":{"0":3,"1":8},"orders-2":{"0":-2,"1":4}}'
    assert [n for _, n in read(re.compile("orders.*"), startingOffsets=named)] == [
        6, 8, 10, 12, 14, 16, 17, 18, 19, 0, 2, 4, 6, 8, 9,
    ]  # fmt: skip
    with pytest.raises(WrongOption, match="starting and ending are of one topic"):
        read(["orders", "orders-2"], starting={0: 1})
    with pytest.raises(WrongOption, match="read_topic has no option groupId; it has startingOff"):
        read("orders", groupId="g")
    with pytest.raises(Unreadable, match="orders has no partition 2"):
        read("orders", starting={2: 1})


def test_times_prune_segments(spark: SparkSession, seal_topic: SealTopic, tmp_path: Path) -> None:
    batches = [
        plain.batch([plain.PlainRecord(n, 1000 * n, None, b"")], end_offset=n + 1) for n in range(8)
    ]
    segments = seal_topic(batches, segment_bytes=1)
    assert len(segments) == 8
    rows = read_topic(
        spark, "orders", data_dir=tmp_path, startingTimestamp="2500", endingTimestamp="5000"
    )
    assert [Path(each).name for each in sorted(rows.inputFiles())] == [
        Path(each.path).name for each in segments[3:5]
    ]
    assert sorted(row.offset for row in rows.collect()) == [3, 4]
