"""Keys and values of records as Arrow columns over the memory the batches lie in.

Fields longer than 12 bytes are not copied: a column is a 16-byte view for each record that points
at its bytes. The arrays keep a reference to their memory; the lender says how long its content
stays valid.
"""

from typing import Any

import numpy as np

from shm.kernels.base.words import ATTRIBUTE_CODEC_MASK
from shm.kernels.record.records import (
    B_AT,
    B_ATTRIBUTES,
    B_COUNT,
    B_INTACT,
    C_KEY_AT,
    C_KEY_LENGTH,
    C_VALUE_AT,
    C_VALUE_LENGTH,
    RECORD_BYTES_MIN,
    new_columns,
    new_facts,
    scan_batches,
    walk_batches,
)
from shm.kernels.record.views import VIEW_BYTES, fill_views
from shm.reuse import empty_words

VIEW_OFFSET_MAX = 2**31 - 1  # A view's offset is an int32.


class NotPlain(ValueError):
    """These bytes are not whole, well-formed, uncompressed record batches."""


def read_only(data: Any) -> np.ndarray:  # noqa: ANN401  (whatever lends its bytes)
    """Bytes as the array all kernels are compiled for: uint8, not writable."""
    array = np.frombuffer(data, np.uint8)
    array.flags.writeable = False
    return array


def columns_of(data: np.ndarray) -> np.ndarray:
    """The columns of `shm.kernels.record.records` for plain batches. Raises NotPlain."""
    facts = new_facts(len(data))
    count = scan_batches(data, 0, len(data), facts)
    if count < 0:
        raise NotPlain(f"no batch begins at byte {~count}")
    facts = facts[:, :count].copy()
    if not facts[B_INTACT].all():
        raise NotPlain(f"the batch at byte {facts[B_AT, facts[B_INTACT].argmin()]} has a wrong CRC")
    if (facts[B_ATTRIBUTES] & ATTRIBUTE_CODEC_MASK).any():
        raise NotPlain("a batch is compressed")
    if (facts[B_COUNT] > len(data) // RECORD_BYTES_MIN).any():
        raise NotPlain("a batch announces more records than it has bytes for")
    columns = new_columns(int(facts[B_COUNT].sum()))
    if (rows := walk_batches(data, facts, 0, count, columns)) < 0:
        raise NotPlain(f"the batch at byte {facts[B_AT, ~rows]} is malformed")
    return columns


def binary_views(data: np.ndarray, ats: np.ndarray, lengths: np.ndarray) -> Any:  # noqa: ANN401
    """A pyarrow `binary_view` array with data[at:at + length] for each row; -1 is null."""
    import pyarrow as pa  # noqa: PLC0415  (0.2 s and 50 MB, only for callers that want Arrow.)

    assert len(data) <= VIEW_OFFSET_MAX
    views = empty_words(len(ats) * VIEW_BYTES // 8).view(np.uint8)
    validity = np.zeros((len(ats) + 7) // 8, np.uint8)
    nulls = fill_views(data, ats, lengths, views, validity)
    buffers = [pa.py_buffer(validity) if nulls else None, pa.py_buffer(views), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary_view(), len(ats), buffers, null_count=nulls)


def views(data: np.ndarray) -> tuple[Any, Any]:
    """Keys and values of the plain batches in `data`, where they lie. Raises NotPlain."""
    columns = columns_of(data)
    return (
        binary_views(data, columns[C_KEY_AT], columns[C_KEY_LENGTH]),
        binary_views(data, columns[C_VALUE_AT], columns[C_VALUE_LENGTH]),
    )
