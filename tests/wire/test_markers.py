"""Markers and empty batches: as Kafka writes and reads them."""

import tracemalloc
from types import SimpleNamespace

import pytest

from shm.kernels.base.words import (
    BATCH_ATTRIBUTES_AT,
    BATCH_HEADER_BYTES,
    BATCH_LENGTH_AT,
    BATCH_OVERHEAD_BYTES,
)
from smq.model.errors import PeerError
from smq.wire.compression import Codec, compress
from smq.wire.markers import (
    Marker,
    closing_marker,
    read_marker,
    restored_marker,
    without,
    write_empty,
    write_marker,
)
from smq.wire.records import Record, crc_of, read_batches, write_batch

COMMIT = Marker(1, 2, committed=True, coordinator_epoch=9)


@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_is_read_as_it_was_written(*, committed: bool) -> None:
    marker = Marker(2**40, 17, committed, 2**30)
    [batch] = read_batches(write_marker(marker, 1_700))
    assert read_marker(batch) == marker
    assert batch.is_control
    assert batch.is_transactional
    assert (batch.base_sequence, batch.record_count, batch.max_timestamp) == (-1, 1, 1_700)


def test_a_marker_is_what_apache_kafka_writes() -> None:
    [record] = next(read_batches(write_marker(COMMIT, 5))).records()
    assert (record.key, record.value) == (bytes([0, 0, 0, 1]), bytes([0, 0, 0, 0, 0, 9]))
    [record] = next(read_batches(write_marker(COMMIT._replace(committed=False), 5))).records()
    assert record.key == bytes([0, 0, 0, 0])


@pytest.mark.parametrize("committed", [True, False])
def test_a_damaged_marker_is_what_its_checksum_says(*, committed: bool) -> None:
    unknown = 0
    for epoch in (-1, 0, 1, 10**7, *range(50, 20_000_000, 100_003)):
        whole = write_marker(Marker(2**40, 17, committed, epoch), 1_700)
        for damage in (bytes(17), b"?" * 17, whole[61:70] + b"x" + whole[71:]):
            restored = restored_marker(whole[:61] + damage)
            assert restored in {whole, None}  # Never another one.
            unknown += restored is None
    assert unknown < 40


def test_a_foreign_or_unlikely_marker_is_not_restored() -> None:
    plain = write_batch([Record(0, 5, None, b"v" * 4)])
    assert restored_marker(plain) is None
    assert restored_marker(write_empty(5, 9, 3, 1_700)) is None
    whole = write_marker(COMMIT._replace(coordinator_epoch=2**30), 5)
    assert restored_marker(whole[:-1] + b"?") is None
    assert restored_marker(whole + b"?") is None
    assert restored_marker(b"?") is None


def test_an_empty_batch_covers_its_offsets() -> None:
    [batch] = read_batches(write_empty(5, 9, 3, 1_700))
    assert (batch.base_offset, batch.last_offset, batch.leader_epoch) == (5, 8, 3)
    assert list(batch.records()) == []


def test_a_closing_marker_is_one_of_no_transaction() -> None:
    [batch] = read_batches(closing_marker(2**40, 7))
    assert (batch.base_offset, batch.last_offset, batch.leader_epoch) == (2**40, 2**40, 7)
    assert read_marker(batch) == Marker(-1, -1, committed=True, coordinator_epoch=0)
    assert batch.record_count == 1


def test_a_malformed_marker_raises_peer_error() -> None:
    whole = write_marker(COMMIT, 5)
    refused = 0
    for at in range(61, len(whole)):
        for bit in range(8):
            bad = bytearray(whole)
            bad[at] ^= 1 << bit
            bad[17:21] = crc_of(bad).to_bytes(4)
            try:
                read_marker(next(read_batches(bytes(bad))))
            except PeerError:
                refused += 1
    assert refused > 0
    with pytest.raises(PeerError, match="no marker"):
        read_marker(next(read_batches(write_empty(0, 1, 0, 0))))


def test_a_record_that_inflates_is_no_marker() -> None:
    """A log from elsewhere may have many, and a start reads each."""
    whole = bytearray(write_marker(COMMIT, 5)[:BATCH_HEADER_BYTES])
    whole += compress(Codec.GZIP, bytes(8 * 1024 * 1024))
    whole[BATCH_ATTRIBUTES_AT + 1] |= Codec.GZIP
    whole[BATCH_LENGTH_AT : BATCH_LENGTH_AT + 4] = (len(whole) - BATCH_OVERHEAD_BYTES).to_bytes(4)
    whole[17:21] = crc_of(whole).to_bytes(4)
    batch = next(read_batches(bytes(whole)))
    tracemalloc.start()
    with pytest.raises(PeerError):
        read_marker(batch)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1024 * 1024


def test_batches_of_aborted_transactions_become_empty() -> None:
    def sent(offset: int, producer_id: int) -> bytes:
        records = [Record(offset + i, 7, None, b"x") for i in range(2)]
        batch = bytearray(write_batch(records, producer_id=producer_id, producer_epoch=0))
        batch[22] |= 16
        batch[17:21] = crc_of(batch).to_bytes(4)
        return bytes(batch)

    batches = [sent(2 * i, producer) for i, producer in enumerate((1, 1, 2, 1, 1))]
    aborted = SimpleNamespace(producer_id=1, first_offset=2, last_offset=7)
    found = list(read_batches(without(b"".join(batches), lambda *_: [aborted])))
    assert [batch.record_count for batch in found] == [2, 0, 2, 0, 2]
    assert [batch.last_offset for batch in found] == [1, 3, 5, 7, 9]
    assert bytes(found[0].data) == batches[0]


def test_aborted_transactions_of_one_producer_are_kept_apart() -> None:
    one = bytearray(write_batch([Record(0, 7, None, b"x")], producer_id=1, producer_epoch=0))
    one[22] |= 16
    batches = []
    for i in range(3000):
        one[:8] = (2 * i).to_bytes(8)
        one[17:21] = crc_of(one).to_bytes(4)
        batches.append(bytes(one))
    aborted = [
        SimpleNamespace(producer_id=1, first_offset=2 * i, last_offset=2 * i + 1)
        for i in range(0, 3000, 2)
    ]
    found = list(read_batches(without(b"".join(batches), lambda *_: aborted)))
    assert [batch.record_count for batch in found] == [0, 1] * 1500
