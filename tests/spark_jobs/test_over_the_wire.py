"""Spark where nobody may read the broker's files: all records come by Kafka's protocol.

Rows of files are what those of the wire are compared with.
"""

import base64
import json
import pwd
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from smq.security.acls import Operation, ResourceType
from smq.tables.plan import Unreadable
from spark_jobs import stream_topic
from spark_jobs.source.reading import SmqReader, Task
from tests.another_user import needs_root, result_as
from tests.broker.every_kind import MIXED, STATE, KindsBroker, kinds_broker
from tests.broker.guarded import allow
from tests.spark_jobs.conftest import wait_for

pytestmark = pytest.mark.timeout(300)

NOBODY = pwd.getpwnam("nobody").pw_uid
HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
KAFKAS: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(HEADER),
}
TYPED: dict[str, DataType] = {"n": LongType(), "price": DoubleType()}
BOUNDS: dict[str, dict[str, str]] = {
    "all": {},
    "offsets": {
        "startingOffsets": json.dumps({MIXED: {"0": 3, "1": -2}}),
        "endingOffsets": json.dumps({MIXED: {"0": 19, "1": -1}}),
    },
    "times": {"startingTimestamp": "1700000004000", "endingTimestamp": "1700000009000"},
    "a young part": {"startingOffsets": json.dumps({MIXED: {"0": 35, "1": 36}})},
}


@pytest.fixture(scope="module")
def kinds() -> Iterator[KindsBroker]:
    with kinds_broker() as kinds:
        yield kinds


def over_the_wire(kinds: KindsBroker, topic: str = MIXED, **options: str) -> dict[str, str]:
    place = {"kafka.bootstrap.servers": kinds.address, "clientConfig": str(kinds.properties)}
    return {**place, "subscribe": topic, "includeHeaders": "true", **options}


def of_files(kinds: KindsBroker, topic: str = MIXED, **options: str) -> dict[str, str]:
    place = {"dataDir": str(kinds.broker.data_dir)}
    return {**place, "subscribe": topic, "includeHeaders": "true", **options}


def rows_of(options: dict[str, str], *, typed: bool = False) -> list[dict[str, Any]]:
    """The rows that the tasks of a read give, without Spark."""
    fields = KAFKAS | (TYPED if typed else {})
    columns = StructType([StructField(name, kind) for name, kind in fields.items()])
    reader = SmqReader(options, columns)
    rows = [row for task in reader.partitions() for each in reader.read(task) for row in of(each)]
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    return [{name: plain(value) for name, value in row.items()} for row in batch.to_pylist()]


def plain(value: Any) -> Any:
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return {name: plain(each) for name, each in value.items()}
        case list():
            return [plain(each) for each in value]
        case None | int() | float() | str():
            return value
    return str(value)


def pieces_of(options: dict[str, str]) -> list[Any]:
    columns = StructType([StructField(name, kind) for name, kind in KAFKAS.items()])
    tasks = SmqReader(options, columns).partitions()
    return [piece for task in tasks if isinstance(task, Task) for piece in task.pieces]


@needs_root
@pytest.mark.parametrize("bounds", BOUNDS)
def test_another_user_gets_the_rows_of_the_files(kinds: KindsBroker, bounds: str) -> None:
    files = rows_of(of_files(kinds, **BOUNDS[bounds]))
    assert len({row["offset"] for row in files}) > 4
    for transport in ("auto", "kafka"):
        options = over_the_wire(kinds, transport=transport, **BOUNDS[bounds])
        assert result_as(NOBODY, partial(rows_of, options)) == files


@needs_root
def test_another_user_s_data_directory_is_refused_with_what_to_do(kinds: KindsBroker) -> None:
    said = result_as(NOBODY, partial(rows_of, of_files(kinds)))
    assert said.startswith("Unreadable: dataDir: ")
    assert "give kafka.bootstrap.servers instead" in said


@needs_root
def test_another_user_gets_the_rows_of_a_compacted_topic(kinds: KindsBroker) -> None:
    files = rows_of(of_files(kinds, STATE))
    assert [row["offset"] for row in files][-2:] == [20, 21]
    assert len(files) == 7
    assert None in {row["value"] for row in files}
    assert result_as(NOBODY, partial(rows_of, over_the_wire(kinds, STATE))) == files


def test_no_record_of_an_aborted_transaction_comes(kinds: KindsBroker) -> None:
    """Each of two partitions has 2 x 4 transactions of 3 records, and every other was aborted."""
    rows = rows_of(over_the_wire(kinds, transport="kafka"))
    assert len(rows) == 2 * 2 * (5 * 4 + 3 + 2 * 3)


