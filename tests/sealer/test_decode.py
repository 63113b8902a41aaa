"""Batches as sent, cut into pieces: nothing is lost, and what cannot be rows is raw."""

import struct
from itertools import groupby

import pytest
from hypothesis import given, settings, strategies as st

from shm.kernels.record.records import (
    B_BASE_OFFSET,
    C_HEADER_COUNT,
    C_HEADERS_FIRST,
    C_OFFSET,
    C_TIMESTAMP,
    INFLATED_BYTES_MAX,
)
from shm.kernels.twin import records as plain
from smq.model.errors import PeerError
from smq.sealer.decode import READER, SEALER, InflationBounds, Kind, cut
from smq.testing.records import plain_batches
from smq.wire.compression import Codec, compress
from smq.wire.records import Record, write_batch

LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 8, 16, 32


def _batch(
    offset: int, *, attributes: int = 0, key: bytes = b"h", inflated: bytes | None = None
) -> bytes:
    record = plain.PlainRecord(offset, 1000 + offset, b"k", b"v", ((key, None),))
    return plain.batch([record], end_offset=offset + 1, attributes=attributes, inflated=inflated)


def _kinds(data: bytes, *, lossy: bool = False) -> list[tuple[Kind, int, int]]:
    return [(each.kind, each.base_offset, each.end_offset) for each in cut(data, lossy=lossy)]


def test_batches_of_one_kind_are_one_piece() -> None:
    data = _batch(0) + _batch(1) + _batch(7)
    [piece] = cut(data)
    assert (piece.kind, piece.base_offset, piece.end_offset) == (Kind.ROWS, 0, 8)
    assert piece.columns[C_OFFSET].tolist() == [0, 1, 7]
    assert bytes(piece.batches) == data
    assert piece.record_count == 3


@pytest.mark.parametrize("codec", list(Codec))
def test_compressed_batches_are_inflated(codec: Codec) -> None:
    records = [plain.PlainRecord(i, i, b"key" * 20, b"value" * 50) for i in range(20)]
    bodies = [plain.record_body(record, 0, 0) for record in records]
    payload = b"".join(plain.varint(len(body)) + body for body in bodies)
    inflated = compress(codec, payload)
    data = plain.batch(records, end_offset=20, attributes=codec, inflated=inflated)
    [piece] = cut(_batch(0) + data.replace(b"\0" * 8, (1).to_bytes(8, "big"), 1) + _batch(21))
    assert piece.columns[C_OFFSET].tolist() == list(range(22))


def test_under_log_append_time_records_have_the_batchs_time() -> None:
    records = [plain.PlainRecord(i, time, None, b"x") for i, time in enumerate([5, 3, 9])]
    data = plain.batch(records, end_offset=3, attributes=LOG_APPEND_TIME)
    plain_piece, stamped = cut(_batch(0) + data)
    assert (plain_piece.log_append_time, stamped.log_append_time) == (False, True)
    assert stamped.columns[C_TIMESTAMP].tolist() == [9, 9, 9]


def _flipped(batch: bytes) -> bytes:
    return batch[:-1] + bytes([batch[-1] ^ 1])


