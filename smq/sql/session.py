"""Runs one query over topics. It can read only the topics that it names.

A table is a topic of the same name: partition, offset, timestamp, key, value and headers, with key
and value as text. The schema `raw` has the same topics with keys and values as bytes (BLOB), the
schema `seaweedmq` with the columns that SeaweedMQ's own SQL has.
DuckDB may open the segment files of the named topics and no others; its configuration is locked.

Where nobody may read the files all records come from the broker (`smq.sql.broker_rows`).

The rows are those at the start of the query: first a snapshot of the segments, then, from the
broker, the records not sealed at that moment. Each record is in exactly one of the two.
"""

import re
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import duckdb
import pyarrow as pa

from smq.client.client import Client
from smq.filer.location import Location
from smq.model.catalog import NAMESPACE_DEFAULT, Topic
from smq.model.topic_settings import schema_of
from smq.sql.topics import (
    TopicRows,
    bytes_select,
    seaweedmq_select,
    select_arrow,
    text_select,
    topic_rows,
    topics_of,
)
from smq.sql.typed import quoted, with_typed
from smq.store.manifest import Manifest, open_manifest
from smq.store.store import FILE_NAME

BATCH_ROWS = 10_000
RAW_SCHEMA, SEAWEEDMQ_SCHEMA = "raw", "seaweedmq"
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


class QueryRefused(Exception):
    """The query cannot be run; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class QueryBounds:
    """A query's limits: bytes of memory, and seconds (None: unlimited)."""

    memory_bytes: int
    seconds: float | None = None


class QueryRows(Protocol):
    """The rows of a topic, for DuckDB: `TopicRows` of files, or `BrokerRows`.

    arrow    what is registered by a name, of which `select` has all rows
    failure  an error that DuckDB tells as one of its own
    """

    @property
    def name(self) -> str: ...
    @property
    def arrow(self) -> Any: ...  # noqa: ANN401  (Arrow has no types.)
    @property
    def failure(self) -> BaseException | None: ...
    def paths(self) -> list[str]: ...
    def select(self, arrow_name: str) -> str: ...
    def places(self) -> Sequence[str]: ...
    def stop(self) -> None: ...


class QueryTopics(Protocol):
    """Where topics are, for queries: `TopicSource` has their files, `BrokerTopics` a broker."""

    def rows(self, query: str, bytes_max: int) -> tuple[list[str], Sequence[QueryRows]]: ...
    def schema(self, name: str) -> str: ...


@dataclass(frozen=True, slots=True)
class TopicSource:
    """The location of topics: a data directory, its filer, and a client if a broker serves it; and
    which topics there are for queries, None: all."""

    data_dir: Path
    filer: Location
    client: Client | None
    seen: frozenset[str] | None = None

    def rows(self, query: str, bytes_max: int) -> tuple[list[str], list[TopicRows]]:
        """All topics' names, and the rows of those that the query names.

        Raises QueryRefused, Unreadable, TooMuch, StoreError, BrokerError.
        """
        with open_manifest(self.data_dir / FILE_NAME) as manifest:
            topics = self._topics(manifest)
            found = [
                topic_rows(manifest, self.filer, topics[name], self.client, bytes_max)
                for name in mentioned(query, topics)
            ]
        return sorted(topics), found

    def schema(self, name: str) -> str:
        """The topic's `smq.schema`, the types of its values; "" without one. Raises StoreError."""
        with open_manifest(self.data_dir / FILE_NAME) as manifest:
            topic = self._topics(manifest).get(name)
        return "" if topic is None else schema_of(topic.configs)

    def _topics(self, manifest: Manifest) -> dict[str, Topic]:
        found = topics_of(manifest)
        if self.seen is None:
            return found
        return {name: topic for name, topic in found.items() if name in self.seen}


