"""A record looks like a record."""

import numpy as np
import pyarrow as pa
import pytest

from smq.client.consuming.batch.chunk import Chunk, PollRoom, Record, cut
from smq.client.errors import BatchReleased
from smq.client.facts import BrokerFacts
from smq.client.names import TopicPartition
from smq.client.payload_formats import write_array, write_table
from smq.client.reference import Payloads
from smq.model.references import HEADER, HEADER_VALUE, NotAHandle
from smq.wire import records as plain
from tests.client.batches import batches_of


def test_a_record_has_its_fields_and_a_short_name() -> None:
    sent = plain.Record(7, 42, b"k", b"", ((b"h", None),))
    ((chunk,), _) = cut(batches_of(plain.write_batch([sent])), PollRoom(64 << 20))
    (record,) = chunk.records()
    assert isinstance(record, Record)
    assert (record.topic, record.partition, record.offset, record.timestamp_ms) == ("t", 3, 7, 42)
    assert (record.key, record.headers) == (b"k", (("h", None),))
    assert record.value is not None
    assert bytes(record.value) == b""
    assert repr(record) == "<record 7 of t-3>"


def test_nulls_are_none() -> None:
    ((chunk,), _) = cut(
        batches_of(plain.write_batch([plain.Record(0, 0, None, None)])), PollRoom(64 << 20)
    )
    (record,) = chunk.records()
    assert record.key is None
    assert record.value is None
    assert record.headers == ()


def record_of(value: bytes | None) -> tuple[Record, Chunk]:
    ((chunk,), _) = cut(
        batches_of(plain.write_batch([plain.Record(7, 0, None, value)])), PollRoom(64 << 20)
    )
    (record,) = chunk.records()
    return record, chunk


def test_an_array_and_a_table_are_read_from_the_value_where_it_lies() -> None:
    array = np.asfortranarray(np.arange(6, dtype=">i4").reshape(2, 3))
    record, _ = record_of(bytes(write_array(array)))
    found = record.array()
    assert (found.shape, found.dtype, found.tolist()) == ((2, 3), array.dtype, array.tolist())
    assert found.flags.f_contiguous
    assert not found.flags.writeable
    assert np.shares_memory(found, np.frombuffer(record.value or b"", np.uint8))
    table = pa.table({"x": [1, None]})
    record, _ = record_of(write_table(table).to_pybytes())
    assert record.table().to_pylist() == table.to_pylist()


@pytest.mark.parametrize(
    ("value", "why"),
    [(None, "its value is null"), (b"", "EOF|stream"), (b"neither" * 9, "magic|stream")],
)
def test_a_value_that_is_neither_array_nor_table_is_refused_with_its_offset(
    value: bytes | None, why: str
) -> None:
    record, _ = record_of(value)
    for read in (record.array, record.table):
        with pytest.raises(
            ValueError, match=f"^the record at offset 7 of topic t, partition 3: .*({why})"
        ):
            read()


def test_an_invalid_handle_is_refused_with_its_offset() -> None:
    def no_filer() -> BrokerFacts:
        raise AssertionError("no filer is asked about what is no handle")

    headers = ((HEADER.encode(), HEADER_VALUE), (b"a", b"b"))
    sent = plain.Record(7, 0, None, b"no handle", headers)
    ((chunk,), _) = cut(batches_of(plain.write_batch([sent])), PollRoom(64 << 20))
    chunk.payloads = Payloads(no_filer)
    (record,) = chunk.records()
    with pytest.raises(
        NotAHandle, match=r"^the record at offset 7 of topic t, partition 3: .*JSON"
    ):
        _ = record.payload


def test_after_the_batch_neither_is_read() -> None:
    record, chunk = record_of(bytes(write_array(np.arange(3))))
    chunk.release()
    for read in (record.array, record.table):
        with pytest.raises(BatchReleased):
            read()


def test_a_partition_is_its_tuple() -> None:
    assert TopicPartition("t", 1) == ("t", 1)
    assert {TopicPartition("t", 1): 5}["t", 1] == 5  # type: ignore[index]
