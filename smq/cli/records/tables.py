"""Record files as Arrow tables: what `smq export` writes and `smq import` reads.

    topic string, partition int32, offset int64, timestamp timestamp[ms, UTC],
    key binary, value binary, headers list<struct<key: string, value: binary>>

A file with a column `value` and no column but these is one of records. Each row of any other file
becomes a JSON object. Nothing is changed on the way: a field of CSV becomes a number only if that
number, written again, is the same text; what JSON cannot say is refused with its row and column.
"""

import codecs
import csv
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc as pa_ipc
import pyarrow.parquet as pq

from smq.cli.records.produce import TOO_LARGE
from smq.client.names import TopicPartition

ROWS_MAX = 65_536  # Per batch read: tens of megabytes at most, mostly far less.
BATCH_BYTES = 64 * 1024 * 1024
FEWER = 16  # Times fewer rows, after a batch that was too large: few readings of what is done.
SENT = ("key", "value", "headers", "timestamp", "partition")
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", "UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
_TEXTS = {b"smq": b"texts"}  # Metadata of a schema: all columns are texts of a CSV file.
_HEXADECIMAL = "^[-+]?0[xX]"  # Arrow reads such a text as a number.
PART_BYTES = 8 * 1024 * 1024  # Smaller batches are joined; of texts, with a separator each.
FIELD_BYTES_MAX = 64 * 1024 * 1024
INT64_END = 2**63
ARROW_SUFFIXES = {".arrow", ".feather", ".ipc"}


def below(table: pa.Table, ends: dict[TopicPartition, int]) -> pa.Table:
    """The rows below these offsets, in the file's schema."""
    limits = np.zeros(1 + max(name.partition for name in ends), np.int64)
    for name, end in ends.items():
        limits[name.partition] = end
    partitions = table["partition"].to_numpy()
    is_below = table["offset"].to_numpy() < limits[partitions]
    return table.cast(SCHEMA).filter(pa.array(is_below))  # Views cannot be filtered.


@contextmanager
def written(path: Path, suffix: str) -> Iterator[Any]:
    """A writer of tables in SCHEMA: as Parquet if `suffix` is .parquet, else as Arrow."""
    with path.open("wb") as file:
        if suffix == ".parquet":
            with pq.ParquetWriter(file, SCHEMA, compression="zstd") as writer:
                yield writer
        else:
            with pa_ipc.new_file(file, SCHEMA) as writer:
                yield writer


