"""Batches without user records: markers of ended transactions, and empty ones.

A marker is a control batch (KIP-98): one record whose key is (version 0, type), two int16, and
whose value is EndTxnMarker, (version 0 as int16, coordinator epoch as int32). An empty batch covers
offsets whose records are gone. Only the sealer gets empty batches: some clients never get past one.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from struct import Struct
from typing import NamedTuple, Protocol

from shm.kernels.base.words import (
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_TRANSACTIONAL,
    BATCH_ATTRIBUTES_AT,
    BATCH_HEADER_BYTES,
    BATCH_LEADER_EPOCH_AT,
    BATCH_OVERHEAD_BYTES,
)
from smq.model.errors import PeerError
from smq.wire.codec import READ_ERRORS, Buffer, Malformed
from smq.wire.records import MAGIC, BatchView, crc_of, read_batches

ABORT, COMMIT = 0, 1
_CHECKED = Struct(">hiqqqhii")
_HEAD = Struct(">qiibI")
_PLACE, _EPOCH = Struct(">q"), Struct(">i")
_INFLATED_BYTES_MAX = 1024  # A marker's record takes 17; one from elsewhere may be compressed.
_EPOCH_FROM_END = 5  # The coordinator's epoch, and how many headers there are.
_LIKELY_EPOCH_MAX = 1 << 26  # It grows by one a start, and by ten million at most a restore.
_KEY, _VALUE = Struct(">hh"), Struct(">hi")
# Length, attributes, timestamp delta, offset delta; key; value; no headers. All varints are short.
_RECORD = Struct(">bbbbb4sb6sb")


class Marker(NamedTuple):
    """The end of a producer's transaction in a partition."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int


class AbortedRange(Protocol):
    """An aborted transaction."""

    @property
    def producer_id(self) -> int: ...
    @property
    def first_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...


def write_marker(marker: Marker, wall_ms: int) -> bytes:
    """A control batch without offset and epoch: appending sets both."""
    key = _KEY.pack(0, COMMIT if marker.committed else ABORT)
    value = _VALUE.pack(0, marker.coordinator_epoch)
    zigzag = [2 * number for number in (_RECORD.size - 1, 0, 0, len(key), len(value))]
    length, timestamp, offset, key_bytes, value_bytes = zigzag
    record = _RECORD.pack(length, 0, timestamp, offset, key_bytes, key, value_bytes, value, 0)
    attributes = ATTRIBUTE_CONTROL | ATTRIBUTE_TRANSACTIONAL
    producer = marker.producer_id, marker.producer_epoch
    checked = _CHECKED.pack(attributes, 0, wall_ms, wall_ms, *producer, -1, 1)
    return _batch(0, -1, checked + record)


def read_marker(batch: BatchView) -> Marker:
    """The marker in a control batch. Raises PeerError."""
    try:
        [record] = batch.records(_INFLATED_BYTES_MAX)
        _version, kind = _KEY.unpack_from(record.key or b"")
        _version, coordinator_epoch = _VALUE.unpack_from(record.value or b"")
    except (*READ_ERRORS, Malformed, ValueError) as reason:
        raise PeerError(f"the batch at offset {batch.base_offset} is no marker") from reason
    committed = kind == COMMIT
    return Marker(batch.producer_id, batch.producer_epoch, committed, coordinator_epoch)


def restored_marker(damaged: Buffer) -> bytes | None:
    """The marker whose header is good and whose record is damaged. None: it is not known.

    A marker's record says two things: the kind, and the coordinator's epoch. For each kind one
    epoch fits the CRC in the header, as CRCs are linear. That of the wrong kind is any number of 32
    bits: if both are likely epochs, neither is taken.
    """
    batch = next(read_batches(damaged), None)
    if batch is None or not batch.is_control or not batch.is_transactional:
        return None
    found = []
    for committed in (True, False):
        marker = Marker(batch.producer_id, batch.producer_epoch, committed, 0)
        made = bytearray(write_marker(marker, batch.base_timestamp))
        made[:BATCH_HEADER_BYTES] = batch.data[:BATCH_HEADER_BYTES]
        epoch = _epoch_that_fits(made, batch.crc)
        if len(made) == len(batch.data) and -1 <= epoch < _LIKELY_EPOCH_MAX:
            _EPOCH.pack_into(made, len(made) - _EPOCH_FROM_END, epoch)
            found.append(bytes(made))
    return found[0] if len(found) == 1 and crc_of(found[0]) == batch.crc else None


