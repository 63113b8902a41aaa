"""Inflates compressed record batches, so that kernels can cut their records."""

import numpy as np

from shm.arrow import read_only
from shm.kernels.base.words import ATTRIBUTE_CODEC_MASK
from shm.kernels.record.records import (
    B_ATTRIBUTES,
    B_RECORDS_AT,
    B_RECORDS_END,
    INFLATED_BYTES_MAX,
)
from smq.model.errors import PeerError
from smq.wire.compression import decompress

MiB = 1024 * 1024
ARENA_BYTES = 32 * MiB  # Inflated at a time, except for the last batch: bounds memory.


def inflate(
    array: np.ndarray,
    facts: np.ndarray,
    bytes_max: int = INFLATED_BYTES_MAX,
    arena_bytes: int = ARENA_BYTES,
) -> tuple[np.ndarray, np.ndarray]:
    """An arena with the records of the first of these batches, and their facts.

    The arena is `array` itself if nothing is compressed; otherwise it ends with the batch that
    fills `arena_bytes`; a batch of so many has one of its own. A batch that cannot be inflated, or
    not to `bytes_max`, gets facts without room for its records, which makes it malformed.
    """
    if not (facts[B_ATTRIBUTES] & ATTRIBUTE_CODEC_MASK).any():
        return array, facts.copy()
    arena, facts, batch = bytearray(), facts.copy(), 0
    while batch < facts.shape[1] and len(arena) < arena_bytes:
        at, records = len(arena), _inflated(array, facts[:, batch], bytes_max)
        if len(records) >= arena_bytes:
            if batch == 0:  # It is not copied.
                facts[B_RECORDS_AT, 0], facts[B_RECORDS_END, 0] = 0, len(records)
                return read_only(records), facts[:, :1].copy()
            break
        arena += records
        facts[B_RECORDS_AT, batch], facts[B_RECORDS_END, batch] = at, len(arena)
        batch += 1
    return read_only(arena), facts[:, :batch].copy()


def _inflated(array: np.ndarray, batch: np.ndarray, bytes_max: int) -> bytes | memoryview:
    records = array.data[batch[B_RECORDS_AT] : batch[B_RECORDS_END]]
    codec = int(batch[B_ATTRIBUTES]) & ATTRIBUTE_CODEC_MASK
    if codec == 0:
        return records
    try:
        return decompress(codec, records, bytes_max)
    except PeerError:
        return b""
