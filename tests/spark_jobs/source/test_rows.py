"""Rows of a task, without Spark."""

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from shm.kernels.twin import records as plain
from smq.client.consuming.consumer_settings import INFLATED_BYTES_MAX
from smq.client.errors import BrokerUnavailable
from smq.client.kafka.cluster import Cluster
from smq.client.kafka.topic_changes import delete_records
from smq.client.locate import KAFKA
from smq.client.names import TopicPartition
from smq.sealer.cold import Damaged
from smq.tables.plan import Unreadable
from smq.testing.smq_broker import SmqBroker
from smq.wire.compression import Codec
from smq.wire.records import Record, write_batch
from spark_jobs.source.options import BrokerLocation
from spark_jobs.source.rows import PieceReader, _headers
from spark_jobs.source.topics import BrokerPlace, Piece, SparkTopics, find_place
from tests.sealer.sealed import batch
from tests.spark_jobs.conftest import SealTopic
from tests.tables.aborted_records import AbortedRecords

NAME = TopicPartition("orders", 0)
SCHEMA = pa.schema(
    [
        ("offset", pa.int64()),
        ("value", pa.binary()),
        ("timestampType", pa.int32()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


def rows_of(  # noqa: PLR0913  (each is an option)
    place: BrokerPlace,
    start: int,
    end: int,
    *,
    live: bool = False,
    fails_on_loss: bool = True,
    inflated_bytes_max: int = INFLATED_BYTES_MAX,
) -> list[dict[str, object]]:
    with SparkTopics(place, reads_live=live) as topics:
        pieces = topics.pieces({NAME: (start, end)}, topics.ids([NAME]))
    reader = PieceReader(
        place,
        SCHEMA,
        fails_on_loss=fails_on_loss,
        silence_ms=2000,
        inflated_bytes_max=inflated_bytes_max,
    )
    batches = list(reader.read(pieces))
    assert all(each.schema == SCHEMA for each in batches)
    return [row for each in batches for row in each.to_pylist()]


def test_sealed_rows_of_both_kinds(tmp_path: Path, seal_topic: SealTopic) -> None:
    log_append_time = 8
    batches = [batch(0, 4), batch(4, 2, key=b"\xff"), batch(6, 4, attributes=log_append_time)]
    seal_topic(batches)
    place = find_place(BrokerLocation(None, str(tmp_path), None))
    found = rows_of(place, 3, 8)
    assert [row["offset"] for row in found] == [3, 4, 5, 6, 7]
    assert [row["value"] for row in found] == [b"value %d" % each for each in range(3, 8)]
    assert [row["timestampType"] for row in found] == [0, 0, 0, 1, 1]
    assert {(row["topic"], row["partition"]) for row in found} == {("orders", 0)}


def test_undecodable_records_fail_or_are_left_out(
    tmp_path: Path, seal_topic: SealTopic, caplog: pytest.LogCaptureFixture
) -> None:
    garbage = plain.batch([plain.PlainRecord(2, 0, None, None)], end_offset=4, inflated=b"garbage")
    seal_topic([batch(0, 2), garbage, batch(4)])
    place = find_place(BrokerLocation(None, str(tmp_path), None))
    with pytest.raises(Unreadable, match="orders-0: the records at offsets 2 to 3 cannot be dec"):
        rows_of(place, 0, 5)
    with caplog.at_level(logging.WARNING):
        assert [row["offset"] for row in rows_of(place, 0, 5, fails_on_loss=False)] == [0, 1, 4]
    assert "offsets 2 to 3 cannot be decoded" in caplog.text


def test_a_batch_that_inflates_too_far_fails_or_is_left_out(
    tmp_path: Path, seal_topic: SealTopic, caplog: pytest.LogCaptureFixture
) -> None:
    """Data fault 16."""
    far = write_batch([Record(2, 0, None, bytes(129 << 20))], compression=Codec.ZSTD)
    seal_topic([batch(0, 2), far, batch(3)])
    place = find_place(BrokerLocation(None, str(tmp_path), None))
    with pytest.raises(
        Unreadable, match=r"orders-0: the records at offsets 2 to 2 inflate .*Max\)"
    ):
        rows_of(place, 0, 4)
    with caplog.at_level(logging.WARNING):
        assert [row["offset"] for row in rows_of(place, 0, 4, fails_on_loss=False)] == [0, 1, 3]
    assert "offsets 2 to 2 inflate to more than 134217728 bytes" in caplog.text


def test_typed_columns_of_old_files_are_null_and_of_raw_ones_cast(
    tmp_path: Path, seal_topic: SealTopic
) -> None:
    def record(offset: int, header: bytes) -> bytes:
        made = plain.PlainRecord(offset, 0, None, b'{"price": 1.5}', ((header, None),))
        return plain.batch([made], end_offset=offset + 1)

    segments = seal_topic([record(0, b"h"), record(1, b"\xff")])
    assert [segment.kind for segment in segments] == ["parquet", "raw"]
    place = find_place(BrokerLocation(None, str(tmp_path), None))
    with SparkTopics(place, reads_live=False) as topics:
        assert topics.schema("orders") == ""
        with pytest.raises(Unreadable, match="there is no topic none"):
            topics.schema("none")
        pieces = topics.pieces({NAME: (0, 2)}, {})
    columns = pa.schema([("price", pa.float64()), ("offset", pa.int64())])
    schema = '{"fields": [{"name": "price", "type": "double"}, {"name": "n", "type": "int32"}]}'
    reader = PieceReader(place, columns, schema, fails_on_loss=True, silence_ms=2000)
    found = [row for each in reader.read(pieces) for row in each.to_pylist()]
    assert found == [{"price": None, "offset": 0}, {"price": 1.5, "offset": 1}]


def test_a_damaged_segment_is_named(tmp_path: Path, seal_topic: SealTopic) -> None:
    [segment] = seal_topic([batch(0, 3)])
    file = tmp_path / "filer" / segment.path
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(Damaged, match=segment.path):
        rows_of(find_place(BrokerLocation(None, str(tmp_path), None)), 0, 3)


def test_live_rows_end_where_they_should(smq_broker: SmqBroker) -> None:
    with smq_broker.connect() as client:
        client.create_topic("orders", 1, {"message.timestamp.type": "LogAppendTime"})
        with client.producer() as producer:
            for each in range(9):
                producer.send("orders", b"%d" % each, headers=[("h", b"1")] if each == 3 else [])
                producer.flush()
    place = find_place(BrokerLocation(smq_broker.bootstrap, None, None))
    found = rows_of(place, 2, 6, live=True)
    assert [row["value"] for row in found] == [b"2", b"3", b"4", b"5"]
    assert [row["headers"] for row in found][:2] == [None, [{"key": "h", "value": b"1"}]]
    assert {row["timestampType"] for row in found} == {1}


def test_a_live_batch_that_inflates_too_far_fails_or_is_left_out(
    smq_broker: SmqBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """Data fault 16."""
    with smq_broker.connect() as client, client.producer(compression="zstd") as producer:
        client.create_topic("orders", 1)
        for value in (b"a", bytes(200_000), b"b"):
            producer.send("orders", value, partition=0).result()
    place = find_place(BrokerLocation(smq_broker.bootstrap, None, None))
    with pytest.raises(Unreadable, match="orders-0: the records at offsets 1 to 1 inflate to"):
        rows_of(place, 0, 3, live=True, inflated_bytes_max=100_000)
    with caplog.at_level(logging.WARNING):
        found = rows_of(place, 0, 3, live=True, fails_on_loss=False, inflated_bytes_max=100_000)
    assert [row["offset"] for row in found] == [0, 2]
    assert "offsets 1 to 1 inflate to more than 100000 bytes" in caplog.text


def test_a_topic_that_was_created_again_is_not_read(
    smq_broker: SmqBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """Data fault 8, its kind: a task read as many records of the new topic."""
    place = find_place(BrokerLocation(smq_broker.bootstrap, None, None))
    place = place._replace(data_dir=None)

    def fill(value: bytes) -> None:
        with smq_broker.connect() as client, client.producer() as producer:
            client.create_topic("orders", 1)
            for _ in range(3):
                producer.send("orders", value, partition=0)

    fill(b"old")
    with SparkTopics(place, reads_live=True) as topics:
        pieces = topics.pieces({NAME: (0, 3)}, topics.ids([NAME]))
    with smq_broker.connect() as client:
        client.delete_topic("orders")
    fill(b"new")
    reader = PieceReader(place, SCHEMA, fails_on_loss=True, silence_ms=20_000)
    with pytest.raises(Unreadable, match="topic orders was deleted and created again"):
        list(reader.read(pieces))
    reader = PieceReader(place, SCHEMA, fails_on_loss=False, silence_ms=20_000)
    with caplog.at_level(logging.WARNING):
        assert list(reader.read(pieces)) == []
    assert "topic orders was deleted and created again" in caplog.text


def place_of_wire(broker: SmqBroker) -> BrokerPlace:
    return find_place(BrokerLocation(broker.bootstrap, None, None, transport=KAFKA))


def test_records_that_retention_has_deleted_since_the_plan_fail_or_are_left_out(
    smq_broker: SmqBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """A task went on at the first record that was left, and nobody was told."""
    with smq_broker.connect() as client, client.producer() as producer:
        client.create_topic("orders", 1)
        for each in range(6):
            producer.send("orders", b"%d" % each, partition=0)
    place = place_of_wire(smq_broker)
    with SparkTopics(place, reads_live=True) as topics:
        pieces = topics.pieces({NAME: (1, 6)}, topics.ids([NAME]))
    with Cluster(smq_broker.bootstrap) as cluster:
        delete_records(cluster, NAME.topic, 4)
    reader = PieceReader(place, SCHEMA, fails_on_loss=True, silence_ms=20_000)
    with pytest.raises(Unreadable, match="orders-0 has no offset 1: its records are from 4 up"):
        list(reader.read(pieces))
    reader = PieceReader(place, SCHEMA, fails_on_loss=False, silence_ms=20_000)
    with caplog.at_level(logging.WARNING):
        found = [row["offset"] for each in reader.read(pieces) for row in each.to_pylist()]
    assert found == [4, 5]
    assert "orders-0 has no offset 1" in caplog.text
    gone = [each._replace(start=7, end=9) for each in pieces]
    assert list(reader.read(gone)) == [], "the end is before it"


def test_records_that_no_reader_gets_are_no_silence() -> None:
    reader = PieceReader(BrokerPlace("", None, None), SCHEMA, fails_on_loss=True, silence_ms=2000)
    consumer, piece = AbortedRecords(1), Piece("orders", None, 0, 0, 9)
    assert list(reader._polled(consumer, piece)) == []  # type: ignore[arg-type]
    assert consumer.offset == 9


def test_a_node_without_the_files_gets_an_error_that_names_the_option(
    tmp_path: Path, seal_topic: SealTopic
) -> None:
    """As on a node of Spark's that is not the driver's, which has planned."""
    seal_topic([batch(0, 3)])
    place = find_place(BrokerLocation(None, str(tmp_path), None))
    (tmp_path / "filer").rename(tmp_path / "elsewhere")
    with pytest.raises(Unreadable, match=r"if this node .* set the option transport=kafka"):
        rows_of(place, 0, 3)


def test_records_that_do_not_come_are_said(smq_broker: SmqBroker) -> None:
    with smq_broker.connect() as client:
        client.create_topic("orders", 1)
    place = find_place(BrokerLocation(smq_broker.bootstrap, None, None))
    with pytest.raises(BrokerUnavailable, match="offsets of orders-0 up to 5 did not arrive"):
        rows_of(place, 0, 5, live=True)


@given(
    st.lists(st.none() | st.lists(st.sampled_from(["a", "b"]), max_size=3)),
    st.integers(0, 5),
    st.integers(0, 5),
)
def test_headers_are_null_where_there_are_none(
    rows: list[list[str] | None], cut: int, more: int
) -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    lists: list[Any] = [each and [{"key": key, "value": b"1"} for key in each] for each in rows]
    column = pa.chunked_array([pa.array(lists, kind).slice(cut), pa.array(lists[:more], kind)])
    wanted = [each or None for each in [*lists[cut:], *lists[:more]]]
    assert _headers(column).to_pylist() == wanted
    assert _headers(column).type == kind
