"""Record files as Arrow tables: what `smq export` writes and `smq import` reads.

    topic string, partition int32, offset int64, timestamp timestamp[ms, UTC],
    key binary, value binary, headers list<struct<key: string, value: binary>>

Each row of a file without a column `value` becomes a JSON object.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.ipc as pa_ipc
import pyarrow.parquet as pq

from smq.client.names import TopicPartition

ROWS_MAX = 65_536  # Per batch read: tens of megabytes at most, mostly far less.
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


def read(path: Path) -> Iterator[pa.RecordBatch]:
    """The rows of a Parquet, Arrow or CSV file, a part at a time. Raises OSError, ValueError."""
    suffix = path.suffix
    path.stat()  # Its error states the problem; Arrow's states where it was noticed.
    try:
        if suffix == ".parquet":
            with pq.ParquetFile(path) as parquet:
                yield from parquet.iter_batches(ROWS_MAX)
        elif suffix in ARROW_SUFFIXES:
            with pa_ipc.open_file(path) as arrow:
                yield from (arrow.get_batch(each) for each in range(arrow.num_record_batches))
        elif suffix == ".csv":
            with pa_csv.open_csv(path) as csv:
                yield from csv
        else:
            raise ValueError("its name ends with none of .parquet, .arrow, .csv, .ndjson")
    except pa.ArrowException as error:  # Some are a ValueError or an OSError as well.
        raise ValueError(str(error)) from error


def to_send(rows: pa.RecordBatch, key: str | None, *, keeps_partitions: bool) -> pa.RecordBatch:
    """The columns that a producer takes. Raises ValueError.

    key               the column to take keys from
    keeps_partitions  whether a column `partition` selects a record's partition
    """
    names = rows.schema.names
    if key is not None and key not in names:
        raise ValueError(f"it has no column {key!r}, only {', '.join(names)}")
    if "value" not in names:
        return _json_rows(rows, key)
    wanted = [name for name in SENT if name in names and name != "key"]
    if not keeps_partitions:
        wanted = [name for name in wanted if name != "partition"]
    columns = {name: rows[name] for name in wanted}
    if key is not None or "key" in names:
        columns["key"] = _keys(rows[key or "key"])
    return pa.RecordBatch.from_pydict(columns)


def highest_partition(batch: pa.RecordBatch) -> int:
    """The highest partition that a batch names; -1 if it names none."""
    if "partition" not in batch.schema.names or not pa.types.is_integer(batch["partition"].type):
        return -1
    highest = pc.max(batch["partition"]).as_py()
    return -1 if highest is None else highest


def _json_rows(rows: pa.RecordBatch, key: str | None) -> pa.RecordBatch:
    values = [
        json.dumps(row, default=_text, ensure_ascii=False).encode() for row in rows.to_pylist()
    ]
    columns = {"value": pa.array(values, pa.binary())}
    if key is not None:
        columns["key"] = _keys(rows[key])
    return pa.RecordBatch.from_pydict(columns)


def _keys(column: pa.Array) -> pa.Array:
    """Convert keys to bytes: numbers and dates become text."""
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_string(kind):
        return column
    return pc.cast(column, pa.string())


def _text(value: object) -> str:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
