"""`smq consume`: prints the records of a topic, up to an end or for ever."""

import json
import sys
from itertools import islice
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
    split_pair,
    to_json,
)
from smq.cli.output import flush, say, write
from smq.cli.places import PLACES, place
from smq.cli.records.selection import (
    Counts,
    Selection,
    Template,
    check_field,
    chosen,
    headers_json,
    pattern,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from smq.client.client import Client
    from smq.client.consuming.batch.chunk import Record
    from smq.client.consuming.consumer import Consumer
    from smq.client.kafka.offsets import OffsetPlace
    from smq.client.names import TopicPartition

JSON = (
    'JSON, a line a record: {"topic", "partition", "offset", "timestamp", "key", "value", '
    '"headers": [[NAME, VALUE]]}; bytes that are not UTF-8 are {"base64"}. With --stats: '
    '{"records", "bytes", "nulls", "partitions": [{"partition", "records", "bytes", "nulls", '
    '"first_offset", "last_offset", "first_timestamp", "last_timestamp"}]}'
)


Start = Annotated[str, typer.Option("--from", help=f"Where to start: {PLACES}.", metavar="PLACE")]
Until = Annotated[
    str | None,
    typer.Option(
        "--until",
        help="Where to stop (exclusive), by default the current end, and there at the latest "
        "unless with --follow.",
        metavar="PLACE",
    ),
]
Partitions = Annotated[
    list[int] | None,
    typer.Option(
        "--partition", min=0, max=PARTITION_MAX, help="A partition to read; default: all."
    ),
]
Count = Annotated[
    int | None,
    typer.Option("--count", min=0, max=sys.maxsize, help="Maximum number of records."),
]
Follow = Annotated[bool, typer.Option("--follow", help="Wait for new records.")]
Keys = Annotated[bool, typer.Option("--keys", help="Print each key and a tab before the value.")]
Headers = Annotated[
    bool, typer.Option("--headers", help="Print headers (k=v,k=v) and a tab first.")
]
Key = Annotated[str | None, typer.Option("--key", metavar="REGEX", help="Only keys that match.")]
Value = Annotated[
    str | None, typer.Option("--value", metavar="REGEX", help="Only values that match.")
]
Header = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="K=V", help="Only records with this header; may be repeated."),
]
TemplateText = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="TEMPLATE",
        help="How to print a record: {topic} {partition} {offset} {timestamp} {time} {key} "
        "{value} {headers} {size}, and {value.user.id} for a part of a JSON value.",
    ),
]
Fields = Annotated[
    str | None,
    typer.Option(
        "--fields", metavar="NAME,…", help="Print JSON with these fields of --format only."
    ),
]
Stats = Annotated[
    bool,
    typer.Option("--stats", help="Print counts for each partition instead of the records."),
]


def consume(  # noqa: PLR0913  (Each is an option.)
    topic: TopicName,
    *,
    start: Start = "earliest",
    until: Until = None,
    partition: Partitions = None,
    count: Count = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    follow: Follow = False,
    keys: Keys = False,
    headers: Headers = False,
    key: Key = None,
    value: Value = None,
    header: Header = None,
    template: TemplateText = None,
    fields: Fields = None,
    stats: Stats = False,
    as_json: AsJson = False,
) -> None:
    """Print the records of a topic, one a line."""
    places = place(start, "--from"), None if until is None else place(until, "--until")
    try:
        selection = _selection(key, value, header or [])
        line_of = _printer(template, fields, as_json=as_json, keys=keys, headers=headers)
    except ValueError as error:
        raise refusal(str(error)) from error
    counts = Counts()
    with client_at(bootstrap) as client:
        found = filter(selection.has, _records(client, topic, partition, places, follow=follow))
        try:
            for record in islice(found, count):
                if stats:
                    counts.add(record)
                else:
                    write(line_of(record), at_once=follow)
        except KeyboardInterrupt:  # Ctrl-C ends --follow.
            pass
        flush()
    if stats:
        _print_counts(counts, as_json=as_json)


def _selection(key: str | None, value: str | None, headers: list[str]) -> Selection:
    """The records that options choose. Raises ValueError."""
    pairs = [split_pair(each, "--header") for each in headers]
    return Selection(
        key=None if key is None else pattern(key),
        value=None if value is None else pattern(value),
        headers=[(name, text.encode(errors="surrogateescape")) for name, text in pairs],
    )


def _printer(
    template: str | None, fields: str | None, *, as_json: bool, keys: bool, headers: bool
) -> "Callable[[Record], bytes]":
    """How a record is printed. Raises ValueError."""
    if template is not None and fields is not None:
        raise ValueError("--format and --fields exclude each other")
    if template is not None:
        wanted = Template(template)
        return lambda record: wanted.line(record) + b"\n"
    if fields is not None:
        names = fields.split(",")
        for name in names:
            check_field(name)
        return lambda record: chosen(record, names)
    if as_json:
        return json_line
    return lambda record: _line(record, keys=keys, headers=headers)


def _print_counts(counts: Counts, *, as_json: bool) -> None:
    rows = counts.rows()
    total = {name: sum(row[name] for row in rows) for name in ("records", "bytes", "nulls")}
    if as_json:
        say(json.dumps({**total, "partitions": rows}))
        return
    say(f"{'partition':>9} {'records':>12} {'bytes':>16} {'nulls':>8} {'first':>12} {'last':>12}")
    for row in rows:
        say(
            f"{row['partition']:>9} {row['records']:>12,} {row['bytes']:>16,} {row['nulls']:>8,} "
            f"{row['first_offset']:>12} {row['last_offset']:>12}"
        )
    say(f"{'all':>9} {total['records']:>12,} {total['bytes']:>16,} {total['nulls']:>8,}")


def _records(
    client: "Client",
    topic: str,
    partitions: list[int] | None,
    places: "tuple[OffsetPlace, OffsetPlace | None]",
    *,
    follow: bool,
) -> "Iterator[Record]":
    from smq.client.consuming.silence import SILENCE_SECONDS_MAX  # noqa: PLC0415  (takes its time)
    from smq.client.kafka.offsets import EARLIEST  # noqa: PLC0415  (as above)

    (start, until), least = places, places[0].offset
    begin = start if least is None else EARLIEST
    ids = {} if follow else client.topic_ids()  # What is read to its end is one topic.
    names = topic if partitions is None else ()
    with client.consumer(names, start=begin, topic_ids=ids) as consumer:
        if partitions is not None:
            consumer.assign((topic, each) for each in partitions)
        ends = consumer.find("latest")
        if least is not None:
            _go_to(consumer, topic, least, ends)
        if until is not None:
            wanted = consumer.find(until)
            ends = wanted if follow else {name: min(wanted[name], ends[name]) for name in ends}
        silence_s = None if follow else SILENCE_SECONDS_MAX
        found: Iterable[Record] = consumer
        if not follow or until is not None:
            found = consumer.read_until(ends, silence_s=silence_s)
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


def json_line(record: "Record") -> bytes:
    """A line of JSON with all of a record; `smq produce --json-lines` reads it."""
    fields = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": to_json(record.key),
        "value": to_json(None if record.value is None else bytes(record.value)),
        "headers": headers_json(record.headers),
    }
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"