def understood(query: str) -> str:
    """Rewrite a query for DuckDB: SHOW COLUMNS FROM topic becomes DESCRIBE topic.

    Raises QueryRefused unless it is a single statement that only reads.
    """
    if (listed := _LISTS.get(_folded(query))) is not None:
        return listed
    query = _COLUMNS.sub("DESCRIBE ", query, count=1)
    kind = _kind(query)
    if kind is duckdb.StatementType.EXPLAIN:  # EXPLAIN ANALYZE runs it: COPY would write.
        explain = _EXPLAIN.match(query)
        if explain is None or (kind := _kind(query[explain.end() :])) in READING[1:]:
            raise QueryRefused("explain a query like this: EXPLAIN [ANALYZE] SELECT …")
    if kind not in READING:
        raise QueryRefused(
            f"{kind.name} is not a query: SELECT, SHOW TABLES, SHOW DATABASES, DESCRIBE, SUMMARIZE "
            "and EXPLAIN are; write with `smq produce`"
        )
    return query


def _kind(query: str) -> duckdb.StatementType:
    """The type of the query's only statement. Raises QueryRefused."""
    try:
        statements = duckdb.extract_statements(query)
    except duckdb.Error as error:
        raise QueryRefused(_sentence(error)) from error
    if len(statements) != 1:
        raise QueryRefused(f"one statement at a time, not {len(statements)}")
    return statements[0].type


def _folded(query: str) -> str:
    return " ".join(query.rstrip("; \n").lower().split())


def mentioned(query: str, topics: Collection[str]) -> list[str]:
    """The topics whose names occur in a query as a word or a quoted identifier.

    It errs on the side of too many: a name that is only an alias costs a look at the topic's files.
    SQL names ignore case, so if topics differ only by case, a query may name one of them.
    Raises QueryRefused.
    """
    words = {quoted_.replace('""', '"') or word for quoted_, word in _IDENTIFIER.findall(query)}
    exact = words & set(topics)
    folded = {word.lower() for word in words} - {name.lower() for name in exact}
    names = sorted(exact | {name for name in topics if name.lower() in folded})
    for one, other in pairwise(sorted(names, key=str.lower)):
        if one.lower() == other.lower():
            raise QueryRefused(
                f"{one} and {other} differ only by case; quote the one that you mean"
            )
    return names


