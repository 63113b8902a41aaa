"""Inflates compressed record batches, so that kernels can cut their records."""

from typing import NamedTuple

import numpy as np

from shm.arrow import read_only
from shm.kernels.base.words import ATTRIBUTE_CODEC_MASK
from shm.kernels.record.records import (
    B_ATTRIBUTES,
    B_RECORDS_AT,
    B_RECORDS_END,
    C_FIELDS,
    H_FIELDS,
    INFLATED_BYTES_MAX,
)
from smq.model.errors import PeerError
from smq.wire.codec import Buffer
from smq.wire.compression import InflatesTooFar, decompress

MiB = 1024 * 1024
ARENA_BYTES = 32 * MiB  # Inflated at a time, except for the last batch: bounds memory.
# What finds the fields of a record of seven bytes, and those of a header of two.
RECORD_COLUMN_BYTES, HEADER_COLUMN_BYTES = 8 * C_FIELDS, 8 * H_FIELDS


class Arena(NamedTuple):
    """Records in one memory, and the facts of their batches. `is_beyond`: the last of these
    batches inflates beyond the bytes that were allowed."""

    memory: np.ndarray
    facts: np.ndarray
    is_beyond: bool


def inflate(
    array: np.ndarray,
    facts: np.ndarray,
    bytes_max: int = INFLATED_BYTES_MAX,
    arena_bytes: int = ARENA_BYTES,
) -> Arena:
    """An arena with the records of the first of these batches.

    Its memory is `array` itself if nothing is compressed. Otherwise it ends after the batch that
    fills `arena_bytes`; a larger batch gets an arena of its own. A batch that cannot be inflated,
    or inflates to more than `bytes_max`, gets facts without room for its records, which makes it
    malformed; the arena ends after the first that inflates to more.
    """
    if not (facts[B_ATTRIBUTES] & ATTRIBUTE_CODEC_MASK).any():
        return Arena(array, facts.copy(), is_beyond=False)
    arena, facts, batch, is_beyond = bytearray(), facts.copy(), 0, False
    while batch < facts.shape[1] and len(arena) < arena_bytes and not is_beyond:
        at, records = len(arena), _inflated(array, facts[:, batch], bytes_max)
        is_beyond = records is None
        if records is not None and len(records) >= arena_bytes:
            if batch == 0:  # It is not copied.
                facts[B_RECORDS_AT, 0], facts[B_RECORDS_END, 0] = 0, len(records)
                return Arena(read_only(records), facts[:, :1].copy(), is_beyond=False)
            break
        arena += records or b""
        facts[B_RECORDS_AT, batch], facts[B_RECORDS_END, batch] = at, len(arena)
        batch += 1
    return Arena(read_only(arena), facts[:, :batch].copy(), is_beyond)


def _inflated(array: np.ndarray, batch: np.ndarray, bytes_max: int) -> Buffer | None:
    """The records of a batch, b"" if they cannot be inflated; None: they inflate further."""
    records = array.data[batch[B_RECORDS_AT] : batch[B_RECORDS_END]]
    codec = int(batch[B_ATTRIBUTES]) & ATTRIBUTE_CODEC_MASK
    if codec == 0:
        return records
    try:
        return decompress(codec, records, bytes_max)
    except InflatesTooFar:
        return None
    except PeerError:
        return b""