def _epoch_that_fits(made: bytearray, crc: int) -> int:
    """The coordinator's epoch with which a marker has a CRC: 32 equations with 32 unknowns."""
    at = len(made) - _EPOCH_FROM_END
    without = crc_of(made)
    by_height: dict[int, tuple[int, int]] = {}
    for bit in range(32):
        made[at : at + 4] = (1 << bit).to_bytes(4)
        row, bits = crc_of(made) ^ without, 1 << bit
        while known := by_height.get(row.bit_length()):
            row, bits = row ^ known[0], bits ^ known[1]
        by_height[row.bit_length()] = row, bits
    left, epoch = crc ^ without, 0
    while left:
        row, bits = by_height[left.bit_length()]
        left, epoch = left ^ row, epoch ^ bits
    return epoch - (epoch >> 31 << 32)


def closing_marker(offset: int, leader_epoch: int) -> bytes:
    """A marker of no transaction at an offset, for readers of a gap that ends there.

    They continue after it, as after any marker; a batch without records strands many of them.
    """
    batch = bytearray(write_marker(Marker(-1, -1, committed=True, coordinator_epoch=0), -1))
    _PLACE.pack_into(batch, 0, offset)
    _EPOCH.pack_into(batch, BATCH_LEADER_EPOCH_AT, leader_epoch)
    return bytes(batch)


def write_empty(start: int, end: int, leader_epoch: int, timestamp_ms: int) -> bytes:
    """A batch without records that covers the offsets [start, end)."""
    times = timestamp_ms, timestamp_ms
    checked = _CHECKED.pack(ATTRIBUTE_CONTROL, end - start - 1, *times, -1, -1, -1, 0)
    return _batch(start, leader_epoch, checked)


def without(data: bytes, aborted: Callable[[int, int, list[int]], Iterable[AbortedRange]]) -> bytes:
    """Whole batches, with those of aborted transactions replaced by empty ones.

    `aborted` finds the transactions of some producers with records or markers in a range, in the
    order of the markers. Batches before `first_offset` or after the marker at `last_offset` belong
    to other transactions.
    """
    batches = list(read_batches(data))
    producers = sorted({each.producer_id for each in batches if each.is_transactional})
    if not producers:
        return data
    spans: dict[int, list[tuple[int, int]]] = {}
    for each in aborted(batches[0].base_offset, batches[-1].last_offset + 1, producers):
        spans.setdefault(each.producer_id, []).append((each.last_offset, each.first_offset))
    pieces: list[bytes | memoryview] = []
    for batch in batches:
        of_producer = spans.get(batch.producer_id, ()) if batch.is_transactional else ()
        at = bisect_left(of_producer, (batch.base_offset,))  # A producer has one after the other.
        if at < len(of_producer) and of_producer[at][1] <= batch.base_offset:
            end, epoch = batch.last_offset + 1, batch.leader_epoch
            pieces.append(write_empty(batch.base_offset, end, epoch, batch.max_timestamp))
        else:
            pieces.append(batch.data)
    return b"".join(pieces)


def _batch(base_offset: int, leader_epoch: int, checked: bytes) -> bytes:
    batch = bytearray(BATCH_ATTRIBUTES_AT) + checked
    length = len(batch) - BATCH_OVERHEAD_BYTES
    assert length >= BATCH_HEADER_BYTES - BATCH_OVERHEAD_BYTES
    _HEAD.pack_into(batch, 0, base_offset, length, leader_epoch, MAGIC, crc_of(batch))
    return bytes(batch)
