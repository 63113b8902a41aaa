"""A query in a process of its own: `python -m smq.sql.worker`, for the HTTP door.

Reads one JSON object from standard input (see `QueryTask`), and writes one to standard output:
{"columns": […], "types": […], "rows": [[…], …], "truncated": false} with the exit code 0, or
{"error": sentence} with REFUSED. The front passes the bytes on unread. The process may be killed at
any time: it holds no state.
"""

import json
import sys
from base64 import b64encode
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from datetime import date, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from shm.confined import confine
from smq.client.client import Client, connect
from smq.client.errors import BrokerUnavailable
from smq.filer.location import Location
from smq.model.errors import BrokerError, StoreError
from smq.sql.session import QueryBounds, QueryRefused, TopicSource, running
from smq.sql.values import json_number, rows_of
from smq.tables.live import TooMuch
from smq.tables.plan import Unreadable

MiB = 1024 * 1024
BESIDE_BYTES = 256 * MiB  # For threads, the broker's client and the JSON.
PIECE_BYTES = MiB  # Arrow's, of rows that become Python's objects at once.
SENTENCE_CHARS_MAX = 8 * 1024  # Of an error: a query may word its own.
REFUSED = 3  # An exit code that neither Python nor a signal uses.


class QueryTask(NamedTuple):
    """A query, the location of its topics, and its limits.

    filer is the setting filer.root with its endpoint and region; bytes_max bounds the JSON of the
    columns and rows; topics are those that the query may see, None: all.
    """

    query: str
    topics: list[str] | None
    data_dir: str
    filer: list[str]
    memory_bytes: int
    seconds: float
    rows_max: int
    bytes_max: int


class WorkerAnswer(NamedTuple):
    """JSON in UTF-8, and the exit code that tells what it is."""

    exit_code: int
    json: bytes


def answer(task: QueryTask) -> WorkerAnswer:
    """Run a query, or explain why not."""
    try:
        with _client(task.data_dir) as client:
            seen = None if task.topics is None else frozenset(task.topics)
            topics = TopicSource(Path(task.data_dir), Location(*task.filer), client, seen)
            return WorkerAnswer(0, _result(task, topics))
    except (QueryRefused, Unreadable, TooMuch, StoreError, BrokerError) as error:
        return WorkerAnswer(REFUSED, _json({"error": str(error)[:SENTENCE_CHARS_MAX]}))


def _client(data_dir: str) -> AbstractContextManager[Client | None]:
    try:
        return connect(data_dir)
    except BrokerUnavailable:
        return nullcontext()


def _result(task: QueryTask, topics: TopicSource) -> bytes:
    """The result's JSON: a name of a field may be long and comes in each row, so the bytes that are
    written count. Raises as `running`."""
    with running(task.query, topics, QueryBounds(task.memory_bytes, task.seconds)) as found:
        written = _head(found.schema, task.bytes_max)
        truncated = False
        for count, row in enumerate(_rows(found)):
            text = _json(row)
            if truncated := count == task.rows_max or len(written) + len(text) > task.bytes_max:
                break
            written += b"," * (count > 0) + text
    return bytes(written + b'],"truncated":' + _json(truncated) + b"}")


def _head(schema: pa.Schema, bytes_max: int) -> bytearray:
    """The JSON up to the first row. Raises QueryRefused."""
    names, types, left = list[bytes](), list[bytes](), bytes_max
    for field in schema:
        names.append(_json(field.name))
        types.append(_json(str(field.type)))
        left -= len(names[-1]) + len(types[-1])
        if left < 0:
            raise QueryRefused(f"the columns' names and types take more than {bytes_max} bytes")
    return bytearray(
        b'{"columns":[%b],"types":[%b],"rows":[' % (b",".join(names), b",".join(types))
    )


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[list[Any]]:
    """Rows as JSON values; few at a time are Python's objects, which are large."""
    for batch in batches:
        count = max(1, batch.num_rows * PIECE_BYTES // max(PIECE_BYTES, batch.nbytes))
        for start in range(0, batch.num_rows, count):
            yield from (list(map(plain, row)) for row in rows_of(batch.slice(start, count)))


def _json(value: object) -> bytes:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode(errors="replace")  # A query may have half a surrogate pair.


def plain(value: object) -> object:
    """A JSON value: times in ISO 8601, bytes in base64, numbers that JSON lacks as text."""
    if isinstance(value, float):
        value = json_number(value)
    match value:
        case bytes():
            return {"base64": b64encode(value).decode()}
        case datetime() | date():
            return value.isoformat()
        case dict():
            return {str(key): plain(each) for key, each in value.items()}
        case list() | tuple():
            return [plain(each) for each in value]
        case None | bool() | int() | float() | str():
            return value
    return str(value)


def main() -> None:
    """Answer the one task on stdin."""
    task = QueryTask(**json.load(sys.stdin))
    pa.array([0])  # Arrow reserves an arena first.
    # DuckDB's own limit does not count what a single function builds: repeat('x', 4000000000).
    confine(2 * task.memory_bytes + BESIDE_BYTES)
    exit_code, told = answer(task)
    sys.stdout.buffer.write(told)
    sys.stdout.buffer.flush()
    sys.exit(exit_code)


if __name__ == "__main__":
    main()
