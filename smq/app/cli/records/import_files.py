"""`smq import`: the rows of Parquet, Arrow, CSV and NDJSON files as records."""

import json
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smq.app.cli.client import (
    BOOTSTRAP_DEFAULT,
    AsJson,
    Bootstrap,
    TopicName,
    client_at,
    refusal,
)
from smq.app.cli.output import say
from smq.app.cli.progress import Advance, progress
from smq.app.cli.records.export import LINES
from smq.app.cli.records.produce import Compression, Sending, json_lines_of

if TYPE_CHECKING:
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
    timestamp and partition. Rows of any other file become JSON objects.
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
                    records += _import_lines(producer, topic, path, advance)
                else:
                    rows = Rows(producer, topic, key, keeps_partitions=not repartition)
                    records += rows.send(path, advance)
            except (OSError, ValueError, TypeError) as error:
                reason = getattr(error, "strerror", None) or error
                raise refusal(
                    f"{path}: {reason}; {records:,} records of other files sent"
                ) from error
    if as_json:
        say(json.dumps({"topic": topic, "records": records}))
    else:
        say(f"sent {records:,} records to {topic}")


def _import_lines(producer: "Producer", topic: str, path: Path, advance: Advance) -> int:
    sending = Sending(producer, topic)
    json_lines_of(sending, path)
    advance(sending.acknowledged)
    return sending.acknowledged


class Rows:
    """Sends the rows of files, with a few batches on their way."""

    def __init__(
        self, producer: "Producer", topic: str, key: str | None, *, keeps_partitions: bool
    ) -> None:
        self._producer, self._topic = producer, topic
        self._key, self._keeps_partitions = key, keeps_partitions
        self._on_way: deque[BatchFuture] = deque()
        self._records = 0

    def send(self, path: Path, advance: Advance) -> int:
        """Send a file; returns how many records were acknowledged. Raises OSError, ValueError."""
        from smq.app.cli.records.tables import read, to_send  # noqa: PLC0415  (PyArrow)

        for rows in read(path):
            batch = to_send(rows, self._key, keeps_partitions=self._keeps_partitions)
            self._on_way.append(self._producer.send_batch(self._topic, batch))
            self._await(BATCHES_ON_WAY_MAX, advance)
        self._await(0, advance)
        return self._records

    def _await(self, most: int, advance: Advance) -> None:
        while len(self._on_way) > most:
            count = len(self._on_way.popleft().result().offsets)
            self._records += count
            advance(count)
