"""Makes columns of what `send_batch` takes: Arrow tables, record batches, dicts of lists or arrays.

    key, value   bytes. Arrow: binary or string of any kind, also as dictionaries or runs. NumPy:
                 row i is the bytes of array[i] in C order, so one of shape (n, 16) has values of 16
                 bytes; of dtype 'S' or object, its items. Lists: bytes, other buffers of bytes, or
                 None.
    headers      Arrow: a list of structs (key, value) or a map. Else a list, each item a list of
                 (key, value) pairs, or None.
    timestamp    milliseconds since 1970, or Arrow's or NumPy's timestamps, or a list of datetimes
                 with their zone; null: when it is sent.
    partition    integers; null: by the key.

Arrow's memory is read in place until the broker has acknowledged it; encoded arrays (dictionaries,
runs) are copied. NumPy's memory is copied here: it may change at any time.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shm.kernels.record.records_encode import are_offsets
from smq.client.arguments import header_pairs, milliseconds_of, whole_number
from smq.client.payload_formats import is_masked
from smq.client.producing.encode.columns import (
    Field,
    HeaderColumn,
    field_of,
    headers_of,
    nulls,
    packed,
)

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("key", "value", "headers", "timestamp", "partition")
RANGES = {"timestamp": (-(2**63) + 1, 2**63), "partition": (0, 2**31)}
ROWS_MAX = 65_536  # Per piece, so that a large batch fits through a small buffer.
PIECE_BYTES_MAX = 4 * 1024 * 1024


class Piece(NamedTuple):
    """Some rows as columns. A partition or timestamp that is not given is ABSENT."""

    values: Field
    keys: Field | None
    headers: HeaderColumn | None
    timestamps: np.ndarray | None
    partitions: np.ndarray | None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def is_plain(self) -> bool:
        """Whether the rows are nothing but values."""
        return all(each is None for each in self[1:])


ABSENT = np.iinfo(np.int64).min
_ALLOWED = {"timestamp": "integers or timestamps", "partition": "integers"}


def pieces_of(batch: Any) -> Iterator[Piece]:  # noqa: ANN401  (of the types above)
    """The rows of a batch, in pieces of a bounded size. Raises TypeError, ValueError."""
    if isinstance(batch, Mapping):
        yield from _pieces_of_mapping(batch)
        return
    try:
        import pyarrow as pa  # noqa: PLC0415  (only for callers that have Arrow)
    except ImportError:  # pragma: no cover
        pa = None
    if pa is None or not isinstance(batch, pa.Table | pa.RecordBatch):
        raise TypeError(
            f"batch is a {type(batch).__name__}; it should be a pyarrow Table or RecordBatch, or a "
            "dict of columns"
        )
    _check_names(batch.schema.names)
    rows = max(1, min(ROWS_MAX, batch.num_rows * PIECE_BYTES_MAX // max(1, batch.nbytes)))
    whole = batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch])
    for part in whole.to_batches(max_chunksize=rows):
        yield _piece_of_arrow(part)


def _check_names(names: Sequence[str]) -> None:
    if "value" not in names:
        raise ValueError(f"batch has the columns {list(names)}; it needs one named 'value'")
    for name in names:
        if name not in COLUMNS or list(names).count(name) > 1:
            raise ValueError(
                f"batch has a column {name!r}; each of {list(COLUMNS)} is allowed once"
            )


# --- Arrow ----------------------------------------------------------------------------------------


def _piece_of_arrow(batch: "pa.RecordBatch") -> Piece:
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    headers = columns.get("headers")
    timestamps, partitions = columns.get("timestamp"), columns.get("partition")
    return Piece(
        _field_of_arrow("value", columns["value"]),
        _field_of_arrow("key", columns["key"]) if "key" in columns else None,
        None if headers is None else _headers_of_arrow(headers),
        None if timestamps is None else _integers_of_arrow("timestamp", timestamps),
        None if partitions is None else _integers_of_arrow("partition", partitions),
    )


def _field_of_arrow(name: str, array: "pa.Array") -> Field:
    import pyarrow as pa  # noqa: PLC0415

    array = _decoded(name, array)
    kind, count = array.type, len(array)
    if pa.types.is_null(kind):
        return nulls(count)
    if pa.types.is_fixed_size_binary(kind):
        width = kind.byte_width
        offsets = np.arange(array.offset, array.offset + count + 1) * width
    else:
        if not _has_offsets(kind):
            array = _bytes_of(name, array)
            kind = array.type
        is_large = pa.types.is_large_binary(kind) or pa.types.is_large_string(kind)
        offsets = _numbers(array, 1, np.int64 if is_large else np.int32)
    buffer = array.buffers()[-1]
    data = np.frombuffer(b"" if buffer is None else buffer, np.uint8)
    if data.flags.writeable:
        data = data.view()
        data.flags.writeable = False
    field = Field(data, packed(offsets))
    if field.offsets is None:
        field.places = offsets[:-1], np.diff(offsets)
    if not _is_within(field):
        raise ValueError(f"the {name} column is no valid Arrow array")
    if array.null_count:
        field.places[1][array.is_null().to_numpy(zero_copy_only=False)] = -1
        field.offsets = None
    return field


def _is_within(field: Field) -> bool:
    """Whether all of its strings lie in its data."""
    if field.offsets is not None:
        return bool(are_offsets(field.offsets, len(field.data)))
    at, length = field.places
    end = len(field.data)
    return not len(at) or bool(length.min() >= 0 <= at[0] and at[-1] + length[-1] <= end)


def _has_offsets(kind: "pa.DataType") -> bool:
    import pyarrow as pa  # noqa: PLC0415

    types = pa.types
    tests = (types.is_binary, types.is_string, types.is_large_binary, types.is_large_string)
    return any(test(kind) for test in tests)


def _decoded(name: str, array: "pa.Array") -> "pa.Array":
    """The plain values of an array that is encoded as a dictionary or in runs."""
    import pyarrow as pa  # noqa: PLC0415

    if pa.types.is_dictionary(array.type):
        values, places = array.dictionary, array.indices
    elif pa.types.is_run_end_encoded(array.type):
        rows = np.arange(array.offset, array.offset + len(array))
        values, places = array.values, np.searchsorted(array.run_ends, rows, "right")
    else:
        return array
    return _bytes_of(name, _decoded(name, values)).take(places)


def _bytes_of(name: str, array: "pa.Array") -> "pa.Array":
    import pyarrow as pa  # noqa: PLC0415

    try:
        return array.cast(pa.large_binary())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TypeError(
            f"the {name} column is {array.type}; it should be binary or string"
        ) from error


def _numbers(array: "pa.Array", buffer: int, dtype: Any) -> np.ndarray:  # noqa: ANN401
    """The offsets of an array, one more than it has items."""
    found = array.buffers()[buffer]
    if found is None or found.size == 0:
        return np.zeros(1, dtype)
    return np.frombuffer(found, dtype)[array.offset : array.offset + len(array) + 1]


def _integers_of_arrow(name: str, array: "pa.Array") -> np.ndarray:
    import pyarrow as pa  # noqa: PLC0415

    kind = array.type
    if name == "timestamp" and pa.types.is_timestamp(kind):
        array = _milliseconds_of_arrow(array)
    elif pa.types.is_null(kind):
        array = array.cast(pa.int64())
    elif not pa.types.is_integer(kind):
        raise TypeError(f"the {name} column is {kind}; it should be {_ALLOWED[name]}")
    absent = array.is_null().to_numpy(zero_copy_only=False)
    return _present(name, array.fill_null(0).to_numpy(zero_copy_only=False), absent)


def _milliseconds_of_arrow(array: "pa.Array") -> "pa.Array":
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    kind = pa.timestamp("ms", array.type.tz)
    try:
        cut = pc.cast(array, options=pc.CastOptions(kind, allow_time_truncate=True))
    except pa.ArrowInvalid as error:
        raise ValueError(f"the timestamp column: {error}") from error
    # Arrow cuts towards 1970. All others cut downwards: NumPy, datetimes, Spark's Kafka sink.
    is_later = pc.greater(cut.cast(array.type), array)
    return pc.subtract(cut.cast(pa.int64()), is_later.cast(pa.int64()))


def _headers_of_arrow(array: "pa.Array") -> HeaderColumn | None:
    import pyarrow as pa  # noqa: PLC0415

    kind = array.type
    if pa.types.is_null(kind):
        return None
    if pa.types.is_map(kind):
        kind = pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)]))
        array = array.cast(kind)
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if is_list and pa.types.is_null(kind.value_type) and not len(array.flatten()):
        return None  # Lists that are all empty.
    if not is_list or [*_field_names(kind.value_type)] != ["key", "value"]:
        raise TypeError(
            f"the headers column is {kind}; it should be a list of structs of a key and a value"
        )
    pairs = array.flatten()
    keys, values = (_field_of_arrow(f"headers' {each}", pairs.field(each)) for each in (0, 1))
    if (keys.places[1] < 0).any() or pairs.null_count:
        raise ValueError("the headers column has a header without a key")
    counts = array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    return HeaderColumn(keys, values, counts.astype(np.int64))


def _field_names(kind: "pa.DataType") -> Iterator[str]:
    import pyarrow as pa  # noqa: PLC0415

    if pa.types.is_struct(kind):
        yield from (kind.field(i).name for i in range(kind.num_fields))


# --- Arrays and lists -----------------------------------------------------------------------------


def _pieces_of_mapping(columns: Mapping[str, Any]) -> Iterator[Piece]:
    _check_names([*columns])
    for name, column in columns.items():
        _check_column(name, column)
    counts = {name: len(column) for name, column in columns.items()}
    if len(set(counts.values())) > 1:
        raise ValueError(f"batch has columns of different lengths: {counts}")
    count = counts["value"]
    for start in range(0, count, ROWS_MAX):
        part = {name: column[start : start + ROWS_MAX] for name, column in columns.items()}
        rows = min(ROWS_MAX, count - start)
        headers = part.get("headers")
        yield Piece(
            _field("value", part["value"], start),
            _field("key", part["key"], start) if "key" in part else None,
            None if headers is None else _headers(headers, rows),
            _integers("timestamp", part["timestamp"], start) if "timestamp" in part else None,
            _integers("partition", part["partition"], start) if "partition" in part else None,
        )


def _check_column(name: str, column: Any) -> None:  # noqa: ANN401
    """Check that it has a length and slices, as a list. Raises TypeError."""
    if is_masked(column):
        raise TypeError(f"the {name} column is a masked array, whose mask would be lost")
    if isinstance(column, np.ndarray) and column.ndim == 0:
        raise TypeError(f"the {name} column is an array without dimensions; it should have rows")
    try:
        len(column), column[:0]
        is_column = not isinstance(column, str | bytes | bytearray | Mapping)
    except (TypeError, LookupError):
        is_column = False
    if not is_column:
        raise TypeError(f"the {name} column is a list or an array, not {type(column).__name__}")


def _field(name: str, column: Any, first: int) -> Field:  # noqa: ANN401
    if isinstance(column, np.ndarray) and column.dtype.kind not in "SO":
        return _field_of_array(name, column)
    items = column.tolist() if isinstance(column, np.ndarray) else column
    try:
        return field_of(items)
    except TypeError as error:
        for row, item in enumerate(items, first):
            if not isinstance(item, bytes | bytearray | memoryview | None):
                raise TypeError(
                    f"the {name} column has bytes or None, not {type(item).__name__} (row {row})"
                ) from error
        raise TypeError(f"the {name} column: {error}") from error


def _field_of_array(name: str, array: np.ndarray) -> Field:
    if array.dtype.kind not in "biufcVmM" or array.dtype.hasobject:
        raise TypeError(f"the {name} column has dtype {array.dtype}, which is not plain bytes")
    data = array.tobytes()
    width = len(data) // len(array) if len(array) else 0
    offsets = np.arange(len(array) + 1) * width
    return Field(np.frombuffer(data, np.uint8), packed(offsets), (offsets[:-1], np.diff(offsets)))


def _headers(column: Sequence[Any], count: int) -> HeaderColumn | None:
    headers = {row: header_pairs(each) for row, each in enumerate(column) if each is not None}
    return headers_of(headers, count)


def _integers(name: str, column: Any, first: int) -> np.ndarray:  # noqa: ANN401
    if not isinstance(column, np.ndarray) or column.dtype == object:
        kinds = {type(each) for each in column} - {type(None)}
        if kinds != {np.datetime64}:
            return _integers_of_items(name, column, None if kinds <= {int} else first)
        column = np.array(column, "datetime64")
    kind = column.dtype.kind
    if column.ndim != 1 or kind not in ("iuM" if name == "timestamp" else "iu"):
        raise TypeError(
            f"the {name} column is an array of {column.dtype} with {column.ndim} dimensions; "
            f"it should be {_ALLOWED[name]}, in one dimension"
        )
    if kind == "M":
        return _present(name, _milliseconds_of_array(column), np.isnat(column))
    return _present(name, column, np.zeros(len(column), bool))


def _integers_of_items(name: str, items: Sequence[Any], first: int | None) -> np.ndarray:
    """The integers of a list whose first row is `first`; None: it has items other than numbers and
    None."""
    absent = np.array([each is None for each in items], bool)
    numbers = [0 if each is None else each for each in items]
    if first is not None:
        numbers = [_number(name, row, each) for row, each in enumerate(numbers, first)]
    try:
        return _present(name, np.array(numbers, np.int64), absent)
    except OverflowError:
        return _present(name, np.array(numbers, object), absent)


def _number(name: str, row: int, item: Any) -> int:  # noqa: ANN401
    where = f"the {name} column's row {row}"
    if name == "timestamp" and isinstance(item, datetime):
        item = milliseconds_of(where, item)
    return whole_number(where, item, *RANGES[name])


def _milliseconds_of_array(moments: np.ndarray) -> np.ndarray:
    """NumPy's times, truncated to milliseconds. Raises ValueError if one is out of range."""
    found, seconds = moments.astype("datetime64[ms]"), moments.astype("datetime64[s]")
    wrong = (found.astype("datetime64[s]") != seconds) & ~np.isnat(moments)
    if wrong.any():
        raise ValueError(f"the timestamp column has {moments[wrong][0]}, which is too far away")
    return found.astype(np.int64)


def _present(name: str, numbers: np.ndarray, absent: np.ndarray) -> np.ndarray:
    """The numbers, if all given ones are allowed; ABSENT where none is given."""
    given, (least, end) = numbers[~absent], RANGES[name]
    if len(given):
        for each in (int(given.min()), int(given.max())):
            if not least <= each < end:
                allowed = f"from {least} to {end - 1}"
                raise ValueError(f"the {name} column has {each}; it should be {allowed}")
    return np.where(absent, ABSENT, numbers.astype(np.int64))
