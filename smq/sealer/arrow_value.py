"""Reads the row of an Arrow stream that is a record's value: untrusted, and possibly a bomb.

Its buffers may be compressed, a dictionary or a run may stand for any number of values, and nulls
take no bytes at all. So the inflated size of a stream is computed before the stream is read, and
columns are cast to other types only if all of them together take few bytes.
"""

from collections.abc import Iterator
from struct import Struct, error

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# A value may inflate to the larger of INFLATION_MAX times its own bytes, and INFLATION_FREE bytes.
INFLATION_MAX = 8
INFLATION_FREE = 64 * 1024
UNBOUNDED = 1 << 62
_VALUE_BYTES = 8  # Of a number, in the column that it becomes.
_OLD_COMPRESSION = b"ARROW:experimental_compression"  # Of Arrow 0.17, which is still read.
_VIEW_WORDS = 4  # Of 32 bits; the first is the length.
_FIXED = (pa.types.is_primitive, pa.types.is_decimal, pa.types.is_fixed_size_binary)
_BINARY = (
    *(pa.types.is_string, pa.types.is_binary),
    *(pa.types.is_large_string, pa.types.is_large_binary),
)
_VIEWS = (pa.types.is_string_view, pa.types.is_binary_view)
_UINT16, _INT32, _UINT32, _INT64 = Struct("<H"), Struct("<i"), Struct("<I"), Struct("<q")
_BUFFER = Struct("<qq")  # Where a buffer lies in a message's body, and its bytes.
# Fields of the tables in Arrow's Message.fbs.
_HEADER, _BUFFERS, _COMPRESSION, _DICTIONARY_BATCH = 2, 2, 3, 1


def row_of(value: bytes, columns: pa.Schema) -> list[pa.ChunkedArray] | None:
    """These columns of a stream's row, null where it has none; None if it is not one row that
    fits. Raises pa.ArrowException, OSError, KeyError, ValueError."""
    left = max(INFLATION_MAX * len(value), INFLATION_FREE)
    if inflated_bytes(value) > left:
        return None
    table = pa.ipc.open_stream(value).read_all()
    table.validate(full=True)
    if table.num_rows != 1:
        return None
    found = []
    for each in columns:
        if each.name not in table.column_names:
            found.append(pa.nulls(1, each.type))
            continue
        column = table[each.name].combine_chunks()
        if column.type != each.type:
            left -= _cast_bytes(column, each.type)
        if left < 0:
            return None
        found.append(column.cast(each.type))
    return found


def inflated_bytes(value: bytes) -> int:
    """The bytes that a stream's buffers will take. Raises pa.ArrowException, ValueError."""
    try:
        return sum(map(_inflated, pa.ipc.MessageReader.open_stream(value)))
    except error as reason:
        raise ValueError(f"a message that points outside itself: {reason}") from None


def _inflated(message: pa.ipc.Message) -> int:
    if message.type not in {"record batch", "dictionary"}:
        return 0
    data, body = memoryview(message.metadata), memoryview(message.body)
    if _OLD_COMPRESSION in bytes(data):
        raise ValueError("it is compressed as by Arrow 0.17")
    batch = _table_at(data, _UINT32.unpack_from(data)[0], _HEADER)
    if batch is not None and message.type == "dictionary":
        batch = _table_at(data, batch, _DICTIONARY_BATCH)
    if batch is None or _field(data, batch, _COMPRESSION) is None:
        return len(body)
    return sum(
        size if (claimed := _INT64.unpack_from(body, at)[0]) < 0 else claimed
        for at, size in _buffers(data, batch)
        if size
    )


def _buffers(data: memoryview, batch: int) -> Iterator[tuple[int, int]]:
    vector = _table_at(data, batch, _BUFFERS)
    if vector is None:
        return
    (count,) = _UINT32.unpack_from(data, vector)
    for number in range(count):
        yield _BUFFER.unpack_from(data, vector + _UINT32.size + number * _BUFFER.size)