@contextmanager
def running(query: str, topics: QueryTopics, bounds: QueryBounds) -> Iterator[pa.RecordBatchReader]:
    """Run a query; its rows come in batches.

    Raises QueryRefused, also from the batches; Unreadable, TooMuch, StoreError, BrokerError.
    """
    query = understood(query)
    all_names, rows = topics.rows(query, bounds.memory_bytes // 2)
    with _database(rows, bounds) as database, _limit(database, bounds, rows) as is_late:

        def told() -> AbstractContextManager[None]:
            return _told(rows, all_names, bounds, is_late)

        with told():
            found = _run(database, query, all_names, rows)
        yield pa.RecordBatchReader.from_batches(found.schema, _each(found, told))


def _each(
    found: pa.RecordBatchReader, told: Callable[[], AbstractContextManager[None]]
) -> Iterator[pa.RecordBatch]:
    """The batches of a result. What they raise is no error of whoever writes them."""
    with told():
        yield from found


@contextmanager
def _told(
    rows: Sequence[QueryRows], names: list[str], bounds: QueryBounds, is_late: Callable[[], bool]
) -> Iterator[None]:
    """Say what ended a query. Arrow's readers raise DuckDB's errors as their own."""
    try:
        yield
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        if is_late():
            raise QueryRefused(f"the query took longer than {bounds.seconds:g} s") from error
        for each in rows:
            if each.failure is not None:
                raise each.failure from error
        raise QueryRefused(_sentence(error, names)) from error


def run_over(query: str, topic: str, rows: pa.Table, schema: str, bounds: QueryBounds) -> pa.Table:
    """The result of a query over given rows of a topic (`smq.tables.live.SCHEMA`).

    The rows get the typed columns of `schema`. Raises QueryRefused, TooMuch.
    """
    with _connected(bounds) as database:
        database.execute("SET enable_external_access = false")
        database.register("smq_rows", with_typed(rows, schema, bounds.memory_bytes // 2))
        _create_views(database, topic, select_arrow("smq_rows", schema))
        database.execute("SET lock_configuration = true")
        try:
            return database.sql(query).to_arrow_table()
        except duckdb.Error as error:
            raise QueryRefused(_sentence(error, [topic])) from error


def _run(
    database: duckdb.DuckDBPyConnection, query: str, names: list[str], rows: Sequence[QueryRows]
) -> pa.RecordBatchReader:
    if query == _TABLES:
        database.register("topics", pa.table({"name": pa.array(names, pa.string())}))
    elif _EXPLAIN.match(query):
        return _explained(database, query, rows)
    return database.sql(query).to_arrow_reader(BATCH_ROWS)


def _explained(
    database: duckdb.DuckDBPyConnection, query: str, rows: Sequence[QueryRows]
) -> pa.RecordBatchReader:
    """DuckDB's plan, and which segments and which offsets of the live log it reads."""
    lines: list[tuple[str, str]] = [
        (f"segments of {each.name}", "\n".join(each.places() or ["no records"])) for each in rows
    ]
    lines += [(str(kind), str(text)) for kind, text in database.execute(query).fetchall()]
    names, texts = zip(*lines, strict=True)
    return pa.table({"explain_key": names, "explain_value": texts}).to_reader()


@contextmanager
def _database(
    rows: Sequence[QueryRows], bounds: QueryBounds
) -> Iterator[duckdb.DuckDBPyConnection]:
    with _connected(bounds) as database:
        paths = [path for each in rows for path in each.paths()]
        database.execute("SET allowed_paths = $1", [paths])
        database.execute("SET enable_external_access = false")
        for number, each in enumerate(rows):
            arrow_name = f"smq_rows_{number}"
            database.register(arrow_name, each.arrow)
            _create_views(database, each.name, each.select(arrow_name))
        database.execute("SET lock_configuration = true")
        yield database


def _connected(bounds: QueryBounds) -> duckdb.DuckDBPyConnection:
    settings: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": f"{bounds.memory_bytes}B",
        "temp_directory": "",
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "python_enable_replacements": False,  # A name is a topic, never a Python variable.
    }
    return duckdb.connect(config=settings)


def _create_views(database: duckdb.DuckDBPyConnection, topic: str, select: str) -> None:
    raw = f"{RAW_SCHEMA}.{quoted(topic)}"
    try:
        for schema in (RAW_SCHEMA, SEAWEEDMQ_SCHEMA):
            database.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        database.execute(f"CREATE VIEW {raw} AS {bytes_select(select)}")
        seaweedmq = f"{SEAWEEDMQ_SCHEMA}.{quoted(topic)}"
        database.execute(f"CREATE VIEW {seaweedmq} AS {seaweedmq_select(select)}")
        database.execute(f"CREATE VIEW {quoted(topic)} AS {text_select(raw)}")
    except duckdb.Error as error:
        raise QueryRefused(f"topic {topic}: {_sentence(error)}") from error


@contextmanager
def _limit(
    database: duckdb.DuckDBPyConnection, bounds: QueryBounds, rows: Sequence[QueryRows]
) -> Iterator[Callable[[], bool]]:
    """Interrupt the query at its deadline; yields a function that tells whether it was late."""
    late = threading.Event()

    def interrupt() -> None:
        late.set()
        database.interrupt()
        for each in rows:
            each.stop()

    timer = threading.Timer(bounds.seconds or threading.TIMEOUT_MAX, interrupt)
    timer.daemon = True
    if bounds.seconds is not None:
        timer.start()
    try:
        yield late.is_set
    finally:
        timer.cancel()


def _sentence(error: Exception, names: list[str] | None = None) -> str:
    text = str(error).split("\n\nLINE", maxsplit=1)[0].strip()
    if names is not None and "does not exist" in text and "Table" in text:
        known = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
        text = (
            f"{text.splitlines()[0]}; the topics are {known or 'none'}. "
            "Quote names with dots or dashes"
        )
    return text
