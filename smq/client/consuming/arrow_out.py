"""Chunks of records as an Arrow table.

    topic      dictionary<int32, string>      offset     int64
    partition  int32                          timestamp  timestamp[ms, UTC]
    key        binary_view                    value      binary_view
    headers    list<struct<key: string_view, value: binary_view>>

Views point into the memory of the chunk; offsets and timestamps are the columns the kernels wrote.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from shm.arrow import VIEW_OFFSET_MAX, binary_views
from shm.kernels.lend import F_ROW
from shm.kernels.records import (
    B_AT,
    B_END,
    C_HEADER_COUNT,
    C_KEY_AT,
    C_KEY_LENGTH,
    C_OFFSET,
    C_TIMESTAMP,
    C_VALUE_AT,
    C_VALUE_LENGTH,
    H_KEY_AT,
    H_KEY_LENGTH,
    H_VALUE_AT,
    H_VALUE_LENGTH,
    count_utf8,
)
from smq.client.consuming.chunk import Chunk

_HEADER = pa.struct([("key", pa.string_view()), ("value", pa.binary_view())])
SCHEMA = pa.schema(
    [
        ("topic", pa.dictionary(pa.int32(), pa.string())),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", "UTC")),
        ("key", pa.binary_view()),
        ("value", pa.binary_view()),
        ("headers", pa.list_(_HEADER)),
    ]
)


def to_table(chunks: Sequence[Chunk]) -> pa.Table:
    """A table with a record batch for each chunk."""
    return pa.Table.from_batches([_record_batch(_in_reach(chunk)) for chunk in chunks], SCHEMA)


def _in_reach(chunk: Chunk) -> Chunk:
    """A view's offset has 31 bits: of a larger ring, the part that the batches lie in."""
    if len(chunk.memory) <= VIEW_OFFSET_MAX:
        return chunk
    facts = chunk.batches.facts
    start, end = int(facts[B_AT].min()), int(facts[B_END].max())
    if end - start > VIEW_OFFSET_MAX:  # They lie around the ring's end.
        return chunk.copy()
    return chunk.moved(chunk.memory[start:end], np.full(len(chunk.counts), -start))


def _record_batch(chunk: Chunk) -> pa.RecordBatch:
    columns, memory, count = chunk.columns, chunk.memory, len(chunk)
    topics = sorted({name.topic for name in chunk.batches.names})
    indices = _by_record(chunk, [topics.index(name.topic) for name in chunk.batches.names])
    arrays = [
        pa.DictionaryArray.from_arrays(indices, topics),
        _by_record(chunk, [name.partition for name in chunk.batches.names]),
        _numbers(pa.int64(), columns[C_OFFSET]),
        _numbers(SCHEMA.field("timestamp").type, columns[C_TIMESTAMP]),
        binary_views(memory, columns[C_KEY_AT], columns[C_KEY_LENGTH]),
        binary_views(memory, columns[C_VALUE_AT], columns[C_VALUE_LENGTH]),
        _headers(chunk, count),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _by_record(chunk: Chunk, by_name: list[int]) -> pa.Array:
    """A number of each name, for each record of that name."""
    by_batch = np.array(by_name, np.int32)[chunk.batches.facts[F_ROW]]
    return _numbers(pa.int32(), np.repeat(by_batch, chunk.counts))


def _numbers(kind: Any, values: np.ndarray) -> pa.Array:  # noqa: ANN401  (pyarrow has no types)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _headers(chunk: Chunk, count: int) -> pa.Array:
    ends = np.zeros(count + 1, np.int32)
    if chunk.columns[C_HEADER_COUNT].any():
        chunk.columns[C_HEADER_COUNT].cumsum(out=ends[1:])
        headers, memory = chunk.headers, chunk.memory
        items = pa.StructArray.from_arrays(
            [
                _text(memory, headers[H_KEY_AT], headers[H_KEY_LENGTH]),
                binary_views(memory, headers[H_VALUE_AT], headers[H_VALUE_LENGTH]),
            ],
            fields=list(_HEADER),
        )
    else:
        items = pa.array([], _HEADER)
    return pa.ListArray.from_arrays(_numbers(pa.int32(), ends), items)


def _text(memory: np.ndarray, ats: np.ndarray, lengths: np.ndarray) -> pa.Array:
    """Strings as views; where one is not UTF-8, what can be read of all of them."""
    keys = binary_views(memory, ats, lengths)
    if count_utf8(memory, ats, lengths) == len(ats):
        return keys.view(pa.string_view())
    return pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string_view())
