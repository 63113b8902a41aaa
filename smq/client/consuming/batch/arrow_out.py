"""Converts chunks of records to an Arrow table.

    topic      dictionary<int32, string>      offset     int64
    partition  int32                          timestamp  timestamp[ms, UTC]
    key        binary_view                    value      binary_view
    headers    list<struct<key: string_view, value: binary_view>>

Views point into the memory of the chunk; offsets and timestamps are the columns the kernels wrote.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from shm.arrow import VIEW_OFFSET_MAX, binary_views
from shm.kernels.base.words import ATTRIBUTE_LOG_APPEND_TIME
from shm.kernels.reader.lend import F_ROW
from shm.kernels.record.records import (
    B_AT,
    B_ATTRIBUTES,
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
from smq.client.consuming.batch.chunk import Chunk

KEYS_ESCAPED = 1 << 16  # At a time: each is an object meanwhile.
COLUMNS_KEPT = 16  # Of each kind; the largest have a row for every seven bytes of a poll.

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


def to_table(chunks: Sequence[Chunk], names: Sequence[str] = SCHEMA.names) -> pa.Table:
    """A table of these columns, one at least, with a record batch for each chunk.

    Raises KeyError if there is no such column.
    """
    schema = pa.schema([SCHEMA.field(each) for each in names])
    return pa.Table.from_batches(
        [_record_batch(_in_reach(each), schema) for each in chunks], schema
    )


def are_append_times(chunks: Sequence[Chunk]) -> np.ndarray:
    """Of each row of `to_table`: whether the broker stamped it when it appended it."""
    return np.concatenate(
        [
            np.repeat(
                chunk.batches.facts[B_ATTRIBUTES] & ATTRIBUTE_LOG_APPEND_TIME != 0, chunk.counts
            )
            for chunk in chunks
        ]
        or [np.empty(0, np.bool_)]
    )


def are_header_keys_text(chunks: Sequence[Chunk]) -> bool:
    """Whether the header keys of `to_table` are those of the records: none is escaped."""
    return all(
        count_utf8(chunk.memory, headers[H_KEY_AT], headers[H_KEY_LENGTH]) == headers.shape[1]
        for chunk in chunks
        for headers in [chunk.headers]
    )


def _in_reach(chunk: Chunk) -> Chunk:
    """A view's offset has 31 bits: of a larger ring, take the part that holds the batches."""
    if len(chunk.memory) <= VIEW_OFFSET_MAX:
        return chunk
    facts = chunk.batches.facts
    start, end = int(facts[B_AT].min()), int(facts[B_END].max())
    if end - start > VIEW_OFFSET_MAX:  # They wrap around the ring's end.
        return chunk.copy()
    return chunk.moved(chunk.memory[start:end], np.full(len(chunk.counts), -start))


def _record_batch(chunk: Chunk, schema: pa.Schema) -> pa.RecordBatch:
    arrays = [_COLUMNS[name](chunk, len(chunk)) for name in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _topics(chunk: Chunk, count: int) -> pa.Array:
    names = chunk.batches.names
    if len(names) == 1:
        return _first(_one_topic, count, names[0].topic)
    topics = sorted({name.topic for name in names})
    indices = _by_record(chunk, [topics.index(name.topic) for name in names])
    return pa.DictionaryArray.from_arrays(indices, topics)


def _partitions(chunk: Chunk, count: int) -> pa.Array:
    names = chunk.batches.names
    if len(names) == 1:
        return _first(_one_partition, count, names[0].partition)
    return _by_record(chunk, [name.partition for name in names])


def _offsets(chunk: Chunk, _: int) -> pa.Array:
    return _numbers(pa.int64(), chunk.columns[C_OFFSET])


def _timestamps(chunk: Chunk, _: int) -> pa.Array:
    return _numbers(SCHEMA.field("timestamp").type, chunk.columns[C_TIMESTAMP])


def _values(chunk: Chunk, _: int) -> pa.Array:
    return binary_views(chunk.memory, chunk.columns[C_VALUE_AT], chunk.columns[C_VALUE_LENGTH])


def _keys(chunk: Chunk, count: int) -> pa.Array:
    lengths = chunk.columns[C_KEY_LENGTH]
    if count and lengths.max() < 0:
        return _first(_nulls, count)
    return binary_views(chunk.memory, chunk.columns[C_KEY_AT], lengths)


# Columns with the same value in all rows are made once, and sliced.


@lru_cache(4 * COLUMNS_KEPT)  # Slices: a producer's batches often have the same size.
def _first(make: Callable[..., pa.Array], count: int, *facts: object) -> pa.Array:
    """The first rows of a column that `make(*facts, size)` makes, for some doubling sizes."""
    return make(*facts, 1 << max(count - 1, 0).bit_length()).slice(0, count)


@lru_cache(COLUMNS_KEPT)
def _one_topic(topic: str, size: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(_numbers(pa.int32(), np.zeros(size, np.int32)), [topic])


@lru_cache(COLUMNS_KEPT)
def _one_partition(partition: int, size: int) -> pa.Array:
    return _numbers(pa.int32(), np.full(size, partition, np.int32))


@lru_cache(COLUMNS_KEPT)
def _nulls(size: int) -> pa.Array:
    return pa.nulls(size, pa.binary_view())


@lru_cache(COLUMNS_KEPT)
def _no_headers(size: int) -> pa.Array:
    ends = _numbers(pa.int32(), np.zeros(size + 1, np.int32))
    return pa.ListArray.from_arrays(ends, pa.array([], _HEADER))


def _by_record(chunk: Chunk, by_name: list[int]) -> pa.Array:
    """A number of each name, for each record of that name."""
    by_batch = np.array(by_name, np.int32)[chunk.batches.facts[F_ROW]]
    return _numbers(pa.int32(), np.repeat(by_batch, chunk.counts))


def _numbers(kind: Any, values: np.ndarray) -> pa.Array:  # noqa: ANN401  (pyarrow has no types)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _headers(chunk: Chunk, count: int) -> pa.Array:
    if not chunk.columns[C_HEADER_COUNT].any():
        return _first(_no_headers, count)
    ends = np.zeros(count + 1, np.int32)
    chunk.columns[C_HEADER_COUNT].cumsum(out=ends[1:])
    headers, memory = chunk.headers, chunk.memory
    items = pa.StructArray.from_arrays(
        [
            _text(memory, headers[H_KEY_AT], headers[H_KEY_LENGTH]),
            binary_views(memory, headers[H_VALUE_AT], headers[H_VALUE_LENGTH]),
        ],
        fields=list(_HEADER),
    )
    return pa.ListArray.from_arrays(_numbers(pa.int32(), ends), items)


def _text(memory: np.ndarray, ats: np.ndarray, lengths: np.ndarray) -> pa.Array:
    """Strings as views; bytes that are not UTF-8 become `\\xff`, and all are copied."""
    keys = binary_views(memory, ats, lengths)
    if count_utf8(memory, ats, lengths) == len(ats):
        return keys.view(pa.string_view())
    texts = (
        [key.decode(errors="backslashreplace") for key in keys[at : at + KEYS_ESCAPED].to_pylist()]
        for at in range(0, len(keys), KEYS_ESCAPED)
    )
    return pa.concat_arrays([pa.array(each, pa.string_view()) for each in texts])


_COLUMNS: dict[str, Callable[[Chunk, int], pa.Array]] = {
    "topic": _topics,
    "partition": _partitions,
    "offset": _offsets,
    "timestamp": _timestamps,
    "key": _keys,
    "value": _values,
    "headers": _headers,
}
