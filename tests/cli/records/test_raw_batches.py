"""Which batches go on as they are, which are encoded anew, and which are left out."""

import tracemalloc
from collections.abc import Sequence
from struct import pack_into

import numpy as np
import pytest

from shm.kernels.base.crc32c import crc32c
from shm.kernels.base.words import (
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_LOG_APPEND_TIME,
    ATTRIBUTE_TRANSACTIONAL,
    BATCH_ATTRIBUTES_AT,
    BATCH_BASE_TIMESTAMP_AT,
    BATCH_CRC_AT,
    BATCH_LAST_OFFSET_DELTA_AT,
    BATCH_RECORD_COUNT_AT,
)
from smq.cli.records.raw_batches import (
    PIECE_BYTES,
    CommittedBatches,
    ProducerIdentity,
    Ready,
    Sizes,
    from_producer,
    to_produce,
)
from smq.wire.codec import Malformed
from smq.wire.compression import Codec, InflatesTooFar
from smq.wire.records import HEADERS_MAX, BatchView, Record, crc_of, read_batches, write_batch

END = 10**9


def batch(
    offsets: Sequence[int],
    attributes: int = 0,
    producer_id: int = 7,
    codec: int = Codec.NONE,
) -> bytes:
    records = [Record(offset, 100 + offset, b"k", b"v%d" % offset) for offset in offsets]
    data = write_batch(
        records, compression=codec, producer_id=producer_id, producer_epoch=0, base_sequence=0
    )
    patched = bytearray(data)
    patched[BATCH_ATTRIBUTES_AT : BATCH_ATTRIBUTES_AT + 2] = (attributes | codec).to_bytes(2, "big")
    crc = int(crc32c(np.frombuffer(patched, np.uint8), BATCH_ATTRIBUTES_AT, len(patched)))
    patched[BATCH_CRC_AT : BATCH_CRC_AT + 4] = crc.to_bytes(4, "big")
    return bytes(patched)


def produced(
    data: bytes,
    position: int = 0,
    aborted: Sequence[tuple[int, int]] = (),
    bytes_max: int = END,
) -> list[tuple[Ready, BatchView | None]]:
    found = []
    for ready in to_produce(memoryview(bytearray(data)), position, END, aborted, Sizes(bytes_max)):
        (parsed,) = read_batches(ready.data) if ready.data else (None,)
        found.append((ready, parsed))
    return found


def test_a_batch_keeps_its_records_and_loses_its_producer() -> None:
    data = batch([5, 6, 7], ATTRIBUTE_TRANSACTIONAL, codec=Codec.GZIP)
    ((ready, parsed),) = produced(data, 5)
    assert parsed is not None
    assert (ready.record_count, ready.source_next) == (3, 8)
    assert (parsed.producer_id, parsed.base_sequence, parsed.attributes) == (-1, -1, Codec.GZIP)
    assert [(r.offset, r.timestamp_ms, r.value) for r in parsed.records()] == [
        (0, 105, b"v5"),
        (1, 106, b"v6"),
        (2, 107, b"v7"),
    ]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_batch_with_holes_is_encoded_without_them(codec: int) -> None:
    ((ready, parsed),) = produced(batch([5, 9], codec=codec), 5)
    assert parsed is not None
    assert (ready.record_count, ready.source_next, parsed.codec) == (2, 10, codec)
    assert [record.value for record in parsed.records()] == [b"v5", b"v9"]
    assert parsed.last_offset_delta == 1


def test_a_batch_gives_only_the_records_from_the_position_on() -> None:
    ((ready, parsed),) = produced(batch([5, 6, 7]), 6)
    assert parsed is not None
    assert ready.record_count == 2
    assert [record.value for record in parsed.records()] == [b"v6", b"v7"]
    ((ready, parsed),) = produced(batch([5, 9]), 9)
    assert ready.record_count == 1


def test_the_brokers_append_time_becomes_the_records_time() -> None:
    ((_, parsed),) = produced(batch([5, 6], ATTRIBUTE_LOG_APPEND_TIME), 5)
    assert parsed is not None
    assert not parsed.is_log_append_time
    assert [record.timestamp_ms for record in parsed.records()] == [106, 106]