def _field(data: memoryview, table: int, number: int) -> int | None:
    """Where a field of a FlatBuffers table lies; None: it is not there."""
    names = table - _INT32.unpack_from(data, table)[0]
    at = 4 + 2 * number
    if at >= _UINT16.unpack_from(data, names)[0]:
        return None
    (offset,) = _UINT16.unpack_from(data, names + at)
    return table + offset if offset else None


def _table_at(data: memoryview, table: int, number: int) -> int | None:
    """Where the table or vector lies that a field refers to; None: there is none."""
    at = _field(data, table, number)
    return None if at is None else at + _UINT32.unpack_from(data, at)[0]


def _cast_bytes(column: pa.Array, wanted: pa.DataType) -> int:
    """What a column of one row takes as another type, beyond its own bytes."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    kind = column.type
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        kind = kind.value_type
    if not pa.types.is_nested(kind) and not isinstance(kind, pa.BaseExtensionType):
        return 0  # One value.
    if not _is_countable(column.type):
        return UNBOUNDED
    return _VALUE_BYTES * _values(column, wanted)


def _is_countable(kind: pa.DataType) -> bool:
    """Whether the bytes of a type's values can be counted."""
    types = pa.types
    if _is_list(kind) or types.is_struct(kind):
        children = [kind.field(number) for number in range(kind.num_fields)]
        are_distinct = len({each.name for each in children}) == len(children)
        return are_distinct and all(_is_countable(each.type) for each in children)
    if types.is_dictionary(kind):
        return any(test(kind.value_type) for test in (*_FIXED, *_BINARY))
    return types.is_null(kind) or any(test(kind) for test in (*_FIXED, *_BINARY, *_VIEWS))


def leaf_count(kind: pa.DataType) -> int:
    """The columns of a file that a value of this type takes."""
    if not pa.types.is_nested(kind):
        return 1
    return sum(leaf_count(kind.field(number).type) for number in range(kind.num_fields))


def _values(array: pa.Array, wanted: pa.DataType) -> int:
    """How many values a column has as another type: what it lacks is null in each object."""
    if isinstance(array, pa.MapArray):  # It cannot be flattened.
        entries = [("key", array.type.key_type), ("value", array.type.item_type)]
        array = array.cast(pa.list_(pa.struct(entries)))
    kind, found = array.type, len(array)
    if _is_list(kind) and pa.types.is_list(wanted):
        return found + _values(array.flatten(), wanted.value_type)
    if not (pa.types.is_struct(kind) and pa.types.is_struct(wanted)):
        return found * leaf_count(wanted) + _shared_bytes(array) // _VALUE_BYTES
    children = dict(zip((field.name for field in kind), array.flatten(), strict=True))
    return found + sum(
        _values(children[field.name], field.type)
        if field.name in children
        else found * leaf_count(field.type)
        for field in wanted
    )


def _shared_bytes(array: pa.Array) -> int:
    """What the values of views and dictionaries take once each has its own bytes."""
    if any(test(array.type) for test in _VIEWS):
        _, views, *_ = array.buffers()
        if views is None:
            return 0
        lengths = np.frombuffer(views, np.int32)[::_VIEW_WORDS][array.offset :][: len(array)]
        return int(lengths[array.is_valid().to_numpy(zero_copy_only=False)].sum(dtype=np.int64))
    kind = array.type
    if pa.types.is_dictionary(kind) and any(test(kind.value_type) for test in _BINARY):
        lengths = pc.binary_length(array.dictionary)
        return pc.sum(lengths.take(array.indices)).as_py() or 0
    return 0


def _is_list(kind: pa.DataType) -> bool:
    """Views are none: they may all be of the same values."""
    types = pa.types
    tests = (types.is_list, types.is_large_list, types.is_fixed_size_list, types.is_map)
    return any(test(kind) for test in tests)
