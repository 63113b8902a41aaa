"""`smq import`: the rows of Parquet, Arrow, CSV and NDJSON files as records."""

import codecs
import json
import sys
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smq.cli.client import (
    BOOTSTRAP_DEFAULT,
    AsJson,
    Bootstrap,
    TopicName,
    client_at,
    from_json,
    refusal,
)
from smq.cli.output import say
from smq.cli.progress import Advance, progress
from smq.cli.records.export import LINES
from smq.cli.records.produce import (
    JSON_LINES,
    TOO_LARGE,
    Compression,
    Input,
    Sending,
    object_of,
    send_lines,
)

if TYPE_CHECKING:
    from smq.client.client import Client
    from smq.client.producing.delivery.futures import BatchFuture
    from smq.client.producing.producer import Producer

JSON = 'JSON: {"topic", "records"}'
BATCHES_ON_WAY_MAX = 4
MEMORY_BYTES = 1 << 31  # A file of a kilobyte may hold rows of many gigabytes.
RECORD_FIELDS = {"topic", "partition", "offset", "timestamp", "key", "value", "headers"}


def import_files(  # noqa: PLR0913  (Each is an option.)
    topic: TopicName,
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE…", help="Files: .parquet, .arrow, .csv, .ndjson, .jsonl."),
    ],
    *,
    key: Annotated[
        str | None, typer.Option("--key", metavar="COLUMN", help="The column to take keys from.")
    ] = None,
    repartition: Annotated[
        bool,
        typer.Option("--repartition", help="Ignore a column `partition`: keys choose partitions."),
    ] = False,
    encoding: Annotated[
        str | None,
        typer.Option("--encoding", help="Encoding of CSV files.", show_default="utf-8"),
    ] = None,
    compression: Annotated[
        Compression, typer.Option("--compression", help="Compression of the batches.")
    ] = Compression.NONE,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Send each row of some files as a record.

    A file with a column `value` and no other columns than `smq export` writes is one of records; of
    JSON lines the first one tells. Rows of any other file become JSON objects: a field of CSV is a
    number if that number is written as the field is, else text. What cannot be sent unchanged is
    refused.
    """
    _check_encoding(files, encoding)
    records = 0
    with (
        _limited_memory(),
        client_at(bootstrap) as client,
        client.producer(compression=compression.value) as producer,
        progress("importing", None) as advance,
    ):
        for path in files:
            check = partial(_check_partition, client, topic)
            rows = RowSender(producer, topic, key, None if repartition else check)
            try:
                if path.suffix in LINES:
                    objects = Objects(key, keeps_partitions=not repartition)
                    records += _import_lines(producer, topic, path, objects, advance)
                else:
                    records += rows.send(path, advance, encoding)
            except (OSError, ValueError, TypeError, MemoryError) as error:
                reason = _reason(error)
                sent = {"it": rows.settled(), "other files": records}
                before = [f"; {n:,} records of {whose} were sent" for whose, n in sent.items() if n]
                raise refusal(f"{path}: {reason}{''.join(before)}") from error
    if as_json:
        say(json.dumps({"topic": topic, "records": records}))
    else:
        say(f"sent {records:,} records to {topic}")


def _reason(error: Exception) -> object:
    if isinstance(error, MemoryError):
        return TOO_LARGE
    return getattr(error, "strerror", None) or error


def _limited_memory() -> AbstractContextManager[None]:
    """MEMORY_BYTES, where the system can say so."""
    if sys.platform != "linux":
        return nullcontext()
    from shm.confined import memory_limited  # noqa: PLC0415  (as the condition says)

    return memory_limited(MEMORY_BYTES)


def _check_encoding(files: list[Path], encoding: str | None) -> None:
    if encoding is None:
        return
    try:
        codecs.lookup(encoding)
    except LookupError as error:
        raise refusal(f"there is no encoding {encoding!r}") from error
    if any(path.suffix != ".csv" for path in files):
        raise refusal("--encoding is for .csv files: all others say their encoding")


def _import_lines(
    producer: "Producer", topic: str, path: Path, objects: "Objects", advance: Advance
) -> int:
    sending = Sending(producer, topic)
    send_lines(sending, path, objects)
    advance(sending.acknowledged)
    return sending.acknowledged


class Objects:
    """Parses JSON lines: as records of `smq export` if the first has a `value`, else each line
    is a value.
    """

    def __init__(self, key: str | None, *, keeps_partitions: bool) -> None:
        self._key, self._keeps_partitions = key, keeps_partitions
        self._are_records: bool | None = None

    def record(self, line: bytes) -> Input:
        """See LineReader."""
        fields = object_of(line)
        if self._are_records is None:
            self._are_records = "value" in fields and fields.keys() <= RECORD_FIELDS
        if self._are_records and not fields.keys() <= RECORD_FIELDS:
            other = next(name for name in fields if name not in RECORD_FIELDS)
            raise ValueError(f"it has a field {other!r}, and the first line is that of a record")
        record = JSON_LINES.record_of_object(fields) if self._are_records else _as_value(line)
        if self._key is not None:
            record = record._replace(key=_key_of(line, self._key))
        return record if self._keeps_partitions else record._replace(partition=None)


def _as_value(line: bytes) -> Input:
    return Input(line.removeprefix(codecs.BOM_UTF8).strip())


class _Digits(str):
    """A number as it stands in the line."""

    __slots__ = ()


def _key_of(line: bytes, name: str) -> bytes | None:
    """A field as a key: numbers as they are written."""
    fields: dict[str, Any] = json.loads(line, parse_int=_Digits, parse_float=_Digits)
    if name not in fields:
        raise ValueError(f"it has no column {name!r}, only {', '.join(fields)}")
    value = fields[name]
    if isinstance(value, _Digits):
        return value.encode()
    if isinstance(value, (list, dict)):
        value = json.loads(line)[name]
    if value is None or isinstance(value, str):
        return from_json(value)
    return json.dumps(value, ensure_ascii=False).encode()


def _check_partition(client: "Client", topic: str, highest: int) -> None:
    """Raise ValueError if the topic has no such partition."""
    count = client.topics().get(topic)
    if count is not None and highest >= count:
        raise ValueError(
            f"it has records of partition {highest}, and {topic} has {count} partition"
            f"{'' if count == 1 else 's'}: `smq topic add-partitions` makes more, --repartition "
            "does without"
        )


class RowSender:
    """Sends the rows of files, with a few batches in flight.

    `check_partition` is called with the partitions that a file names; None ignores them.
    """

    def __init__(
        self,
        producer: "Producer",
        topic: str,
        key: str | None,
        check_partition: Callable[[int], None] | None,
    ) -> None:
        self._producer, self._topic = producer, topic
        self._key, self._check_partition = key, check_partition
        self._on_way: deque[BatchFuture] = deque()
        self._records = 0

    def settled(self) -> int:
        """The number of acknowledged records once nothing is on its way, whatever failed."""
        while self._on_way:
            with suppress(Exception):  # The first failure is told already.
                self._records += len(self._on_way.popleft().result().offsets)
        return self._records

    def send(self, path: Path, advance: Advance, encoding: str | None = None) -> int:
        """Send a file; returns the number of acknowledged records. Raises OSError, ValueError."""
        from smq.cli.records.tables import (  # noqa: PLC0415  (PyArrow)
            highest_partition,
            parts_to_send,
            read,
        )

        keeps_partitions, highest = self._check_partition is not None, -1
        rows = read(path, encoding)
        for batch in parts_to_send(rows, self._key, keeps_partitions=keeps_partitions):
            if self._check_partition is not None and highest_partition(batch) > highest:
                highest = highest_partition(batch)
                self._check_partition(highest)
            self._on_way.append(self._producer.send_batch(self._topic, batch))
            self._await(BATCHES_ON_WAY_MAX, advance)
        self._await(0, advance)
        return self._records

    def _await(self, most: int, advance: Advance) -> None:
        while len(self._on_way) > most:
            count = len(self._on_way.popleft().result().offsets)
            self._records += count
            advance(count)