def test_aborted_transactions_and_markers_are_left_out_but_move_the_position() -> None:
    control = ATTRIBUTE_TRANSACTIONAL | ATTRIBUTE_CONTROL
    data = b"".join(
        [
            batch([0, 1], ATTRIBUTE_TRANSACTIONAL, producer_id=1),  # Aborted.
            batch([2], ATTRIBUTE_TRANSACTIONAL, producer_id=2),
            batch([3]),  # Of no transaction.
            batch([4], control, producer_id=1),
            batch([5], control, producer_id=2),
            batch([6], ATTRIBUTE_TRANSACTIONAL, producer_id=1),  # The next one was committed.
            batch([7], control, producer_id=1),
        ]
    )
    found = produced(data, aborted=[(1, 0)])
    assert [ready.source_next for ready, _ in found] == [2, 3, 4, 5, 6, 7, 8]
    kept = [record.value for _, each in found if each is not None for record in each.records()]
    assert kept == [b"v2", b"v3", b"v6"]


def test_a_producer_is_aborted_only_from_its_first_offset_on() -> None:
    committed = CommittedBatches([(1, 4)])
    (early, late) = read_batches(
        batch([2], ATTRIBUTE_TRANSACTIONAL, 1) + batch([4], ATTRIBUTE_TRANSACTIONAL, 1)
    )
    assert committed.has(early)
    assert not committed.has(late)


def test_it_stops_at_the_end() -> None:
    data = memoryview(bytearray(batch([0, 1]) + batch([2, 3])))
    assert [ready.source_next for ready in to_produce(data, 0, 2, (), Sizes(END))] == [2]


def test_a_damaged_batch_is_not_copied() -> None:
    data = bytearray(batch([0]))
    data[-1] ^= 1
    with pytest.raises(Malformed, match="the batch at offset 0 has a wrong CRC"):
        list(to_produce(memoryview(data), 0, END, (), Sizes(END)))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_batch_above_the_destinations_limit_is_divided(codec: int) -> None:
    """Use fault 4: the copy ended, though each record is within the limit."""
    rows = [Record(5 + i, 100 + i, b"k", b"%d" % i * 100, ((b"h", None),)) for i in range(10)]
    data = write_batch(rows, compression=codec)
    limit = 700 if codec == Codec.NONE else 120
    found = produced(data, 6, bytes_max=limit)
    assert len(found) > 1
    assert all(len(ready.data) <= limit for ready, _ in found)
    assert [ready.source_next for ready, _ in found][-1] == 15
    copied = [
        record._replace(offset=ready.source_next - ready.record_count + record.offset)
        for ready, parsed in found
        if parsed is not None
        for record in parsed.records()
    ]
    assert copied == rows[1:]
    ((whole, _),) = produced(data, 5)
    assert len(whole.data) == len(data)


def test_a_record_above_the_limit_goes_alone_for_the_broker_to_refuse() -> None:
    """Use fault 4."""
    rows = [Record(i, 0, None, bytes(1000 if i == 1 else 10)) for i in range(3)]
    found = produced(write_batch(rows), bytes_max=200)
    assert [ready.record_count for ready, _ in found] == [1, 1, 1]


def test_a_copy_that_goes_on_between_two_parts_finds_the_same_ones() -> None:
    """Use fault 4: it would take its own records for those of somebody else."""
    data = write_batch([Record(5 + i, 0, None, bytes(100 + i % 7)) for i in range(37)])
    parts = [ready for ready, _ in produced(data, bytes_max=700)]
    for number, part in enumerate(parts, 1):
        rest = [ready for ready, _ in produced(data, part.source_next, bytes_max=700)]
        assert rest == parts[number:]


