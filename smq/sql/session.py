"""One query over topics. It reads what it names and nothing else.

A table is a topic of the same name: partition, offset, timestamp, key, value and headers, with key
and value as text. In the schema `raw` the same topics have keys and values as bytes (BLOB).
DuckDB may open the files of the named topics' segments, and no other; its configuration is locked.

The rows are those at the start of the query: segments of one moment, and then, from the broker,
what was not sealed at that moment. A record is in one of the two.
"""

import re
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import duckdb
import pyarrow as pa

from smq.client.client import Client
from smq.filer.location import Location
from smq.model.catalog import NAMESPACE_DEFAULT
from smq.model.topic_configs import SCHEMA
from smq.sql.topics import TopicRows, select_arrow, text_select, topic_rows, topics_of
from smq.sql.typed import quoted, with_typed
from smq.store.manifest import open_manifest
from smq.store.store import FILE_NAME

BATCH_ROWS = 10_000
RAW_SCHEMA = "raw"
_IDENTIFIER = re.compile(r'"((?:[^"]|"")*)"|([A-Za-z_][A-Za-z_0-9]*)')
READING = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)
_EXPLAIN = re.compile(r"\s*explain\s+(analyze\s+)?(\(\s*format\s+\w+\s*\)\s*)?", re.IGNORECASE)
_COLUMNS = re.compile(r"\s*show\s+columns\s+(from|in)\s", re.IGNORECASE)
_TABLES = "SELECT name FROM topics ORDER BY name"
_DATABASES = f"SELECT '{NAMESPACE_DEFAULT}' AS database_name"
_LISTS = {
    "show tables": _TABLES,
    f"show tables from {NAMESPACE_DEFAULT}": _TABLES,
    f"show tables in {NAMESPACE_DEFAULT}": _TABLES,
    "show databases": _DATABASES,
    "show schemas": _DATABASES,
}


class Refused(Exception):
    """The query cannot be run; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a query may use: bytes of memory, and seconds (None: as long as it takes)."""

    memory_bytes: int
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Topics:
    """Where topics are: a data directory, its filer, and a client of the broker if one serves."""

    data_dir: Path
    filer: Location
    client: Client | None

    def rows(self, query: str, bytes_max: int) -> tuple[list[str], list[TopicRows]]:
        """All topics' names, and the rows of those that a query names.

        Raises Refused, Unreadable, TooMuch, StoreError, BrokerError.
        """
        with open_manifest(self.data_dir / FILE_NAME) as manifest:
            topics = topics_of(manifest)
            found = [
                topic_rows(manifest, self.filer, topics[name], self.client, bytes_max)
                for name in mentioned(query, topics)
            ]
        return sorted(topics), found

    def schema(self, name: str) -> str:
        """The types of a topic's values, `smq.schema`; "" if it has none. Raises StoreError."""
        with open_manifest(self.data_dir / FILE_NAME) as manifest:
            topic = topics_of(manifest).get(name)
        return "" if topic is None else topic.configs.get(SCHEMA, "")


def understood(query: str) -> str:
    """The query that DuckDB runs for one: SHOW COLUMNS FROM topic is DESCRIBE topic.

    Raises Refused if it is not one statement that reads.
    """
    if (listed := _LISTS.get(_folded(query))) is not None:
        return listed
    query = _COLUMNS.sub("DESCRIBE ", query, count=1)
    kind = _kind(query)
    if kind is duckdb.StatementType.EXPLAIN:  # EXPLAIN ANALYZE runs it, and COPY would write.
        explain = _EXPLAIN.match(query)
        if explain is None or (kind := _kind(query[explain.end() :])) in READING[1:]:
            raise Refused("explain a query like this: EXPLAIN [ANALYZE] SELECT …")
    if kind not in READING:
        raise Refused(
            f"{kind.name} is not a query: SELECT, SHOW TABLES, SHOW DATABASES, DESCRIBE, SUMMARIZE "
            "and EXPLAIN are; write with `smq produce`"
        )
    return query


def _kind(query: str) -> duckdb.StatementType:
    """What the only statement of a query is. Raises Refused."""
    try:
        statements = duckdb.extract_statements(query)
    except duckdb.Error as error:
        raise Refused(_sentence(error)) from error
    if len(statements) != 1:
        raise Refused(f"one statement at a time, not {len(statements)}")
    return statements[0].type


def _folded(query: str) -> str:
    return " ".join(query.rstrip("; \n").lower().split())


def mentioned(query: str, topics: Collection[str]) -> list[str]:
    """The topics whose names a query has as a word or as a quoted identifier.

    Rather one too many than one too few: a name that is only an alias costs a look at its files.
    SQL's names ignore case, so of topics that differ only by case a query may name one.
    Raises Refused.
    """
    words = {quoted_.replace('""', '"') or word for quoted_, word in _IDENTIFIER.findall(query)}
    exact = words & set(topics)
    folded = {word.lower() for word in words} - {name.lower() for name in exact}
    names = sorted(exact | {name for name in topics if name.lower() in folded})
    for one, other in pairwise(sorted(names, key=str.lower)):
        if one.lower() == other.lower():
            raise Refused(f"{one} and {other} differ only by case; quote the one that you mean")
    return names


