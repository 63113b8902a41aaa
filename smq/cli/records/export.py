"""`smq export`: the records of a topic as a file of Parquet, Arrow or NDJSON."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smq.cli.client import (
    BOOTSTRAP_DEFAULT,
    PARTITION_MAX,
    AsJson,
    Bootstrap,
    TopicName,
    client_at,
    refusal,
)
from smq.cli.output import say
from smq.cli.places import PLACES, place
from smq.cli.progress import progress
from smq.cli.records.consume import json_line

if TYPE_CHECKING:
    from smq.client.consuming.batch.batch import Batch
    from smq.client.consuming.consumer import Consumer
    from smq.client.names import TopicPartition

JSON = 'JSON: {"topic", "file", "records"}'
SUFFIXES = (".parquet", ".arrow", ".ndjson", ".jsonl")
LINES = {".ndjson", ".jsonl"}
PART = ".part"  # Suffix of an incomplete file.
POLL_S = 1.0

Put = Callable[["Batch", "dict[TopicPartition, int]"], int]
"""Writes the records of a batch that are below some offsets; returns how many."""


def export(  # noqa: PLR0913  (Each is an option.)
    topic: TopicName,
    file: Annotated[Path, typer.Argument(metavar="FILE", help=f"The file: {', '.join(SUFFIXES)}.")],
    *,
    start: Annotated[
        str, typer.Option("--from", help=f"Where to start: {PLACES}.", metavar="PLACE")
    ] = "earliest",
    partition: Annotated[
        list[int] | None,
        typer.Option(
            "--partition", min=0, max=PARTITION_MAX, help="A partition to export; default: all."
        ),
    ] = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Write the records of a topic, up to its present end, to a file.

    The file appears when it is whole. An existing file is replaced.
    """
    if file.suffix not in SUFFIXES:
        raise refusal(f"{file}: the name of a file to export to ends with {', '.join(SUFFIXES)}")
    where = place(start, "--from")
    with (
        client_at(bootstrap) as client,
        client.consumer(start=where, topic_ids=client.topic_ids()) as consumer,
    ):
        count = client.topics().get(topic)
        if count is None:
            raise refusal(f"there is no topic {topic}; `smq topic list` shows the topics")
        consumer.assign((topic, each) for each in partition or range(count))
        with _whole(file) as put:
            records = _export(consumer, put)
    if as_json:
        say(json.dumps({"topic": topic, "file": str(file), "records": records}))
    else:
        say(f"exported {records:,} records of {topic} to {file}")


def _export(consumer: "Consumer", put: Put) -> int:
    from smq.client.consuming.silence import Silence  # noqa: PLC0415  (as below)

    ends, firsts = consumer.find("latest"), consumer.find("earliest")
    for name, first in firsts.items():  # One of several partitions may have the requested offset.
        position = consumer.position(*name)
        start = min(max(position, first), ends[name])
        if start != position:  # Each seek looks at all partitions.
            consumer.seek(*name, start)
    total = sum(end - consumer.position(*name) for name, end in ends.items())
    records = 0
    with progress("exporting", total) as advance:
        silence = Silence(consumer.clock)
        while left := _left(consumer, ends):
            silence.check(left)
            with consumer.poll(POLL_S).copy() as batch:
                if batch:
                    written = put(batch, ends)
                    records += written
                    advance(written)
            for name, (_, end) in left.items():
                if consumer.position(*name) >= end:
                    consumer.pause(*name)
    return records


def _left(
    consumer: "Consumer", ends: "dict[TopicPartition, int]"
) -> "dict[TopicPartition, tuple[int, int]]":
    """The positions and ends of partitions that are not read to their ends."""
    places = {name: (consumer.position(*name), end) for name, end in ends.items()}
    return {name: place for name, place in places.items() if place[0] < place[1]}


@contextmanager
def _whole(file: Path) -> Iterator[Put]:
    """A writer to a temporary file that replaces `file` at the end of the block."""
    part = file.with_name(file.name + PART)
    try:
        with _lines(part) if file.suffix in LINES else _tables(part, file.suffix) as put:
            yield put
        part.replace(file)
    except OSError as error:
        raise refusal(f"{file} cannot be written: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def _lines(part: Path) -> Iterator[Put]:
    with part.open("wb") as out:

        def put(batch: "Batch", ends: "dict[TopicPartition, int]") -> int:
            records = 0
            for name, run in batch.runs():
                for record in run:
                    if record.offset < ends[name]:
                        out.write(json_line(record))
                        records += 1
            return records

        yield put


def _refuse_odd_key(batch: "Batch", ends: "dict[TopicPartition, int]") -> None:
    """End at a record, below these offsets, with a header key that Arrow has no text for."""
    for name, run in batch.runs():
        for record in run:
            for key, _ in record.headers if record.offset < ends[name] else ():
                if not _is_text(key):
                    raise refusal(
                        f"partition {record.partition}, offset {record.offset}: the header key "
                        f"{key!r} is not UTF-8; export to .ndjson, which holds it"
                    )


def _is_text(key: str) -> bool:
    """Whether a header's key is UTF-8: the SDK gives other bytes as surrogates."""
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True


@contextmanager
def _tables(part: Path, suffix: str) -> Iterator[Put]:
    from smq.cli.records.tables import below, written  # noqa: PLC0415  (PyArrow takes its time.)

    with written(part, suffix) as writer:

        def put(batch: "Batch", ends: "dict[TopicPartition, int]") -> int:
            if not batch.are_header_keys_text():
                _refuse_odd_key(batch, ends)
            table = below(batch.to_arrow(), ends)
            writer.write_table(table)
            return int(table.num_rows)

        yield put
