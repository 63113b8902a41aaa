"""`smq produce`: sends each line of files or of a pipe as a record.

A batch is sent when it is full or the pipe is empty, so the lines of a slow program do not wait.
"""

import json
import os
import select
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, NamedTuple, Protocol

import typer

from smq.app.process.clock import wall_ms
from smq.cli.client import (
    BOOTSTRAP_DEFAULT,
    PARTITION_MAX,
    AsJson,
    Bootstrap,
    TopicName,
    client_at,
    from_json,
    refusal,
    split_pair,
    utf8,
)
from smq.cli.output import say
from smq.model.setting import INT64_MAX

if TYPE_CHECKING:
    from smq.client.producing.delivery.futures import BatchFuture
    from smq.client.producing.producer import Producer

JSON = 'JSON: {"topic", "records", "next_offsets": {PARTITION: OFFSET}}'
READ_BYTES = 1024 * 1024
LINES_MAX = 10_000  # Per batch: enough to amortize Python's steps, and mostly a few megabytes.
BATCH_BYTES = 8 * 1024 * 1024  # The same, of large records.
LINE_BYTES_MAX = 256 * 1024 * 1024  # No broker takes a record of that size.
BATCHES_ON_WAY_MAX = 4
TOO_LARGE = "it takes too much memory"
DELIVERY_TIMEOUT_S = 30.0  # A person waits at the terminal.
BOUNDS = {"partition": (0, PARTITION_MAX), "timestamp": (-INT64_MAX, INT64_MAX)}
BACKSLASH_AND_T = rb"\t"  # Other programs read it as a tab, but shells do not convert it.


class Compression(StrEnum):
    """The compressions, by Kafka's names."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Input(NamedTuple):
    """A record to send."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


COLUMNS = ("value", "key", "headers", "partition", "timestamp")
"""The names of an Input's fields in send_batch."""


