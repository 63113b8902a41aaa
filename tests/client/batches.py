"""Fetched bytes as the SDK's PlacedBatches, and as a plain reader reads them."""

import numpy as np

from shm.arrow import read_only
from shm.kernels.reader.lend import F_FIELDS, F_ROW, F_START
from shm.kernels.record.records import B_BASE_OFFSET, scan_batches
from smq.client.consuming.batch.chunk import PlacedBatches, Record
from smq.client.names import TopicPartition
from smq.wire.records import read_batches

NAME = TopicPartition("t", 3)


def batches_of(data: bytes, start: int | None = None, *, is_lent: bool = False) -> PlacedBatches:
    """Whole batches, read from an offset on."""
    array = read_only(data)
    facts = np.zeros((F_FIELDS, len(data) // 61 + 1), np.int64)
    count = scan_batches(array, 0, len(array), facts)
    assert count >= 0
    facts = np.ascontiguousarray(facts[:, :count])
    facts[F_ROW] = 0
    facts[F_START] = facts[B_BASE_OFFSET] if start is None else start
    return PlacedBatches(array, facts, [NAME], is_lent=is_lent)


Plain = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def plain_of(record: Record) -> Plain:
    """All that a record says."""
    value = None if record.value is None else bytes(record.value)
    return record.offset, record.timestamp_ms, record.key, value, tuple(record.headers)


def expected(data: bytes, start: int = 0) -> list[Plain]:
    """The records from an offset on, by the plain reader."""
    return [
        (
            each.offset,
            each.timestamp_ms,
            each.key,
            each.value,
            tuple((key.decode(errors="surrogateescape"), value) for key, value in each.headers),
        )
        for batch in read_batches(data)
        for each in batch.records()
        if each.offset >= start
    ]
