"""`smq import`: the rows of Parquet, Arrow, CSV and NDJSON files as records."""

import json
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smq.app.cli.client import (
    BOOTSTRAP_DEFAULT,
    AsJson,
    Bootstrap,
    TopicName,
    client_at,
    from_json,
    refusal,
)
from smq.app.cli.output import say
from smq.app.cli.progress import Advance, progress
from smq.app.cli.records.export import LINES
from smq.app.cli.records.produce import (
    JSON_LINES,
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
    compression: Annotated[
        Compression, typer.Option("--compression", help="Compression of the batches.")
    ] = Compression.NONE,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Send each row of some files as a record.

    A file with a column `value`, as `smq export` writes it, has the columns key, value, headers,
    timestamp and partition; of JSON lines the first one tells. Rows of any other file become JSON
    objects.
    """
    records = 0
    with (
        client_at(bootstrap) as client,
        client.producer(compression=compression.value) as producer,
        progress("importing", None) as advance,
    ):
        for path in files:
            try:
                if path.suffix in LINES:
                    objects = Objects(key, keeps_partitions=not repartition)
                    records += _import_lines(producer, topic, path, objects, advance)
                else:
                    check = partial(_check_partition, client, topic)
                    rows = Rows(producer, topic, key, None if repartition else check)
                    records += rows.send(path, advance)
            except (OSError, ValueError, TypeError) as error:
                reason = getattr(error, "strerror", None) or error
                before = f"; {records:,} records of other files were sent" if records else ""
                raise refusal(f"{path}: {reason}{before}") from error
    if as_json:
        say(json.dumps({"topic": topic, "records": records}))
    else:
        say(f"sent {records:,} records to {topic}")


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
            self._are_records = "value" in fields
        record = JSON_LINES.record_of_object(fields) if self._are_records else Input(line.strip())
        if self._key is not None:
            record = record._replace(key=_key_of(fields, self._key))
        return record if self._keeps_partitions else record._replace(partition=None)


def _key_of(fields: dict[str, Any], name: str) -> bytes | None:
    """A field as a key: numbers become decimal text."""
    if name not in fields:
        raise ValueError(f"it has no column {name!r}, only {', '.join(fields)}")
    value = fields[name]
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


class Rows:
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

    def send(self, path: Path, advance: Advance) -> int:
        """Send a file; returns the number of acknowledged records. Raises OSError, ValueError."""
        from smq.app.cli.records.tables import (  # noqa: PLC0415  (PyArrow)
            highest_partition,
            read,
            to_send,
        )

        keeps_partitions, highest = self._check_partition is not None, -1
        for rows in read(path):
            batch = to_send(rows, self._key, keeps_partitions=keeps_partitions)
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
