"""`smq consume`: the records of a topic on standard output, to an end or for ever."""

import json
import os
import re
import sys
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from smq.app.cli_client import (
    BOOTSTRAP_DEFAULT,
    AsJson,
    Bootstrap,
    TopicName,
    client_at,
    refusal,
    to_json,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from smq.client.client import Client
    from smq.client.consuming.offsets import Place
    from smq.client.consuming.record import Record

PLACES = "earliest, latest, an offset, or @ and a time: milliseconds since 1970, or ISO 8601"


def consume(  # noqa: PLR0913  (Each is an option.)
    topic: TopicName,
    *,
    start: Annotated[
        str, typer.Option("--from", help=f"Where to begin: {PLACES}.", metavar="PLACE")
    ] = "earliest",
    until: Annotated[
        str | None,
        typer.Option("--until", help="Where to end, before it; else where the topic ends now."),
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", help="One of those to read; else all.")
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", min=0, help="How many records at most.")
    ] = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with records that are yet to come.")
    ] = False,
    keys: Annotated[
        bool, typer.Option("--keys", help="Each key and a tab before its value.")
    ] = False,
    headers: Annotated[
        bool, typer.Option("--headers", help="Headers (k=v,k=v) and a tab before all else.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print the records of a topic, one on a line."""
    places = place(start, "--from"), place("latest" if until is None else until, "--until")
    with client_at(bootstrap) as client:
        found = _records(client, topic, partition, places, follow=follow and until is None)
        output = sys.stdout.buffer
        try:
            for record in islice(found, count):
                line = _json_line(record) if as_json else _line(record, keys=keys, headers=headers)
                _write(output, line, at_once=follow)
            output.flush()
        except KeyboardInterrupt:  # How one leaves --follow.
            output.flush()
        except BrokenPipeError:  # Who reads us has enough.
            os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())  # Python flushes at its end.


def _records(
    client: "Client",
    topic: str,
    partitions: list[int] | None,
    places: "tuple[Place, Place]",
    *,
    follow: bool,
) -> "Iterator[Record]":
    start, until = places
    with client.consumer(topic if partitions is None else (), start=start) as consumer:
        if partitions is not None:
            consumer.assign((topic, each) for each in partitions)
        if follow:
            yield from consumer
        yield from consumer.read_until(consumer.find(until))


def place(text: str, option: str) -> "Place":
    """What an option says of a place in the log."""
    from smq.client.consuming.offsets import EARLIEST, LATEST, Place  # noqa: PLC0415  (takes its time)

    if text in {"earliest", "latest"}:
        return EARLIEST if text == "earliest" else LATEST
    if text.isdecimal():
        return Place(offset=int(text))
    if re.fullmatch(r"@\d+", text):
        return Place(timestamp=int(text[1:]))
    at, sign, time_text = text.partition("@")
    try:
        time = datetime.fromisoformat(time_text if sign and not at else "")
    except ValueError:
        raise refusal(f"{option} takes {PLACES}; and not {text!r}") from None
    return Place(timestamp=int(time.replace(tzinfo=time.tzinfo or UTC).timestamp() * 1000))


def _write(output: BinaryIO, line: bytes, *, at_once: bool) -> None:
    output.write(line)
    if at_once:
        output.flush()


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