BAD = {
    "wrong CRC": _flipped(_batch(5)),
    "not compressed as it says": _batch(5, attributes=Codec.LZ4),
    "no such codec": _batch(5, attributes=7),
    "malformed records": _batch(5, inflated=b"\x07garbage"),
    "no bytes for its records": _batch(5, inflated=b""),
    "a header key that is not UTF-8": _batch(5, key=b"\xff"),
    "attributes nobody knows": _batch(5, attributes=128),
    "a bomb": _batch(
        5, attributes=Codec.ZSTD, inflated=compress(Codec.ZSTD, bytes(INFLATED_BYTES_MAX + 1))
    ),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_batches_that_cannot_be_rows_are_raw_and_their_neighbours_are_not(bad: bytes) -> None:
    data = _batch(3) + _batch(4) + bad + bad + _batch(6)
    runs = {kind: list(pieces) for kind, pieces in groupby(cut(data), lambda piece: piece.kind)}
    assert b"".join(bytes(piece.batches) for piece in runs[Kind.RAW]) == bad + bad
    kinds = [kind for kind, _ in groupby(cut(data), lambda piece: piece.kind)]
    assert kinds == [Kind.ROWS, Kind.RAW, Kind.ROWS]


def test_a_batch_without_records_is_raw() -> None:
    empty = bytearray(_batch(5, inflated=b""))
    empty[57:61] = bytes(4)
    empty[17:21] = struct.pack(">I", plain.crc32c(bytes(empty[21:])))
    assert _kinds(bytes(empty)) == [(Kind.RAW, 5, 6)]


def test_transactional_batches_are_rows() -> None:
    data = _batch(0) + _batch(1, attributes=TRANSACTIONAL) + _batch(2)
    assert _kinds(data) == [(Kind.ROWS, 0, 3)]


def test_markers_are_control() -> None:
    marker = _batch(1, attributes=TRANSACTIONAL | CONTROL)
    assert _kinds(_batch(0) + marker + _batch(2)) == [
        (Kind.ROWS, 0, 1),
        (Kind.CONTROL, 1, 2),
        (Kind.ROWS, 2, 3),
    ]


def test_a_lossy_reader_gets_rows_wherever_there_are_any() -> None:
    data = _batch(0) + BAD["a header key that is not UTF-8"]
    assert _kinds(data, lossy=True) == [(Kind.ROWS, 0, 6)]


def test_bytes_that_are_no_batch_raise_peer_error() -> None:
    with pytest.raises(PeerError, match="at byte 73"):
        list(cut(_batch(0) + b"garbage"))
    assert len(_batch(0)) == 73


def test_nothing_is_no_piece() -> None:
    assert list(cut(b"")) == []


@settings(deadline=None)
@given(plain_batches(), st.data())
def test_garbage_is_pieces_or_the_peers_error(batches: list[bytes], data: st.DataObject) -> None:
    garbled = bytearray(b"".join(batches))
    for _ in range(data.draw(st.integers(0, 3))):
        garbled[data.draw(st.integers(0, len(garbled) - 1))] = data.draw(st.integers(0, 255))
    try:
        pieces = list(cut(bytes(garbled)))
    except PeerError:
        return
    assert b"".join(bytes(piece.batches) for piece in pieces) == garbled
    for piece in pieces:
        assert piece.base_offset == int(piece.facts[B_BASE_OFFSET, 0])


def test_a_piece_can_begin_at_any_of_its_rows() -> None:
    [piece] = cut(b"".join(map(_batch, range(5))))
    for offset in range(6):
        rest = piece.since(offset)
        kept = min(offset, 4)
        assert rest.columns[C_OFFSET].tolist() == list(range(kept, 5))
        assert rest.columns[C_HEADERS_FIRST, 0] == 0
        assert rest.headers.shape[1] == rest.columns[C_HEADER_COUNT].sum()
        assert rest.end_offset == piece.end_offset


def _records(count: int, *, size: int = 0, headers: int = 0, offset: int = 0) -> bytes:
    """A compressed batch."""
    made = [
        Record(offset + i, 0, None, bytes(size), ((b"h", None),) * headers) for i in range(count)
    ]
    return write_batch(made, compression=Codec.ZSTD)


def test_the_inflated_bytes_of_one_piece_are_bounded() -> None:
    """Data fault 12: a megabyte of batches was cut at once, whatever it inflated to."""
    data = b"".join(_records(6, size=1 << 20, offset=6 * i) for i in range(20))
    assert len(data) < 1 << 20
    pieces = list(cut(data))
    assert [piece.kind for piece in pieces] == [Kind.ROWS] * len(pieces)
    assert all(len(piece.arena) <= SEALER.arena_bytes + (6 << 20) + 1000 for piece in pieces)
    assert pieces[-1].end_offset == 120


def test_columns_and_headers_of_a_piece_are_bounded() -> None:
    """Data fault 12: ten bytes of a record take 72 as a column, two of a header 32."""
    bounds = InflationBounds(1 << 20, records=10, headers=30)
    data = b"".join(_records(4, headers=i % 5, offset=4 * i) for i in range(20))
    pieces = list(cut(data, bounds=bounds))
    assert {piece.kind for piece in pieces} == {Kind.ROWS}
    assert max(piece.record_count for piece in pieces) <= 10
    assert max(piece.headers.shape[1] for piece in pieces) <= 30
    offsets = [offset for piece in pieces for offset in piece.columns[C_OFFSET].tolist()]
    assert offsets == list(range(80))


@pytest.mark.parametrize(
    ("bounds", "data"),
    [
        (InflationBounds(batch_records=9), _records(10, offset=3)),
        (InflationBounds(headers=29), _records(10, headers=3, offset=3)),
        (InflationBounds(field_bytes=99), _records(10, size=100, offset=3)),
    ],
    ids=["records", "headers", "fields"],
)
def test_a_batch_that_no_memory_is_kept_for_is_raw_and_its_neighbours_are_not(
    bounds: InflationBounds, data: bytes
) -> None:
    """Data fault 12: such a batch ended the worker; now it is stored as it was sent."""
    whole = _batch(0) + data + _batch(13)
    kinds = [(each.kind, each.base_offset) for each in cut(whole, bounds=bounds)]
    assert kinds == [(Kind.ROWS, 0), (Kind.RAW, 3), (Kind.ROWS, 13)]
    assert {each.kind for each in cut(whole, bounds=READER)} == {Kind.ROWS}