class Object(dict[str, Any]):
    """A JSON object, which knows whether a name came twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.is_repeating = len(self) < len(pairs)


def object_of(line: bytes) -> Object:
    """The JSON object of a line, in UTF-8: a file may begin with its mark. Raises ValueError."""
    try:
        fields = json.loads(line.decode("utf-8-sig"), object_pairs_hook=Object)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(fields, Object):
        raise ValueError("it is not a JSON object")  # noqa: TRY004  (a line, and not our type)
    return fields


class Format(NamedTuple):
    """How to parse a line."""

    key_separator: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]
    partition: int | None
    is_json: bool

    def record(self, line: bytes) -> Input:
        """The record of a line. Raises ValueError."""
        if self.is_json:
            return self.record_of_object(object_of(line))
        if self.key_separator is None:
            return Input(line, None, self.headers, self.partition)
        key, separator, value = line.partition(self.key_separator)
        if not separator:
            hint = "; a tab is $'\\t'" if self.key_separator == BACKSLASH_AND_T else ""
            raise ValueError(f"it has no {self.key_separator.decode()!r} after the key{hint}")
        return Input(value, key, self.headers, self.partition)

    def record_of_object(self, fields: Object) -> Input:
        """The record that an object describes. Raises ValueError."""
        if fields.is_repeating:
            raise ValueError("it has a field twice")
        if "value" not in fields:
            raise ValueError('it has no field "value" (a record without a value has null there)')
        headers = [(from_json(key) or b"", from_json(value)) for key, value in _headers(fields)]
        partition, timestamp_ms = (_number(fields, name) for name in BOUNDS)
        return Input(
            from_json(fields.get("value")),
            from_json(fields.get("key")),
            (*self.headers, *headers),
            partition if self.partition is None else self.partition,
            timestamp_ms,
        )


def produce(  # noqa: PLR0913  (Each is an option.)
    topic: TopicName,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]…", help="Files to read; default: standard input."),
    ] = None,
    *,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", help="Separator between key and value.")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", help="A header for every record; may be repeated.", metavar="K=V"),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition", min=0, max=PARTITION_MAX, help="The partition for every record."
        ),
    ] = None,
    compression: Annotated[
        Compression, typer.Option("--compression", help="Compression of the batches.")
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
    pairs = [split_pair(each, "--header") for each in header or []]
    headers = tuple((name.encode(), value.encode()) for name, value in pairs)
    separator = None if key_separator is None else utf8(key_separator, "--key-separator")
    line_format = Format(separator, headers, partition, json_lines)
    codec, timeout_s = compression.value, DELIVERY_TIMEOUT_S
    with (
        client_at(bootstrap) as client,
        client.producer(compression=codec, delivery_timeout_s=timeout_s) as producer,
    ):
        sending = Sending(producer, topic)
        _send_all(sending, line_format, _sources(files or []))
    if as_json:
        summary = {"topic": topic, "records": sending.acknowledged}
        say(json.dumps(summary | {"next_offsets": sending.next_offsets}))
    else:
        count = sending.acknowledged
        say(f"{count:,} record{'s' if count != 1 else ''} sent to {topic}")


def _sources(files: list[Path]) -> Iterator[tuple[str, Iterable[bytes | None]]]:
    if not files:
        yield "standard input", _lines_of_a_pipe(sys.stdin.fileno())
    for path in files:
        try:
            with path.open("rb") as file:
                yield str(path), _lines_of(file)
        except OSError as error:
            raise refusal(f"{path} cannot be read: {error.strerror}") from error


def _lines_of(file: BinaryIO) -> Iterator[bytes]:
    """Lines; of one that is too long the beginning, which is too long as well."""
    while line := file.readline(LINE_BYTES_MAX + 1):
        yield line.removesuffix(b"\n")


def _check_line(line: bytes) -> None:
    if len(line) >= LINE_BYTES_MAX:
        raise ValueError(f"it has {LINE_BYTES_MAX} bytes or more")


def _lines_of_a_pipe(fd: int) -> Iterator[bytes | None]:
    """Lines; None when no more are available for now. See `_lines_of`."""
    rest = b""
    while chunk := os.read(fd, READ_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
        if len(rest) >= LINE_BYTES_MAX:
            break
        if not select.select([fd], [], [], 0)[0]:
            yield None
    if rest:
        yield rest


class Sending:
    """Sends records in batches; counts acknowledged records and keeps the next offsets."""

    def __init__(self, producer: "Producer", topic: str) -> None:
        self.acknowledged = 0
        self.next_offsets: dict[int, int] = {}
        self._producer = producer
        self._topic = topic
        self._records: list[Input] = []
        self._bytes = 0
        self._on_way: deque[BatchFuture] = deque()

    def add(self, record: Input) -> None:
        """Add a record; send a batch once it is full."""
        self._records.append(record)
        headers = (part for pair in record.headers for part in pair)
        self._bytes += sum(len(part or b"") for part in (record.value, record.key, *headers))
        if len(self._records) == LINES_MAX or self._bytes >= BATCH_BYTES:
            self._send()
            if len(self._on_way) > BATCHES_ON_WAY_MAX:
                self._await_oldest()

    def flush(self) -> None:
        """Send the rest; all records are acknowledged on return. Raises BrokerError."""
        if self._records:
            self._send()
        while self._on_way:
            self._await_oldest()

    def _send(self) -> None:
        columns = dict(zip(COLUMNS, zip(*self._records, strict=True), strict=True))
        self._records.clear()
        self._bytes = 0
        try:
            self._on_way.append(self._producer.send_batch(self._topic, columns))
        except ValueError as error:
            while self._on_way:
                self._await_oldest()
            raise refusal(f"{error}; records sent before it: {self.acknowledged}") from error

    def _await_oldest(self) -> None:
        places = self._on_way.popleft().result()
        self.acknowledged += len(places.offsets)
        for partition in set(places.partitions.tolist()):
            last = int(places.offsets[places.partitions == partition].max())
            self.next_offsets[partition] = max(last + 1, self.next_offsets.get(partition, 0))


class LineReader(Protocol):
    """Makes records of lines."""

    def record(self, line: bytes) -> Input:
        """The record of a line. Raises ValueError."""


JSON_LINES = Format(None, (), None, is_json=True)


def send_lines(sending: Sending, path: Path, reader: LineReader) -> None:
    """Send the lines of a file; all are acknowledged on return."""
    _send_all(sending, reader, _sources([path]))


def _send_all(
    sending: Sending,
    reader: LineReader,
    sources: Iterator[tuple[str, Iterable[bytes | None]]],
) -> None:
    for name, lines in sources:
        number = 0
        for line in lines:
            if line is None:
                sending.flush()
                continue
            number += 1
            try:
                _check_line(line)
                record = reader.record(line)
            except ValueError as error:
                sending.flush()
                raise refusal(
                    f"line {number} of {name} is not a record: {error}; "
                    f"records sent before it: {sending.acknowledged}"
                ) from error
            if record.timestamp_ms is None:
                record = record._replace(timestamp_ms=wall_ms())
            sending.add(record)
    sending.flush()


def _number(fields: dict[str, Any], name: str) -> int | None:
    number, (least, most) = fields.get(name), BOUNDS[name]
    if number is None or (type(number) is int and least <= number <= most):
        return number
    raise ValueError(f"its {name} must be a whole number from {least} to {most}")


def _headers(fields: dict[str, Any]) -> list[tuple[Any, Any]]:
    headers = fields.get("headers", [])
    if not isinstance(headers, list) or not all(
        isinstance(each, list) and len(each) == 2 for each in headers
    ):
        raise ValueError("its headers must be a list of pairs")
    return [(key, value) for key, value in headers]
