"""Selects and rewrites the fetched batches to produce: `smq copy` without its IO.

A batch is forwarded as it is, still compressed, if a broker would accept it: its header loses the
producer, the transaction and the leader epoch, and gets a new CRC. Records are decoded and encoded
only if necessary: in a batch from which compaction has removed records, whose append time is the
broker's, that begins before the wanted offset, or that is larger than the destination takes.

Each copied record takes exactly one offset of the destination. That makes a copy resumable: its
progress is the destination's end.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from struct import Struct
from typing import NamedTuple

import numpy as np

from shm.kernels.base.crc32c import crc32c
from shm.kernels.base.words import (
    ATTRIBUTE_TRANSACTIONAL,
    BATCH_ATTRIBUTES_AT,
    BATCH_BASE_OFFSET_AT,
    BATCH_CRC_AT,
    BATCH_LEADER_EPOCH_AT,
    BATCH_PRODUCER_ID_AT,
)
from smq.wire.codec import Buffer, Malformed
from smq.wire.record_stream import InflationLimits, records_from
from smq.wire.records import INFLATED_BYTES_MAX, BatchView, Record, read_batches, write_batch

NO_PRODUCER = -1
PIECE_BYTES = 8 * 1024 * 1024  # Of records that are decoded at a time; one may be larger.
RECORD_BYTES = 200  # A record's objects in memory, beside its bytes.
HEADER_BYTES = 100  # A header's.
OFFSET_END = 2**63 - 1  # No record has it: the log could not go on.

_INT16, _INT32, _INT64, _UINT32 = Struct(">h"), Struct(">i"), Struct(">q"), Struct(">I")
_PRODUCER = Struct(">qhi")  # Id, epoch and base sequence.


class Ready(NamedTuple):
    """A batch to produce, its record count, and the source's next offset after it and its leader
    epoch."""

    data: Buffer
    record_count: int
    source_next: int
    epoch: int


class ProducerIdentity(NamedTuple):
    """An idempotent producer."""

    id: int
    epoch: int


class Sizes(NamedTuple):
    """The largest batch that the destination takes, and how far one that must be encoded anew may
    inflate."""

    batch_bytes_max: int
    inflated_bytes_max: int = INFLATED_BYTES_MAX


@dataclass(slots=True)
class CommittedBatches:
    """Tells committed batches from aborted ones, by the fetch response's list.

    `aborted` has (producer id, first offset), ordered by offset.
    """

    aborted: Sequence[tuple[int, int]]
    _next: int = 0
    _open: set[int] = field(default_factory=set)  # Producers whose transaction was aborted.

    def has(self, batch: BatchView) -> bool:
        """Whether readers of committed records see the batch. Call it with batches in order."""
        while self._next < len(self.aborted) and self.aborted[self._next][1] <= batch.last_offset:
            self._open.add(self.aborted[self._next][0])
            self._next += 1
        if batch.is_control:
            self._open.discard(batch.producer_id)  # The marker that ends the transaction.
            return False
        return not (batch.is_transactional and batch.producer_id in self._open)


def to_produce(
    records: memoryview,
    position: int,
    end: int,
    aborted: Sequence[tuple[int, int]],
    sizes: Sizes,
) -> Iterator[Ready]:
    """The batches with the records from `position` up to `end`, which is a batch's boundary.

    Batches that are left out are empty ones, so that the position moves. One that is too large is
    divided, down to single records. `records` is writable and is changed in place. Raises
    Malformed, Undecodable; InflatesTooFar.
    """
    committed, behind = CommittedBatches(aborted), 0
    for batch in read_batches(records):
        _check_offsets(batch, behind)
        behind = batch.last_offset + 1
        is_seen = committed.has(batch)
        if batch.last_offset < position:
            continue
        if batch.base_offset >= end:
            return
        after = batch.last_offset + 1
        if not is_seen:
            yield Ready(b"", 0, after, batch.leader_epoch)
        elif _may_stay(batch, position, sizes.batch_bytes_max):
            yield Ready(_anonymous(batch), batch.record_count, after, batch.leader_epoch)
        else:
            yield from _encoded(batch, position, sizes)


def _check_offsets(batch: BatchView, behind: int) -> None:
    """Raise Malformed if a batch has offsets before this one, or more records than offsets."""
    if not behind <= batch.base_offset <= batch.last_offset < OFFSET_END:
        raise Malformed(
            f"a batch has the offsets {batch.base_offset} to {batch.last_offset} where {behind} or "
            "a later one follows"
        )
    if not 0 <= batch.record_count <= batch.last_offset_delta + 1:
        raise Malformed(
            f"the batch at offset {batch.base_offset} says that it has {batch.record_count} "
            f"records in {batch.last_offset_delta + 1} offsets"
        )


def _may_stay(batch: BatchView, position: int, bytes_max: int) -> bool:
    return (
        batch.base_offset >= position
        and (len(batch.data) <= bytes_max or batch.record_count == 1)
        and batch.record_count == batch.last_offset_delta + 1
        and not batch.is_log_append_time
    )


def _anonymous(batch: BatchView) -> memoryview:
    """The batch as from a producer without an id, changed in place."""
    data = batch.data
    checked = np.frombuffer(data, np.uint8)
    if int(crc32c(checked, BATCH_ATTRIBUTES_AT, len(data))) != batch.crc:
        raise Malformed(f"the batch at offset {batch.base_offset} has a wrong CRC")
    _INT64.pack_into(data, BATCH_BASE_OFFSET_AT, 0)
    _INT32.pack_into(data, BATCH_LEADER_EPOCH_AT, -1)
    if batch.producer_id == NO_PRODUCER and not batch.is_transactional:
        return data  # The CRC covers neither of the fields above.
    _INT16.pack_into(data, BATCH_ATTRIBUTES_AT, batch.attributes & ~ATTRIBUTE_TRANSACTIONAL)
    _PRODUCER.pack_into(data, BATCH_PRODUCER_ID_AT, -1, -1, -1)
    _UINT32.pack_into(data, BATCH_CRC_AT, int(crc32c(checked, BATCH_ATTRIBUTES_AT, len(data))))
    return data


def from_producer(data: Buffer, producer: ProducerIdentity, sequence: int) -> Buffer:
    """A batch as from a producer, its first record with this sequence. Changed in place where it
    is writable."""
    view = memoryview(data)
    view = memoryview(bytearray(view)) if view.readonly else view
    _PRODUCER.pack_into(view, BATCH_PRODUCER_ID_AT, *producer, sequence)
    checked = np.frombuffer(view, np.uint8)
    _UINT32.pack_into(view, BATCH_CRC_AT, int(crc32c(checked, BATCH_ATTRIBUTES_AT, len(view))))
    return view


def _encoded(batch: BatchView, position: int, sizes: Sizes) -> Iterator[Ready]:
    """The batch's records from `position` on, anew.

    It is divided in the same way whatever the position: a copy that goes on between two parts finds
    those that it has already sent.
    """
    for piece, piece_end in _pieces(batch, sizes):
        if piece_end <= position:
            continue
        parts = _divided(piece, batch.codec, sizes.batch_bytes_max)
        ends = [*(records[0].offset for records, _ in parts[1:]), piece_end]
        for (records, data), end in zip(parts, ends, strict=True):
            kept = [record for record in records if record.offset >= position]
            if len(kept) < len(records):
                data = _written(kept, batch.codec) if kept else b""  # noqa: PLW2901
            if end > position:
                yield Ready(data, len(kept), end, batch.leader_epoch)


def _pieces(batch: BatchView, sizes: Sizes) -> Iterator[tuple[Sequence[Record], int]]:
    """The records, some at a time, and where those end: a few kilobytes may inflate to
    gigabytes."""
    limits = InflationLimits(sizes.inflated_bytes_max, sizes.inflated_bytes_max)
    piece: list[Record] = []
    piece_bytes, before = 0, batch.base_offset - 1
    for record in records_from(batch, -OFFSET_END, limits):
        if record is None:
            continue
        if not before < record.offset <= batch.last_offset:
            raise Malformed(
                f"the batch at offset {batch.base_offset} has a record at {record.offset}"
            )
        before = record.offset
        if piece_bytes > PIECE_BYTES:
            yield piece, record.offset
            piece, piece_bytes = [], 0
        piece.append(record)
        piece_bytes += _bytes_of(record)
    yield piece, batch.last_offset + 1


def _bytes_of(record: Record) -> int:
    parts = (record.key, record.value, *chain.from_iterable(record.headers))
    beside = RECORD_BYTES + HEADER_BYTES * len(record.headers)
    return beside + sum(len(part) for part in parts if part is not None)


def _divided(
    records: Sequence[Record], codec: int, bytes_max: int
) -> list[tuple[Sequence[Record], bytes]]:
    """The records as one batch, or as those of its halves where it is too large."""
    if not records:  # Compaction has removed all of them.
        return [((), b"")]
    data = _written(records, codec)
    if len(data) <= bytes_max or len(records) == 1:
        return [(records, data)]
    half = len(records) // 2
    return [
        *_divided(records[:half], codec, bytes_max),
        *_divided(records[half:], codec, bytes_max),
    ]


def _written(records: Sequence[Record], codec: int) -> bytes:
    numbered = [record._replace(offset=number) for number, record in enumerate(records)]
    return write_batch(numbered, compression=codec)
