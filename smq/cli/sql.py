"""`smq sql`: a query over topics, sealed and live."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smq.app.process.refusal import refuse_wire_only
from smq.cli.client import BOOTSTRAP_DEFAULT, client_at, client_security, cluster_at, refusal
from smq.cli.output import Format, say
from smq.model.printable import say_error

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from smq.client.client import Client
    from smq.filer.location import Location
    from smq.sql.session import QueryBounds, QueryTopics

MiB = 1024 * 1024
SEALED, LIVE = "sealed", "live"


class Tail(StrEnum):
    """Which records are read."""

    LIVE = LIVE
    SEALED = SEALED


class Transport(StrEnum):
    """How records travel."""

    AUTO = "auto"
    KAFKA = "kafka"


Query = Annotated[
    str,
    typer.Argument(
        metavar="QUERY",
        show_default=False,
        help="SELECT, SHOW TABLES, DESCRIBE topic, SUMMARIZE topic, EXPLAIN SELECT …",
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        readable=False,  # Else the refusal is Typer's, which does not say what to do.
        help="The broker's data directory instead. If no broker serves it, only sealed records "
        "are read.",
    ),
]
Follow = Annotated[
    bool,
    typer.Option(
        "--follow",
        help="Repeat the query over newly arrived records; it must read one topic.",
    ),
]


def sql(  # noqa: PLR0913  (Each is an option.)
    query: Query,
    *,
    bootstrap: Annotated[
        str, typer.Option("--bootstrap", help="The broker.", metavar="HOST:PORT")
    ] = BOOTSTRAP_DEFAULT,
    data_dir: DataDir = None,
    filer_root: Annotated[
        str | None,
        typer.Option("--filer-root", help="With --data-dir: the setting filer.root, if given."),
    ] = None,
    tail: Annotated[
        Tail, typer.Option("--tail", help="live: unsealed records too. sealed: only files.")
    ] = Tail.LIVE,
    transport: Annotated[
        Transport,
        typer.Option(
            "--transport",
            help="auto: sealed records from files, where this user may read them. kafka: all "
            "records by Kafka's protocol.",
        ),
    ] = Transport.AUTO,
    output_format: Annotated[Format, typer.Option("--format", help="How to write rows.")] = (
        Format.TABLE
    ),
    output: Annotated[
        Path | None, typer.Option("--output", help="A file instead of standard output.")
    ] = None,
    memory: Annotated[
        int, typer.Option("--memory", min=64, help="MiB that the query may use.")
    ] = 1024,
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=0.001, help="Seconds it may take.")
    ] = None,
    follow: Follow = False,
    every: Annotated[
        float, typer.Option("--every", min=0.05, help="With --follow: seconds between runs.")
    ] = 1.0,
) -> None:
    """Run an SQL query over topics: tables of partition, offset, timestamp, key, value, headers.

    Keys and values are text: value->>'name' reads a field of JSON. The schema raw has the same
    topics with keys and values as bytes. Names with dots or dashes are quoted: "my-topic".
    """
    refuse_wire_only()
    if find_spec("duckdb") is None:
        raise refusal("DuckDB is not installed; `pip install 'smq-broker[sql]'`")
    if output_format is Format.PARQUET and output is None:
        raise refusal("--format parquet needs --output FILE")
    from smq.cli.sql_output import writer  # noqa: PLC0415  (Arrow takes its time.)
    from smq.sql.session import QueryBounds, running  # noqa: PLC0415  (as above)

    bounds = QueryBounds(memory * MiB, timeout)
    with _failures_told(), _topics(bootstrap, data_dir, filer_root, tail, transport) as place:
        topics, client = place
        if follow:
            _follow(query, topics, client, bounds, every, output_format, output)
            return
        with running(query, topics, bounds) as rows, writer(output_format, output) as write:
            write(rows)


@contextmanager
def _topics(
    bootstrap: str,
    data_dir: Path | None,
    filer_root: str | None,
    tail: Tail,
    transport: Transport,
) -> Iterator["tuple[QueryTopics, Client | None]"]:
    """The topics, and a client where live records are wanted of a broker."""
    from smq.sql.session import TopicSource  # noqa: PLC0415  (as above)

    place: tuple[Path, Location] | None = None
    if transport is Transport.AUTO:
        place = _files_at(bootstrap) if data_dir is None else _files_in(data_dir, filer_root)
    if place is None:
        if tail is Tail.SEALED:
            raise refusal(
                "--tail sealed reads the broker's files: run it on the broker's host as its user, "
                "without --transport kafka"
            )
        address = bootstrap if data_dir is None else str(data_dir.absolute())
        with client_at(address, Transport.KAFKA) as client, cluster_at(address) as cluster:
            from smq.sql.broker_rows import BrokerTopics  # noqa: PLC0415  (as above)

            yield BrokerTopics(client, cluster), client
        return
    if data_dir is None:
        opened: AbstractContextManager[Client | None] = (
            nullcontext() if tail is Tail.SEALED else client_at(bootstrap)
        )
    else:
        opened = _client_of(data_dir, tail)
    with opened as maybe:
        yield TopicSource(*place, maybe), maybe


def _files_in(data_dir: Path, filer_root: str | None) -> "tuple[Path, Location]":
    """A data directory that the user has named, and its filer."""
    from smq.filer.location import Location  # noqa: PLC0415  (as above)
    from smq.store.store import FILE_NAME  # noqa: PLC0415  (as above)

    try:
        if not data_dir.is_dir():
            raise refusal(f"there is no directory {data_dir}")
        is_closed = not os.access(data_dir, os.X_OK) or _is_closed(data_dir / FILE_NAME)
    except PermissionError:  # A directory around it is closed.
        is_closed = True
    if is_closed:
        raise refusal(
            f"the files in {data_dir} are another user's, who alone reads them; give --bootstrap "
            "instead, and all records come from the broker"
        )
    return data_dir, Location(filer_root or str(data_dir / "filer"))


def _is_closed(path: Path) -> bool:
    return path.exists() and not os.access(path, os.R_OK)


def _files_at(bootstrap: str) -> "tuple[Path, Location] | None":
    """The data directory and the filer of a broker; None if this user may not read them here."""
    from smq.client.facts import broker_facts  # noqa: PLC0415  (as above)
    from smq.client.locate import is_served_by  # noqa: PLC0415  (as above)
    from smq.filer.location import Location  # noqa: PLC0415  (as above)
    from smq.model.errors import BrokerError, ErrorCode, StoreError  # noqa: PLC0415  (as above)
    from smq.store.store import FILE_NAME  # noqa: PLC0415  (as above)

    with cluster_at(bootstrap) as cluster:
        try:
            facts = cluster.retrying(lambda: broker_facts(cluster))
        except BrokerError as error:
            if error.code != ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                raise
            return None  # Who may not see settings may read topics.
    data_dir = Path(facts.settings.get("data.dir", ""))
    is_readable = "data.dir" in facts.settings and os.access(data_dir / FILE_NAME, os.R_OK)
    if not (is_readable and is_served_by(data_dir, facts.cluster_id)):
        return None
    try:
        location = Location.named_by(facts.settings)
    except StoreError as error:
        raise refusal(
            f"{error}; or let all records come from the broker: --transport kafka"
        ) from error
    if not location.is_s3 and not os.access(location.root, os.R_OK | os.X_OK):
        return None
    return data_dir, location


def _client_of(data_dir: Path, tail: Tail) -> "AbstractContextManager[Client | None]":
    """A client of the broker that serves a data directory, if there is one and it is wanted."""
    from smq.client.client import connect  # noqa: PLC0415  (as above)
    from smq.client.errors import BrokerUnavailable  # noqa: PLC0415  (as above)

    if tail is Tail.SEALED:
        return nullcontext()
    client_security()  # Says what is wrong with the properties, if anything is.
    try:
        return connect(data_dir)
    except BrokerUnavailable:
        say_error(f"smq: no broker serves {data_dir}: only sealed records are read")
        return nullcontext()


def _follow(  # noqa: PLR0913, PLR0917  (They belong to one verb.)
    query: str,
    topics: "QueryTopics",
    client: "Client | None",
    bounds: "QueryBounds",
    every: float,
    output_format: Format,
    output: Path | None,
) -> None:
    from smq.cli.sql_output import writer  # noqa: PLC0415  (as above)
    from smq.sql.follow import results  # noqa: PLC0415  (as above)

    if client is None:
        raise refusal("--follow needs a running broker, and --tail live")
    with writer(output_format, output) as write:
        try:
            for rows in results(query, topics, client, bounds, every):
                write(rows)
        except KeyboardInterrupt:  # Ctrl-C ends --follow.
            say("")


@contextmanager
def _failures_told() -> Iterator[None]:
    from smq.model.errors import BrokerError, StoreError  # noqa: PLC0415  (as above)
    from smq.sql.session import QueryRefused  # noqa: PLC0415  (as above)
    from smq.tables.live import TooMuch  # noqa: PLC0415  (as above)
    from smq.tables.plan import Unreadable  # noqa: PLC0415  (as above)

    try:
        yield
    except TooMuch as error:
        raise refusal(f"{error}; raise --memory, or use --tail sealed") from error
    except (QueryRefused, Unreadable, StoreError, BrokerError) as error:
        raise refusal(str(error)) from error
