"""Records by time inside a batch: compressed, lying, far too large."""

from struct import pack_into

import numpy as np
import pytest

from shm.kernels.base.crc32c import crc32c
from shm.kernels.base.words import (
    BATCH_ATTRIBUTES_AT,
    BATCH_CRC_AT,
    BATCH_HEADER_BYTES,
    BATCH_LENGTH_AT,
    BATCH_OVERHEAD_BYTES,
    BATCH_RECORD_COUNT_AT,
)
from smq.wire.batch_search import Searched, WantedRecord, find_in_batch
from smq.wire.compression import PIECE_BYTES, Codec, compress
from smq.wire.records import Record, write_batch

MiB = 1024 * 1024
TIMES = [5, 3, 9, 9, 20, 1]
ALL = 2**40
codecs = pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.name)


def batch_at(*times: int, codec: int = Codec.NONE, offset: int = 100, size: int = 9) -> bytes:
    """A batch with a record for each time."""
    records = [Record(offset + i, time, None, bytes(size)) for i, time in enumerate(times)]
    return bytes(write_batch(records, compression=codec))


def with_payload(batch: bytes, payload: bytes, count: int) -> bytes:
    """The batch with other records, and so many of them."""
    data = bytearray(batch[:BATCH_HEADER_BYTES] + payload)
    pack_into(">i", data, BATCH_LENGTH_AT, len(data) - BATCH_OVERHEAD_BYTES)
    pack_into(">i", data, BATCH_RECORD_COUNT_AT, count)
    crc = int(crc32c(np.frombuffer(data, np.uint8), BATCH_ATTRIBUTES_AT, len(data)))
    pack_into(">I", data, BATCH_CRC_AT, crc)
    return bytes(data)


@codecs
@pytest.mark.parametrize(
    ("timestamp", "offset", "limit", "found"),
    [
        (0, 0, ALL, (100, 5)),
        (6, 0, ALL, (102, 9)),
        (6, 103, ALL, (103, 9)),
        (10, 0, ALL, (104, 20)),
        (10, 0, 104, None),
        (10, 105, ALL, None),
        (21, 0, ALL, None),
    ],
)
def test_the_first_record_of_a_time_or_later_is_found(
    codec: int, timestamp: int, offset: int, limit: int, found: tuple[int, int] | None
) -> None:
    batch = batch_at(*TIMES, codec=codec)
    searched = find_in_batch(batch, WantedRecord(timestamp, offset, limit), MiB)
    assert (searched.found, searched.end_offset) == (found, 106)


@codecs
def test_records_larger_than_a_piece_are_passed_over(codec: int) -> None:
    batch = batch_at(1, 2, 3, codec=codec, size=PIECE_BYTES + 1000)
    assert find_in_batch(batch, WantedRecord(3, 0, ALL), 2 * MiB).found == (102, 3)


BOMB_RECORD = bytes([12, 0, 0, 0, 1, 1, 0])  # No key, no value, no headers, offset delta 0.
BOMB_COUNT = 3 * MiB


@pytest.fixture(scope="module", params=[Codec.GZIP, Codec.LZ4, Codec.ZSTD], ids=lambda c: c.name)
def bomb(request: pytest.FixtureRequest) -> bytes:
    """A small batch of very many records at time 7, whose header promises time 9."""
    payload = compress(request.param, BOMB_RECORD * BOMB_COUNT)
    return with_payload(batch_at(7, 9, codec=request.param), payload, BOMB_COUNT)


def test_of_a_bomb_no_more_is_inflated_than_up_to_the_record(bomb: bytes) -> None:
    searched = find_in_batch(bomb, WantedRecord(7, 0, ALL), 64 * MiB)
    assert searched.found == (100, 7)
    assert searched.bytes_looked_at <= len(bomb) + PIECE_BYTES


def test_of_a_bomb_no_more_is_inflated_than_allowed_and_the_header_answers(bomb: bytes) -> None:
    searched = find_in_batch(bomb, WantedRecord(8, 0, ALL), 2 * MiB)
    assert searched.found == (100, 9)
    assert searched.bytes_looked_at <= len(bomb) + 2 * MiB + PIECE_BYTES
    assert find_in_batch(bomb, WantedRecord(8, 0, ALL), 64 * MiB).found is None


def test_with_nothing_allowed_nothing_is_looked_at() -> None:
    searched = find_in_batch(batch_at(*TIMES), WantedRecord(6, 102, ALL), 0)
    assert searched == Searched((102, 20), 106, len(batch_at(*TIMES)))


@codecs
def test_records_that_are_none_or_too_few_are_answered_by_the_header(codec: int) -> None:
    batch = batch_at(*TIMES, codec=codec)
    for payload in (b"\xff" * 100, compress(codec, BOMB_RECORD * 3), compress(codec, b"\xff" * 99)):
        searched = find_in_batch(with_payload(batch, payload, 6), WantedRecord(10, 102, ALL), MiB)
        assert searched.found == (102, 20)
    assert find_in_batch(with_payload(batch, b"", 0), WantedRecord(0, 0, ALL), MiB).found is None