@contextmanager
def running(query: str, topics: Topics, bounds: Bounds) -> Iterator[pa.RecordBatchReader]:
    """Run a query; its rows come in batches.

    Raises Refused, also from the batches; Unreadable, TooMuch, StoreError, BrokerError.
    """
    query = understood(query)
    all_names, rows = topics.rows(query, bounds.memory_bytes // 2)
    with _database(rows, bounds) as database, _limit(database, bounds) as is_late:
        try:
            yield _run(database, query, all_names, rows)
        except duckdb.Error as error:
            if is_late():
                raise Refused(f"the query took longer than {bounds.seconds:g} s") from error
            raise Refused(_sentence(error, all_names)) from error


def run_over(query: str, topic: str, rows: pa.Table, schema: str, bounds: Bounds) -> pa.Table:
    """The result of a query over given rows of a topic (`smq.tables.live.SCHEMA`).

    The rows get the typed columns of `schema`. Raises Refused.
    """
    with _connected(bounds) as database:
        database.execute("SET enable_external_access = false")
        database.register("smq_rows", with_typed(rows, schema))
        _create_views(database, topic, select_arrow("smq_rows", schema))
        database.execute("SET lock_configuration = true")
        try:
            return database.sql(query).to_arrow_table()
        except duckdb.Error as error:
            raise Refused(_sentence(error, [topic])) from error


def _run(
    database: duckdb.DuckDBPyConnection, query: str, names: list[str], rows: list[TopicRows]
) -> pa.RecordBatchReader:
    if query == _TABLES:
        database.register("topics", pa.table({"name": pa.array(names, pa.string())}))
    elif _EXPLAIN.match(query):
        return _explained(database, query, rows)
    return database.sql(query).to_arrow_reader(BATCH_ROWS)


def _explained(
    database: duckdb.DuckDBPyConnection, query: str, rows: list[TopicRows]
) -> pa.RecordBatchReader:
    """DuckDB's plan, and which segments and which offsets of the live log it reads."""
    lines: list[tuple[str, str]] = [
        (f"segments of {each.topic.name}", _segments_text(each)) for each in rows
    ]
    lines += [(str(kind), str(text)) for kind, text in database.execute(query).fetchall()]
    names, texts = zip(*lines, strict=True)
    return pa.table({"explain_key": names, "explain_value": texts}).to_reader()


def _segments_text(rows: TopicRows) -> str:
    lines = [
        f"{part.segment.path}: offsets {part.start} to {part.end}, {part.segment.bytes} bytes"
        for part in rows.parts
    ]
    lines += [
        f"not sealed, from the broker: partition {partition}, offsets {start} to {end}"
        for partition, (start, end) in sorted(rows.live_ranges.items())
    ]
    return "\n".join(lines or ["no records"])


@contextmanager
def _database(rows: list[TopicRows], bounds: Bounds) -> Iterator[duckdb.DuckDBPyConnection]:
    with _connected(bounds) as database:
        paths = [path for each in rows for path in each.paths()]
        database.execute("SET allowed_paths = $1", [paths])
        database.execute("SET enable_external_access = false")
        for number, each in enumerate(rows):
            arrow_name = f"smq_rows_{number}"
            database.register(arrow_name, each.arrow)
            _create_views(database, each.topic.name, each.select(arrow_name))
        database.execute("SET lock_configuration = true")
        yield database


def _connected(bounds: Bounds) -> duckdb.DuckDBPyConnection:
    settings: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": f"{bounds.memory_bytes}B",
        "temp_directory": "",
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "python_enable_replacements": False,  # A name is a topic, never a variable of ours.
    }
    return duckdb.connect(config=settings)


def _create_views(database: duckdb.DuckDBPyConnection, topic: str, select: str) -> None:
    raw = f"{RAW_SCHEMA}.{quoted(topic)}"
    try:
        database.execute(f"CREATE SCHEMA IF NOT EXISTS {RAW_SCHEMA}")
        database.execute(f"CREATE VIEW {raw} AS {select}")
        database.execute(f"CREATE VIEW {quoted(topic)} AS {text_select(raw)}")
    except duckdb.Error as error:
        raise Refused(f"topic {topic}: {_sentence(error)}") from error


@contextmanager
def _limit(database: duckdb.DuckDBPyConnection, bounds: Bounds) -> Iterator[Callable[[], bool]]:
    """Interrupt the query when its time is over; tells whether it was."""
    late = threading.Event()

    def interrupt() -> None:
        late.set()
        database.interrupt()

    timer = threading.Timer(bounds.seconds or threading.TIMEOUT_MAX, interrupt)
    timer.daemon = True
    if bounds.seconds is not None:
        timer.start()
    try:
        yield late.is_set
    finally:
        timer.cancel()


def _sentence(error: duckdb.Error, names: list[str] | None = None) -> str:
    text = str(error).split("\n\nLINE", maxsplit=1)[0].strip()
    if names is not None and "does not exist" in text and "Table" in text:
        known = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
        text = (
            f"{text.splitlines()[0]}; the topics are {known or 'none'}. "
            "Quote names with dots or dashes"
        )
    return text