def read(path: Path, encoding: str | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of a Parquet, Arrow or CSV file, a part at a time. Raises OSError, ValueError.

    `encoding`: of a CSV file, UTF-8 by default. Its columns are texts.
    """
    suffix = path.suffix
    path.stat()  # Its error states the problem; Arrow's states where it was noticed.
    try:
        if suffix == ".parquet":
            with pq.ParquetFile(path) as parquet:
                yield from _parquet(parquet)
        elif suffix in ARROW_SUFFIXES:
            with pa_ipc.open_file(path) as arrow:
                yield from _arrow(arrow)
        elif suffix == ".csv":
            yield from _csv(path, encoding or "utf-8-sig")
        else:
            raise ValueError("its name ends with none of .parquet, .arrow, .csv, .ndjson")
    except pa.ArrowException as error:  # Some are a ValueError or an OSError as well.
        raise ValueError(str(error)) from error


def _parquet(parquet: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    """The rows in batches of some BATCH_BYTES, whatever they inflate to."""
    done = rows = size = 0
    waiting: list[pa.RecordBatch] = []
    for group in range(parquet.num_row_groups):
        for batch in _group(parquet, group, done):
            waiting.append(batch)
            done, rows, size = done + len(batch), rows + len(batch), size + batch.nbytes
            if rows >= ROWS_MAX or size >= PART_BYTES:
                yield from _joined(waiting)
                rows, size, waiting = 0, 0, []
    yield from _joined(waiting)
    if done != parquet.metadata.num_rows:
        raise ValueError(f"it says that it has {parquet.metadata.num_rows} rows, and has {done}")


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """As one batch, unless their dictionaries have too many values together."""
    try:
        return [pa.concat_batches(batches)] if len(batches) > 1 else batches
    except pa.ArrowInvalid:
        return batches


def _group(parquet: pq.ParquetFile, group: int, before: int) -> Iterator[pa.RecordBatch]:
    """The rows of a row group; `before` rows of the file precede it. A page may name one value of
    its dictionary for every row: rows that inflate to more than BATCH_BYTES are read again, fewer
    at a time."""
    done, rows = 0, ROWS_MAX
    while True:
        at = 0
        try:
            for batch in parquet.iter_batches(rows, row_groups=[group]):
                if at >= done:
                    yield batch
                    done = at + len(batch)
                at += len(batch)
                if batch.nbytes > BATCH_BYTES and rows > 1:
                    break
            else:
                return
        except MemoryError:
            if rows == 1:
                raise ValueError(f"row {before + done + 1}: {TOO_LARGE}") from None
        rows = max(1, rows // FEWER)


def _arrow(file: pa_ipc.RecordBatchFileReader) -> Iterator[pa.RecordBatch]:
    """The rows, checked: an offset in the file may point into any memory of this process."""
    for number in range(file.num_record_batches):
        batch = file.get_batch(number)
        batch.validate(full=True)
        for first in range(0, len(batch), ROWS_MAX):
            yield batch.slice(first, ROWS_MAX)


def _csv(path: Path, encoding: str) -> Iterator[pa.RecordBatch]:
    csv.field_size_limit(FIELD_BYTES_MAX)
    with path.open(encoding=encoding, newline="") as file:
        lines = csv.reader(file, strict=True)
        try:
            yield from _parts(lines)
        except UnicodeDecodeError as error:
            where = f"after line {lines.line_num}: it is not {error.encoding}"
            hint = "--encoding names another encoding" + _looks_like(path)
            raise ValueError(f"{where}; {hint}") from error
        except (ValueError, csv.Error) as error:
            where = f"line {lines.line_num}: " if lines.line_num else ""
            raise ValueError(f"{where}{error}") from error


def _looks_like(path: Path) -> str:
    """What a file's first bytes say about its encoding."""
    with path.open("rb") as file:
        is_utf_16 = file.read(2) in {codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE}
    return ", as utf-16, which it begins like" if is_utf_16 else ""


def _parts(lines: Iterator[list[str]]) -> Iterator[pa.RecordBatch]:
    """The rows below the head, empty lines left out."""
    names = next(lines, None)
    if names is None:
        raise ValueError("it is empty")
    part, size = list[list[str]](), 0
    for row in filter(None, lines):
        if len(row) != len(names):
            raise ValueError(f"it has {len(row)} fields, not {len(names)}")
        part.append(row)
        size += len(row) + sum(map(len, row))
        if size >= PART_BYTES or len(part) == ROWS_MAX:
            yield _texts(names, part)
            part, size = [], 0
    yield _texts(names, part)


def _texts(names: list[str], rows: list[list[str]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    arrays = [pa.array(column, pa.string()) for column in columns]
    schema = pa.schema([(name, pa.string()) for name in names], metadata=_TEXTS)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _are_texts(rows: pa.RecordBatch) -> bool:
    return bool(rows.schema.metadata) and _TEXTS.items() <= rows.schema.metadata.items()


def _check_names(names: Sequence[str]) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise ValueError(f"it has several columns {repeated[0]!r}")


def are_records(names: Sequence[str]) -> bool:
    """Whether columns of these names are those of records: no other file has the export's only."""
    return "value" in names and set(names) <= set(SCHEMA.names)


def parts_to_send(
    batches: Iterable[pa.RecordBatch], key: str | None, *, keeps_partitions: bool
) -> Iterator[pa.RecordBatch]:
    """See `to_send`: the rows in parts of some BATCH_BYTES at most, or of one row. Raises
    ValueError.

    Rows that lie in some bytes of a file, as those of a dictionary do, may be any number of bytes
    as records. What is too large is made again, fewer rows at a time.
    """
    row, rows = 1, ROWS_MAX
    for batch in batches:
        done = 0
        while done < len(batch):
            part = batch.slice(done, rows)
            try:
                found = to_send(part, key, keeps_partitions=keeps_partitions, first_row=row)
                is_too_large = found.nbytes > BATCH_BYTES
            except MemoryError:
                if len(part) == 1:
                    raise ValueError(f"row {row}: {TOO_LARGE}") from None
                is_too_large = True
            except pa.ArrowException as error:  # Some are no ValueError.
                raise ValueError(str(error)) from error
            if is_too_large and len(part) > 1:
                rows = max(1, len(part) // FEWER)
                continue
            yield found
            rows = min(ROWS_MAX, 2 * rows)
            done += len(part)
            row += len(part)


def to_send(
    rows: pa.RecordBatch, key: str | None, *, keeps_partitions: bool, first_row: int = 1
) -> pa.RecordBatch:
    """The columns that a producer takes. Raises ValueError.

    key               the column to take keys from
    keeps_partitions  whether a column `partition` selects a record's partition
    first_row         the number of the first row, for messages
    """
    names = rows.schema.names
    if not names:
        raise ValueError("it has no columns")
    _check_names(names)
    if key is not None and key not in names:
        raise ValueError(f"it has no column {key!r}, only {', '.join(names)}")
    if not are_records(names):
        return _json_rows(rows, key, first_row)
    wanted = [name for name in SENT if name in names and name != "key"]
    if not keeps_partitions:
        wanted = [name for name in wanted if name != "partition"]
    columns = {name: _plain(rows[name]) for name in wanted}
    if _are_texts(rows):
        texts = (name for name in wanted if name != "value")
        columns |= {name: _of_text(name, rows[name], first_row) for name in texts}
    else:
        _check_milliseconds(columns.get("timestamp"), first_row)
    if key is not None or "key" in names:
        columns["key"] = _keys(key or "key", rows)
    return pa.RecordBatch.from_pydict(columns)


def highest_partition(batch: pa.RecordBatch) -> int:
    """The highest partition that a batch names; -1 if it names none."""
    if "partition" not in batch.schema.names or not pa.types.is_integer(batch["partition"].type):
        return -1
    highest = pc.max(batch["partition"]).as_py()
    return -1 if highest is None else highest


def _check_milliseconds(column: pa.Array | None, first_row: int) -> None:
    """Raise ValueError if a time has parts of a millisecond, which records have not."""
    if column is None or not pa.types.is_timestamp(column.type):
        return
    if column.type.unit not in {"us", "ns"}:
        return
    per_ms = pa.scalar(1000 if column.type.unit == "us" else 1_000_000, pa.int64())
    times = column.cast(pa.int64())
    whole = pc.multiply(pc.divide(times, per_ms), per_ms)
    _check_rows("timestamp", pc.not_equal(times, whole), first_row, "has parts of a millisecond")


def _check_rows(name: str, are_wrong: pa.Array, first_row: int, fault: str) -> None:
    """Raise ValueError at the first row of a column that is wrong."""
    row = pc.index(are_wrong, value=True).as_py()
    if row >= 0:
        raise ValueError(f"row {first_row + row}, column {name!r} {fault}")


def _of_text(name: str, column: pa.Array, first_row: int) -> pa.Array:
    """A column `partition` or `timestamp` of a CSV file: each a number, or a moment."""
    if name == "headers":
        raise ValueError("a CSV file cannot say headers; use .parquet, .arrow or .ndjson")
    kinds = [pa.int64()]
    if name == "timestamp":
        kinds += [pa.timestamp("ms", "UTC"), pa.timestamp("ms")]
    fault = "is no whole number" if len(kinds) == 1 else "is no moment, or milliseconds since 1970"
    column = pc.if_else(pc.equal(column, ""), None, column)
    _check_rows(name, pc.match_substring_regex(column, _HEXADECIMAL), first_row, fault)
    for kind in kinds:  # Mostly, all are written alike.
        with suppress(pa.ArrowInvalid):
            return pc.cast(column, kind)
    found = pa.array([_number_of(text, kinds) for text in column], pa.int64())
    _check_rows(name, pc.and_(column.is_valid(), found.is_null()), first_row, fault)
    return found


def _number_of(text: pa.Scalar, kinds: Sequence[pa.DataType]) -> int | None:
    """The number of a text that is of one of these types."""
    for kind in kinds if text.is_valid else ():
        with suppress(pa.ArrowInvalid):
            return int(text.cast(kind).cast(pa.int64()).as_py())
    return None


def _json_rows(rows: pa.RecordBatch, key: str | None, first_row: int) -> pa.RecordBatch:
    of_text = _number_or_text if _are_texts(rows) else None
    columns = {name: _listed(name, rows[name], of_text, first_row) for name in rows.schema.names}
    names = list(columns)
    values = []
    for number, row in enumerate(zip(*columns.values(), strict=True), first_row):
        try:
            values.append(_json(dict(zip(names, row, strict=True))))
        except ValueError:
            for name, field in zip(names, row, strict=True):
                _check_field(number, name, field)
            raise
    sent = {"value": pa.array(values, pa.binary())}
    if key is not None:
        sent["key"] = _keys(key, rows)
    return pa.RecordBatch.from_pydict(sent)


def _listed(
    name: str,
    column: pa.Array,
    of_text: Callable[[str], int | float | str] | None,
    first_row: int,
) -> list[Any]:
    """A column as Python's objects. Raises ValueError."""
    if of_text is not None:
        return list(map(of_text, column.to_pylist()))
    found: list[Any] = []
    if pa.types.is_run_end_encoded(column.type):
        column = pc.run_end_decode(column)
    try:
        kind = _without_nanoseconds(column.type)
        for value in column if kind == column.type else pc.cast(column, kind):
            found.append(value.as_py())  # noqa: PERF401  (How far it came is told.)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        where = f"row {first_row + len(found)}, column {name!r}"
        raise ValueError(f"{where} cannot be JSON: {error}") from error
    return found


def _without_nanoseconds(kind: pa.DataType) -> pa.DataType:
    """The type in which Python can hold what is in a column: it knows microseconds only."""
    if (pa.types.is_timestamp(kind) or pa.types.is_time64(kind)) and kind.unit == "ns":
        return pa.string()
    if pa.types.is_duration(kind) and kind.unit == "ns":
        return pa.int64()
    made = (make(kind) for is_kind, make in _NESTED if is_kind(kind))
    return next(made, kind)


def _struct(kind: pa.StructType) -> pa.DataType:
    fields = (kind.field(index) for index in range(kind.num_fields))
    return pa.struct([(each.name, _without_nanoseconds(each.type)) for each in fields])


def _map(kind: pa.MapType) -> pa.DataType:
    return pa.map_(_without_nanoseconds(kind.key_type), _without_nanoseconds(kind.item_type))


def _fixed(kind: pa.FixedSizeListType) -> pa.DataType:
    return pa.list_(_without_nanoseconds(kind.value_type), kind.list_size)


def _decoded(kind: pa.DictionaryType) -> pa.DataType:
    value = _without_nanoseconds(kind.value_type)
    return kind if value == kind.value_type else value


_NESTED: Sequence[tuple[Callable[[pa.DataType], bool], Callable[[Any], pa.DataType]]] = (
    (pa.types.is_list, lambda kind: pa.list_(_without_nanoseconds(kind.value_type))),
    (pa.types.is_large_list, lambda kind: pa.large_list(_without_nanoseconds(kind.value_type))),
    (pa.types.is_list_view, lambda kind: pa.list_view(_without_nanoseconds(kind.value_type))),
    (pa.types.is_fixed_size_list, _fixed),
    (pa.types.is_struct, _struct),
    (pa.types.is_map, _map),
    (pa.types.is_dictionary, _decoded),
)


def _number_or_text(text: str) -> int | float | str:
    """The number that is written as this text, or the text."""
    try:
        whole = int(text)
        if str(whole) == text and -INT64_END <= whole < INT64_END:
            return whole
    except ValueError:
        with suppress(ValueError):
            number = float(text)
            if math.isfinite(number) and repr(number) == text:
                return number
    return text


def _json(value: Any) -> bytes:  # noqa: ANN401  (what a file has)
    return json.dumps(value, default=_text, ensure_ascii=False, allow_nan=False).encode()


def _check_field(row: int, name: str, value: Any) -> None:  # noqa: ANN401  (as above)
    """Raise ValueError if a field cannot be JSON."""
    try:
        _json(value)
    except ValueError as error:
        reason = "bytes that are no UTF-8" if isinstance(error, UnicodeError) else error
        raise ValueError(f"row {row}, column {name!r} cannot be JSON: {reason}") from error


def _keys(name: str, rows: pa.RecordBatch) -> pa.Array:
    """A column's keys as bytes: numbers and dates become text. Raises ValueError."""
    column = _plain(rows[name])
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_string(kind):
        return column
    try:
        return pc.cast(column, pa.string())
    except pa.ArrowNotImplementedError as error:
        raise ValueError(f"column {name!r} cannot be keys: {error}") from error


def _plain(column: pa.Array) -> pa.Array:
    """A column whose values take the bytes that they have."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _plain(pc.cast(column, kind.value_type))
    if pa.types.is_run_end_encoded(kind):
        return _plain(pc.run_end_decode(column))
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return pc.cast(column, pa.large_binary())
    return column


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
