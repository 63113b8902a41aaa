"""Record batches against those of other clients, and malformed ones."""

from struct import pack_into
from typing import Any

import pytest
from aiokafka.record.default_records import (
    DefaultRecordBatch as AiokafkaBatch,
    DefaultRecordBatchBuilder as AiokafkaBuilder,
)
from hypothesis import given, settings, strategies as st
from kafka.record.default_records import (
    DefaultRecordBatch as KafkaPythonBatch,
    DefaultRecordBatchBuilder as KafkaPythonBuilder,
)

from shm.kernels.twin.records import crc32c as crc32c_reference
from smq.model.errors import PeerError
from smq.wire.codec import Malformed
from smq.wire.compression import Codec, Undecodable
from smq.wire.records import Record, batch_pieces, read_batches, write_batch

RECORDS = [
    Record(5, 1_700_000_000_000, b"key", b"value", ((b"h", b"1"), (b"h", None), (b"", b""))),
    Record(6, 1_699_999_999_000, None, b"x" * 300),
    Record(9, 1_700_000_000_001, b"", None),
]
fields = st.none() | st.binary(max_size=200)
records_strategy = st.lists(
    st.builds(
        Record,
        st.integers(0, 2**30),
        st.integers(-1, 2**62),
        fields,
        fields,
        st.lists(st.tuples(st.binary(max_size=5), fields), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda record: record.offset,
).map(lambda records: sorted(records, key=lambda record: record.offset))


def text_headers(record: Record) -> list[tuple[str, bytes | None]]:
    return [(key.decode(), value) for key, value in record.headers]


@settings(deadline=None)
@given(records=records_strategy, codec=st.sampled_from(Codec))
def test_records_are_read_as_written(records: list[Record], codec: Codec) -> None:
    (batch,) = read_batches(write_batch(records, compression=codec))
    assert list(batch.records()) == records
    assert batch.codec == codec
    assert (batch.base_offset, batch.last_offset) == (records[0].offset, records[-1].offset)
    assert batch.max_timestamp == max(record.timestamp_ms for record in records)
    assert batch.record_count == len(records)


@pytest.mark.parametrize("theirs", [KafkaPythonBatch, AiokafkaBatch], ids=["kafka", "aiokafka"])
@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.name)
def test_other_clients_read_our_batches(theirs: Any, codec: Codec) -> None:
    batch = theirs(bytearray(write_batch(RECORDS, compression=codec)))
    assert batch.validate_crc()
    read = [
        Record(r.offset, r.timestamp, r.key, r.value, tuple((k.encode(), v) for k, v in r.headers))
        for r in batch
    ]
    assert read == RECORDS


@pytest.mark.parametrize("theirs", [KafkaPythonBuilder, AiokafkaBuilder], ids=["kafka", "aiokafka"])
@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.name)
def test_we_read_the_batches_of_other_clients(theirs: Any, codec: Codec) -> None:
    builder = theirs(2, codec, 1, 7, 3, 11, 2**20)
    for offset, record in enumerate(RECORDS):
        times, content = record.timestamp_ms, (record.key, record.value)
        assert builder.append(offset, times, *content, text_headers(record)) is not None
    (batch,) = read_batches(bytes(builder.build()))
    assert [record[1:] for record in batch.records()] == [record[1:] for record in RECORDS]
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 3, 11)
    assert batch.is_transactional
    assert not batch.is_control


def test_the_producer_stands_in_the_header() -> None:
    data = write_batch(RECORDS, producer_id=2**40, producer_epoch=3, base_sequence=11)
    (batch,) = read_batches(data)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (2**40, 3, 11)


def test_batches_follow_each_other_and_a_cut_one_is_left_out() -> None:
    one, two = write_batch(RECORDS), write_batch(RECORDS[:1])
    assert [batch.record_count for batch in read_batches(one + two)] == [3, 1]
    for cut in range(1, len(two)):
        assert [batch.record_count for batch in read_batches(one + two[:cut])] == [3]
    assert list(read_batches(b"")) == []


def test_a_batch_with_log_append_time_gives_its_time_to_all_records() -> None:
    data = bytearray(write_batch(RECORDS))
    data[22] |= 8
    pack_into(">q", data, 35, 42)
    pack_into(">I", data, 17, crc32c_reference(bytes(data[21:])))
    (batch,) = read_batches(bytes(data))
    assert batch.is_log_append_time
    assert {record.timestamp_ms for record in batch.records()} == {42}


@pytest.mark.parametrize("place", [21, 30, 60, 61, -1])
def test_a_flipped_bit_is_found_by_the_crc(place: int) -> None:
    data = bytearray(write_batch(RECORDS))
    data[place] ^= 1
    (batch,) = read_batches(bytes(data))
    with pytest.raises(Malformed, match="wrong CRC"):
        list(batch.records())


@settings(deadline=None)
@given(place=st.integers(21, 10_000), byte=st.integers(0, 255), codec=st.sampled_from(Codec))
def test_a_good_crc_does_not_make_a_batch_well_formed(place: int, byte: int, codec: Codec) -> None:
    data = bytearray(write_batch(RECORDS, compression=codec))
    data[21 + place % (len(data) - 21)] = byte
    pack_into(">I", data, 17, crc32c_reference(bytes(data[21:])))
    (batch,) = read_batches(bytes(data))
    try:
        list(batch.records())
    except (Malformed, Undecodable):
        return


@given(garbage=st.binary(max_size=200))
def test_garbage_gives_batches_or_a_broken_peer(garbage: bytes) -> None:
    try:
        for batch in read_batches(garbage):
            list(batch.records())
    except PeerError:
        return


@pytest.mark.parametrize(("place", "byte"), [(8, 0xFF), (11, 10), (16, 1)])
def test_a_header_that_cannot_be_is_malformed(place: int, byte: int) -> None:
    data = bytearray(write_batch(RECORDS[2:]))
    data[place] = byte
    if place == 11:
        data[8:11] = bytes(3)
    with pytest.raises(Malformed):
        list(read_batches(bytes(data)))


def test_a_bomb_is_refused() -> None:
    data = write_batch([Record(0, 0, None, bytes(2**20))], compression=Codec.ZSTD)
    (batch,) = read_batches(data)
    with pytest.raises(Undecodable, match="beyond"):
        list(batch.records(inflated_bytes_max=1000))


def test_a_batch_in_pieces_is_the_same_batch() -> None:
    records = [Record(i, 10 + i, b"key", b"value" * i, ((b"h", None),)) for i in range(3, 6)]
    like = next(read_batches(write_batch(records, producer_id=7, producer_epoch=0)))
    made = b"".join(batch_pieces(records, like, 9))
    [batch] = read_batches(made)
    assert list(batch.records()) == records
    assert (batch.base_offset, batch.last_offset, batch.producer_id) == (3, 9, -1)
    assert b"".join(batch_pieces(records, like, 5)) == write_batch(records)


def test_a_large_value_is_one_of_the_pieces_itself() -> None:
    value = bytes(100_000)
    record = Record(0, 0, None, value)
    like = next(read_batches(write_batch([record])))
    assert any(piece is value for piece in batch_pieces([record], like, 0))
