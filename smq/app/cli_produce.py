"""`smq produce`: lines of files or of a pipe, each a record.

Lines are sent when a batch is full, and also whenever the pipe has no more for now: what a slow
program writes is not kept waiting.
"""

import json
import os
import select
import sys
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from smq.app.cli_client import (
    BOOTSTRAP_DEFAULT,
    AsJson,
    Bootstrap,
    TopicName,
    cluster_at,
    from_json,
    refusal,
    split_pair,
)
from smq.app.clock import wall_ms

if TYPE_CHECKING:
    from smq.client.line_producer import Producer

READ_BYTES = 1024 * 1024


class Compression(StrEnum):
    """The compressions by the names that Kafka's clients give them."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Input(NamedTuple):
    """A record that is to be sent."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class Format(NamedTuple):
    """How a line is a record."""

    key_separator: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]
    partition: int | None
    is_json: bool

    def record(self, line: bytes) -> Input:
        """The record of a line. Raises ValueError."""
        if self.is_json:
            return self._record_of_json(json.loads(line))
        if self.key_separator is None:
            return Input(line, None, self.headers, self.partition)
        key, separator, value = line.partition(self.key_separator)
        if not separator:
            raise ValueError(f"it has no {self.key_separator.decode()!r} behind its key")
        return Input(value, key, self.headers, self.partition)

    def _record_of_json(self, fields: Any) -> Input:  # noqa: ANN401  (what JSON gives)
        if not isinstance(fields, dict):
            raise ValueError("it is no JSON object")  # noqa: TRY004  (a line, and not our type)
        headers = [(from_json(key) or b"", from_json(value)) for key, value in _headers(fields)]
        numbers = [fields.get(name) for name in ("partition", "timestamp")]
        if not all(number is None or type(number) is int for number in numbers):
            raise ValueError("its partition and its timestamp are whole numbers")
        return Input(
            from_json(fields.get("value")),
            from_json(fields.get("key")),
            (*self.headers, *headers),
            numbers[0] if self.partition is None else self.partition,
            numbers[1],
        )


def produce(  # noqa: PLR0913  (Each is an option.)
    topic: TopicName,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]…", help="Files of lines; standard input if there is none."),
    ] = None,
    *,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", help="What stands between key and value.")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", help="A header of every record; may be repeated.", metavar="K=V"),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", help="The partition of every record.")
    ] = None,
    compression: Annotated[
        Compression, typer.Option("--compression", help="Of the batches.")
    ] = Compression.NONE,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    json_lines: Annotated[
        bool,
        typer.Option(
            "--json-lines",
            help="Each line is an object with value, key, headers, partition and timestamp, "
            "as `smq consume --json` writes them.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Send each line as a record."""
    from smq.client.line_producer import Producer  # noqa: PLC0415  (NumPy takes its time.)
    from smq.wire.compression import Codec  # noqa: PLC0415

    pairs = [split_pair(each, "--header") for each in header or []]
    headers = tuple((name.encode(), value.encode()) for name, value in pairs)
    separator = None if key_separator is None else key_separator.encode()
    line_format = Format(separator, headers, partition, json_lines)
    with cluster_at(bootstrap) as cluster:
        producer = Producer(cluster, topic, Codec[compression.name])
        _send_all(producer, line_format, _sources(files or []))
    if as_json:
        summary = {"topic": topic, "records": producer.acknowledged}
        typer.echo(json.dumps(summary | {"next_offsets": producer.next_offsets}))
    else:
        count = producer.acknowledged
        typer.echo(f"{count:,} record{'s' if count != 1 else ''} sent to {topic}")


def _sources(files: list[Path]) -> Iterator[tuple[str, Iterable[bytes | None]]]:
    if not files:
        yield "standard input", _lines_of_a_pipe(sys.stdin.fileno())
    for path in files:
        try:
            with path.open("rb") as file:
                yield str(path), (line.removesuffix(b"\n") for line in file)
        except OSError as error:
            raise refusal(f"{path} cannot be read: {error.strerror}") from error


def _lines_of_a_pipe(fd: int) -> Iterator[bytes | None]:
    """Lines; None when there are no more for now."""
    rest = b""
    while chunk := os.read(fd, READ_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
        if not select.select([fd], [], [], 0)[0]:
            yield None
    if rest:
        yield rest


def _send_all(
    producer: "Producer",
    line_format: Format,
    sources: Iterator[tuple[str, Iterable[bytes | None]]],
) -> None:
    for name, lines in sources:
        number = 0
        for line in lines:
            if line is None:
                producer.flush()
                continue
            number += 1
            try:
                record = line_format.record(line)
            except ValueError as error:
                producer.flush()
                raise refusal(
                    f"line {number} of {name} is no record: {error}; "
                    f"records sent before it: {producer.acknowledged}"
                ) from error
            timestamp = wall_ms() if record.timestamp_ms is None else record.timestamp_ms
            producer.add(record.value, timestamp, record.key, record.headers, record.partition)
    producer.flush()


def _headers(fields: dict[str, Any]) -> list[tuple[Any, Any]]:
    headers = fields.get("headers", [])
    if not all(isinstance(each, list) and len(each) == 2 for each in headers):
        raise ValueError("its headers are a list of pairs")
    return [(key, value) for key, value in headers]