def test_files_are_read_unless_the_transport_is_kafka(kinds: KindsBroker) -> None:
    """The tests run as the broker's user, who may read them."""
    place = over_the_wire(kinds) | {"kafka.bootstrap.servers": kinds.broker.bootstrap}
    del place["clientConfig"]
    assert any(piece.part for piece in pieces_of(place))
    assert not any(piece.part for piece in pieces_of(place | {"transport": "kafka"}))
    by_directory = of_files(kinds, transport="kafka")
    assert not any(piece.part for piece in pieces_of(by_directory))
    assert rows_of(by_directory) == rows_of(of_files(kinds))


def test_typed_columns_need_describe_configs_over_the_wire(kinds: KindsBroker) -> None:
    options = over_the_wire(kinds, transport="kafka", typed="true")
    with pytest.raises(Unreadable, match="to users with DESCRIBE_CONFIGS on it"):
        rows_of(options, typed=True)


def test_typed_columns_of_the_wire_are_those_of_the_files(kinds: KindsBroker) -> None:
    options = of_files(kinds, transport="kafka", typed="true")
    files = rows_of(of_files(kinds, typed="true"), typed=True)
    assert {row["price"] for row in files} == {None, 0.5, 1.5, 3.5}
    assert rows_of(options, typed=True) == files


@pytest.mark.spark
def test_a_stream_over_the_wire_has_each_row_once_through_restarts(
    spark: SparkSession, kinds: KindsBroker, tmp_path: Path
) -> None:
    """One restart goes on by files: the checkpoint is the same."""
    files = rows_of(of_files(kinds))

    def run(options: dict[str, str]) -> None:
        reader = spark.readStream.format("smq").options(**options)
        rows = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "30")
        writer = rows.load().writeStream.format("parquet").option("path", str(tmp_path / "rows"))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(processingTime="0 seconds").start()
        done = len(query.recentProgress)
        wait_for(lambda: len(query.recentProgress) > done + 1)
        query.stop()

    for options in (over_the_wire(kinds, transport="kafka"), of_files(kinds), over_the_wire(kinds)):
        run(options)
        # As if Spark had died between a batch and its commit.
        last = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda x: int(x.name))
        last.unlink()
        (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    reader = spark.readStream.format("smq").options(**over_the_wire(kinds, transport="kafka"))
    writer = reader.load().writeStream.format("parquet").option("path", str(tmp_path / "rows"))
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    table = spark.read.parquet(str(tmp_path / "rows")).orderBy("partition", "offset")
    found = [row for each in table.toArrow().to_batches() for row in of(each)]
    assert [(row["partition"], row["offset"]) for row in found] == [
        (row["partition"], row["offset"]) for row in files
    ]
    assert [row["value"] for row in found] == [row["value"] for row in files]


@pytest.mark.spark
def test_stream_topic_reads_over_the_wire(
    spark: SparkSession, kinds: KindsBroker, tmp_path: Path
) -> None:
    options: dict[str, Any] = over_the_wire(kinds, transport="kafka", startingOffsets="earliest")
    del options["subscribe"], options["includeHeaders"]
    seen: list[tuple[int, int]] = []

    def take(rows: DataFrame, _: int) -> None:
        seen.extend((row.partition, row.offset) for row in rows.collect())

    query = stream_topic(spark, MIXED, **options).foreach_batch(
        take, checkpoint=tmp_path, availableNow=True
    )
    query.awaitTermination()
    files = rows_of(of_files(kinds))
    assert sorted(seen) == [(row["partition"], row["offset"]) for row in files]


@pytest.mark.spark
def test_frames_are_read_and_written_over_the_wire(spark: SparkSession, kinds: KindsBroker) -> None:
    with kinds.broker.connect() as client:
        client.create_topic("copy", 1)
    allow(kinds.broker, "reader", ResourceType.TOPIC, "copy", Operation.ALL)
    options = over_the_wire(kinds, transport="kafka")
    rows = spark.read.format("smq").options(**options).load()
    assert rows.count() == len(rows_of(of_files(kinds)))
    writer = rows.select("key", "value").write.format("smq").options(**options)
    writer.option("topic", "copy").mode("append").save()
    copied = spark.read.format("smq").options(**over_the_wire(kinds, "copy", transport="kafka"))
    assert copied.load().count() == rows.count()
