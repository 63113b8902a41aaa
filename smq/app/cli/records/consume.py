"""`smq consume`: prints the records of a topic, up to an end or for ever."""

import json
import sys
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from smq.app.cli.client import (
    BOOTSTRAP_DEFAULT,
    PARTITION_MAX,
    AsJson,
    Bootstrap,
    TopicName,
    client_at,
    refusal,
    to_json,
)
from smq.app.cli.output import flush, write
from smq.app.cli.places import PLACES, place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from smq.client.client import Client
    from smq.client.consuming.batch.chunk import Record
    from smq.client.consuming.consumer import Consumer
    from smq.client.kafka.offsets import Place
    from smq.client.names import TopicPartition

JSON = (
    'JSON, a line a record: {"topic", "partition", "offset", "timestamp", "key", "value", '
    '"headers": [[NAME, VALUE]]}; bytes that are not UTF-8 are {"base64"}'
)


def consume(  # noqa: PLR0913  (Each is an option.)
    topic: TopicName,
    *,
    start: Annotated[
        str, typer.Option("--from", help=f"Where to start: {PLACES}.", metavar="PLACE")
    ] = "earliest",
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            help="Where to stop (exclusive), by default the current end, and there at the latest "
            "unless with --follow.",
            metavar="PLACE",
        ),
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option(
            "--partition", min=0, max=PARTITION_MAX, help="One of those to read; else all."
        ),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option("--count", min=0, max=sys.maxsize, help="Maximum number of records."),
    ] = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for new records.")] = False,
    keys: Annotated[
        bool, typer.Option("--keys", help="Print each key and a tab before the value.")
    ] = False,
    headers: Annotated[
        bool, typer.Option("--headers", help="Print headers (k=v,k=v) and a tab first.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print the records of a topic, one a line."""
    places = place(start, "--from"), None if until is None else place(until, "--until")
    with client_at(bootstrap) as client:
        found = _records(client, topic, partition, places, follow=follow)
        try:
            for record in islice(found, count):
                line = _json_line(record) if as_json else _line(record, keys=keys, headers=headers)
                write(line, at_once=follow)
        except KeyboardInterrupt:  # Ctrl-C ends --follow.
            pass
        flush()


def _records(
    client: "Client",
    topic: str,
    partitions: list[int] | None,
    places: "tuple[Place, Place | None]",
    *,
    follow: bool,
) -> "Iterator[Record]":
    from smq.client.kafka.offsets import EARLIEST  # noqa: PLC0415  (takes its time)

    (start, until), least = places, places[0].offset
    begin = start if least is None else EARLIEST
    with client.consumer(topic if partitions is None else (), start=begin) as consumer:
        if partitions is not None:
            consumer.assign((topic, each) for each in partitions)
        ends = consumer.find("latest")
        if least is not None:
            _go_to(consumer, topic, least, ends)
        if until is not None:
            wanted = consumer.find(until)
            ends = wanted if follow else {name: min(wanted[name], ends[name]) for name in ends}
        found = consumer if follow and until is None else consumer.read_until(ends)
        for record in found:
            if least is None or record.offset >= least:
                yield record


def _go_to(
    consumer: "Consumer", topic: str, offset: int, ends: "dict[TopicPartition, int]"
) -> None:
    """Start each partition at an offset, or at its nearest record."""
    firsts = consumer.find("earliest")
    if not any(first <= offset <= ends[name] for name, first in firsts.items()):
        raise refusal(
            f"topic {topic} has no offset {offset}: "
            f"its records are from {min(firsts.values())} up to {max(ends.values())}"
        )
    for name, first in firsts.items():
        consumer.seek(*name, min(max(offset, first), ends[name]))


def _line(record: "Record", *, keys: bool, headers: bool) -> bytes:
    parts = []
    if headers:
        pairs = (_bytes(key) + b"=" + (value or b"") for key, value in record.headers)
        parts += [b",".join(pairs), b"\t"]
    if keys:
        parts += [record.key or b"", b"\t"]
    return b"".join([*parts, record.value or b"", b"\n"])


def _bytes(key: str) -> bytes:
    return key.encode(errors="surrogateescape")


def _json_line(record: "Record") -> bytes:
    fields = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": to_json(record.key),
        "value": to_json(None if record.value is None else bytes(record.value)),
        "headers": [[to_json(_bytes(key)), to_json(value)] for key, value in record.headers],
    }
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"
