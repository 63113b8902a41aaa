"""A query in a process of its own: `python -m smq.sql.worker`, for the HTTP door.

Reads one JSON object from standard input (see `QueryTask`), and writes one to standard output:
{"columns": […], "types": […], "rows": [[…], …], "truncated": false}, or {"error": sentence}. The
process may be killed at any time: it holds no state.
"""

import json
import sys
from base64 import b64encode
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


class QueryTask(NamedTuple):
    """A query, the location of its topics, and its limits.

    filer is the setting filer.root with its endpoint and region; bytes_max roughly bounds the JSON;
    topics are those that the query may see, None: all.
    """

    query: str
    topics: list[str] | None
    data_dir: str
    filer: list[str]
    memory_bytes: int
    seconds: float
    rows_max: int
    bytes_max: int


def answer(task: QueryTask) -> dict[str, Any]:
    """Run a query, or explain why not."""
    try:
        with _client(task.data_dir) as client:
            seen = None if task.topics is None else frozenset(task.topics)
            topics = TopicSource(Path(task.data_dir), Location(*task.filer), client, seen)
            return _result(task, topics)
    except (QueryRefused, Unreadable, TooMuch, StoreError, BrokerError) as error:
        return {"error": str(error)}


def _client(data_dir: str) -> AbstractContextManager[Client | None]:
    try:
        return connect(data_dir)
    except BrokerUnavailable:
        return nullcontext()


def _result(task: QueryTask, topics: TopicSource) -> dict[str, Any]:
    rows: list[list[object]] = []
    left, truncated = task.bytes_max, False
    with running(task.query, topics, QueryBounds(task.memory_bytes, task.seconds)) as found:
        names, types = list(found.schema.names), [str(each) for each in found.schema.types]
        for batch in found:
            left -= batch.nbytes
            room = task.rows_max - len(rows) if left >= 0 else 0
            rows += [list(map(plain, row)) for row in rows_of(batch.slice(0, room))]
            if truncated := batch.num_rows > room:
                break
    return {"columns": names, "types": types, "rows": rows, "truncated": truncated}


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
    sys.stdout.write(json.dumps(answer(task), ensure_ascii=True, allow_nan=False))


if __name__ == "__main__":
    main()
