"""A record looks like a record."""

from smq.client.consuming.chunk import cut
from smq.client.consuming.record import Record, TopicPartition
from smq.wire import records as plain
from tests.client.batches import batches_of


def test_a_record_has_its_fields_and_a_short_name() -> None:
    sent = plain.Record(7, 42, b"k", b"", ((b"h", None),))
    ((chunk,), _) = cut(batches_of(plain.write_batch([sent])))
    (record,) = chunk.records()
    assert isinstance(record, Record)
    assert (record.topic, record.partition, record.offset, record.timestamp_ms) == ("t", 3, 7, 42)
    assert (record.key, record.headers) == (b"k", (("h", None),))
    assert record.value is not None
    assert bytes(record.value) == b""
    assert repr(record) == "<record 7 of t-3>"


def test_nulls_are_none() -> None:
    ((chunk,), _) = cut(batches_of(plain.write_batch([plain.Record(0, 0, None, None)])))
    (record,) = chunk.records()
    assert record.key is None
    assert record.value is None
    assert record.headers == ()


def test_a_partition_is_its_tuple() -> None:
    assert TopicPartition("t", 1) == ("t", 1)
    assert {TopicPartition("t", 1): 5}["t", 1] == 5  # type: ignore[index]
