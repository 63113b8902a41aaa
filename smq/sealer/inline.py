"""Payloads as values: batches for Kafka clients of topics that deliver inline.

A batch with handles is encoded again: a payload replaces its handle, and the header `content-type`
replaces `smq-ref`. Offsets, times and keys stay. An answer has at most the bytes that the client
asked for: it may end inside a batch, and the next answer begins there. A payload that is larger
than that, or that no longer exists, stays a handle. While the filer is unavailable nothing is
delivered.
"""

from collections.abc import Callable
from typing import NamedTuple, cast

import numpy as np

from shm.arrow import read_only
from shm.kernels.base.crc32c import crc32c
from shm.kernels.base.words import BATCH_HEADER_BYTES
from shm.kernels.record.references import HEADER_KEY, may_refer
from smq.filer.store import Store
from smq.model.errors import NotFound, Unavailable
from smq.model.references import Reference
from smq.sealer.read_back import PLACE
from smq.wire.codec import Buffer
from smq.wire.records import BatchView, Record, batch_pieces, read_batches
from smq.wire.references import handles_of_batch

CONTENT_TYPE = b"content-type"
# Upper bound of a record's bytes beside its fields, with a header `content-type`.
RECORD_OVERHEAD_BYTES = 512

Fetch = Callable[[Reference], Buffer | None]


class Delivered(NamedTuple):
    """Batches as pieces to write in order, and the offset after them."""

    pieces: list[Buffer]
    next_offset: int

    def places(self, offset: int) -> np.ndarray:
        """Rows of PLACE for a cache file with all pieces as one entry, for `offset`."""
        length = sum(map(len, self.pieces))
        return np.array([(offset, self.next_offset - 1, 0, length)], PLACE)


def payload_in(store: Store, directory: str) -> Fetch:
    """A reader of a topic's payloads: None for one that is missing or damaged.

    The reader raises Unavailable if the filer cannot tell.
    """

    def payload(reference: Reference) -> Buffer | None:
        try:
            array = _bytes_of(store, directory + reference.id)
        except NotFound:
            return None
        if len(array) != reference.length or int(crc32c(array, 0, len(array))) != reference.crc32c:
            return None
        return array.data

    return payload


def _bytes_of(store: Store, key: str) -> np.ndarray:
    """An object's bytes, mapped where it is a file. Raises NotFound, Unavailable."""
    path = store.local_path(key)
    if path is None or store.head(key).length == 0:  # An empty file cannot be mapped.
        return read_only(store.get(key))
    try:
        return read_only(np.memmap(path, np.uint8, "r"))
    except (OSError, ValueError) as reason:  # It may have been deleted or cut since the check.
        raise Unavailable(key, f"it cannot be read: {reason}") from reason


def deliver(batches: bytes, offset: int, bytes_max: int, payload_of: Fetch) -> Delivered:
    """Batches from the record at `offset`: as many bytes as fit, at least one record if any.

    `batches` are whole; the first one has the offset. Those without records, in place of aborted
    ones, are left out: some clients never get past one. So there may be none to deliver.
    """
    delivery = _Delivery(bytes_max, payload_of)
    for batch in read_batches(batches):
        if batch.last_offset < offset:
            continue
        offset = delivery.add(batch, offset) if batch.record_count else batch.last_offset + 1
        if offset <= batch.last_offset:
            break
    return Delivered(delivery.pieces, offset)


class _Delivery:
    """An answer under construction."""

    def __init__(self, bytes_max: int, payload_of: Fetch) -> None:
        self._bytes_max = self._left = bytes_max
        self._payload_of = payload_of
        self.pieces: list[Buffer] = []

    def add(self, batch: BatchView, offset: int) -> int:
        """Add what fits of a batch from `offset`; returns the offset after that."""
        handles = _handles(batch)
        if not handles:
            return self._add_whole(batch, offset)
        records: list[Record] = []
        end, room = batch.last_offset + 1, self._left - BATCH_HEADER_BYTES
        for place, record in enumerate(batch.records()):
            if record.offset < offset:
                continue
            reference = handles.get(place)
            if reference is not None and not self._may_fit(record, reference):
                reference = None
            size = _size(record) + (reference.length if reference else 0)
            if size > room and (records or self.pieces):
                end = record.offset
                break
            records.append(record if reference is None else self._inlined(record, reference))
            room -= size
        if records:
            self._take(batch_pieces(records, batch, end - 1))
        elif end > batch.last_offset:  # Only a gap is left: the batch covers it.
            return self._add_whole(batch, offset)
        return end

    def _add_whole(self, batch: BatchView, offset: int) -> int:
        if self.pieces and len(batch.data) > self._left:
            return offset
        self._take([batch.data])
        return batch.last_offset + 1

    def _take(self, pieces: list[Buffer]) -> None:
        self.pieces += pieces
        self._left -= sum(map(len, pieces))

    def _may_fit(self, record: Record, reference: Reference) -> bool:
        """Whether an answer can hold the record with its payload at all."""
        return _size(record) + reference.length <= self._bytes_max - BATCH_HEADER_BYTES

    def _inlined(self, record: Record, reference: Reference) -> Record:
        payload = self._payload_of(reference)
        if payload is None:
            return record
        headers = tuple(each for each in record.headers if each[0] != HEADER_KEY)
        if CONTENT_TYPE not in dict(headers):
            headers += ((CONTENT_TYPE, reference.content_type.encode()),)
        value = cast("bytes", payload)  # It is not copied.
        return record._replace(value=value, headers=headers)


def _size(record: Record) -> int:
    """An upper bound of a record's bytes."""
    fields = [record.key, record.value, *(part for header in record.headers for part in header)]
    return RECORD_OVERHEAD_BYTES + sum(len(each) for each in fields if each)


def _handles(batch: BatchView) -> dict[int, Reference]:
    """The handles in a batch, by record index."""
    data = read_only(batch.data)
    if not may_refer(data, 0, len(data)):
        return {}
    handles = handles_of_batch(data, 0, len(data)) or ()
    return {
        each.record: each.reference for each in handles if isinstance(each.reference, Reference)
    }