def test_a_batch_that_inflates_far_is_encoded_in_pieces() -> None:
    """Data fault 16: all records were kept that a few kilobytes inflate to."""
    count = 100
    value = bytes(PIECE_BYTES // 8)
    records = [Record(2 * number, 100, None, value) for number in range(count)]
    data = memoryview(bytearray(write_batch(records, compression=Codec.LZ4)))
    assert len(data) < len(value)
    del records
    tracemalloc.start()
    try:
        found = [
            (ready.record_count, ready.source_next)
            for ready in to_produce(data, 1, END, (), Sizes(END))
        ]
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(number for number, _ in found) == count - 1
    assert [after for _, after in found] == sorted(after for _, after in found)
    assert found[-1][1] == 2 * count - 1
    assert all(number <= 9 for number, _ in found)
    assert peak_bytes < 6 * PIECE_BYTES


def test_a_batch_inflates_as_far_as_its_user_lets_it() -> None:
    """Data fault 16: nobody could set the bound."""
    records = [Record(offset, 100, None, bytes(10_000)) for offset in range(10)]
    data = write_batch(records, compression=Codec.ZSTD)

    def copied(inflated_bytes_max: int) -> int:
        given = memoryview(bytearray(data))
        return sum(
            each.record_count
            for each in to_produce(given, 1, END, (), Sizes(END, inflated_bytes_max))
        )

    assert copied(110_000) == 9
    with pytest.raises(InflatesTooFar):
        copied(90_000)


@pytest.mark.parametrize("is_writable", [False, True])
def test_a_batch_gets_a_producer_and_a_sequence(is_writable: bool) -> None:
    """Data fault 16: what follows a refused batch is refused by its sequence."""
    sent = batch([0, 1])
    data = memoryview(bytearray(sent)) if is_writable else sent
    given = from_producer(data, ProducerIdentity(9, 2), 40)
    (parsed,) = read_batches(given)
    assert (parsed.producer_id, parsed.producer_epoch, parsed.base_sequence) == (9, 2, 40)
    assert parsed.crc == crc_of(parsed.data)
    assert [each.value for each in parsed.records()] == [b"v0", b"v1"]
    assert (bytes(data) == sent) != is_writable  # In place where that is possible.


def moved(data: bytes, base_offset: int) -> bytes:
    """A batch at another offset, which its CRC does not cover."""
    return base_offset.to_bytes(8, "big", signed=True) + data[8:]


def said(data: bytes, last_offset_delta: int, record_count: int) -> bytes:
    """A batch whose header says so, and has the CRC for it."""
    patched = bytearray(data)
    pack_into(">i", patched, BATCH_LAST_OFFSET_DELTA_AT, last_offset_delta)
    pack_into(">i", patched, BATCH_RECORD_COUNT_AT, record_count)
    pack_into(">I", patched, BATCH_CRC_AT, crc_of(patched))
    return bytes(patched)


ONE = batch([0, 1, 2])


@pytest.mark.parametrize(
    "data",
    [
        ONE + ONE,
        moved(ONE, 5) + ONE,
        ONE + moved(ONE, 2),
        moved(ONE, -1),
        moved(ONE, 2**63 - 3),
        said(ONE, -1, 0),
        said(ONE, -(2**31), 3),
    ],
    ids=["twice", "back", "into the last", "below 0", "beyond the last", "none", "backwards"],
)
def test_offsets_that_do_not_grow_are_not_copied(data: bytes) -> None:
    """Of the kind of door fault 12: such records were copied twice."""
    with pytest.raises(Malformed, match=r"where \d or a later one follows"):
        produced(data)


@pytest.mark.parametrize("count", [-1, 4, 2**31 - 1, -(2**31)])
def test_more_records_than_offsets_are_not_copied(count: int) -> None:
    """Of the kind of door fault 12: the sequence of the next batch went back."""
    with pytest.raises(Malformed, match=f"it has {count} records in 3 offsets"):
        produced(said(ONE, 2, count))


@pytest.mark.parametrize("offsets", [(0, 0, 2), (2, 1, 2), (0, 1, 5), (-1, 1, 2)])
def test_a_batch_that_is_encoded_anew_has_its_records_in_order(
    offsets: tuple[int, int, int],
) -> None:
    """Of the kind of door fault 12: the position went back, and the copy never ended."""
    records = [Record(1 + each, 0, None, b"x") for each in (0, *offsets)]
    data = said(write_batch(records), 4, 4)
    with pytest.raises(Malformed, match="the batch at offset 1 has a record at"):
        produced(data, 2)


def test_a_record_beyond_all_times_is_not_copied() -> None:
    """Of the kind of door fault 12: `smq copy` ended with a struct.error."""
    data = bytearray(write_batch([Record(0, 0, None, b""), Record(1, 2**62, None, b"")]))
    pack_into(">q", data, BATCH_BASE_TIMESTAMP_AT, 2**63 - 1)
    pack_into(">I", data, BATCH_CRC_AT, crc_of(data))
    with pytest.raises(Malformed, match="a record at"):
        produced(bytes(data), 1)


def test_headers_that_inflate_without_end_are_not_collected() -> None:
    """Of the kind of door fault 12: two bytes each, and seventy in memory."""
    headers = ((b"", None),) * (HEADERS_MAX + 1)
    records = [Record(0, 0, None, b""), Record(1, 0, None, b"", headers)]
    with pytest.raises(Malformed, match=f"{HEADERS_MAX + 1} headers where"):
        produced(write_batch(records, compression=Codec.ZSTD), 1)
