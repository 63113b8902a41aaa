"""The ways into a broker, for the awkward records."""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc as pa_ipc
import pyarrow.parquet as pq
from confluent_kafka import Producer
from typer.testing import CliRunner

from smq.cli.verbs import app
from smq.testing.smq_broker import SmqBroker
from tests.awkward import ANY_TIME, Awkward

Records = list[Awkward]
SECONDS_MAX = 30
_HEADERS = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))


@dataclass(frozen=True)
class Place:
    """A topic of a broker, and a directory for files."""

    broker: SmqBroker
    topic: str
    directory: Path

    def smq(self, *arguments: str, exit_code: int = 0) -> bytes:
        """Run a verb on the broker; what it prints."""
        return run(*arguments, "--bootstrap", self.broker.bootstrap, exit_code=exit_code)


def run(*arguments: str, exit_code: int = 0) -> bytes:
    """Run a verb; what it prints."""
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == exit_code, done.output
    return done.output.encode() if exit_code else done.stdout_bytes


def by_send(transport: str, compression: str = "none") -> Callable[[Place, Records], None]:
    """The SDK, a record at a time."""

    def send(place: Place, records: Records) -> None:
        with (
            place.broker.connect(transport=transport) as client,
            client.producer(compression=compression) as producer,
        ):
            assert client.transport == transport
            for each in records:
                headers, time_ms = each.headers, each.time_ms
                producer.send(
                    place.topic, each.value, key=each.key, headers=headers, timestamp_ms=time_ms
                )

    return send


def columns_of(records: Records) -> dict[str, list[Any]]:
    """The records as columns."""
    return {
        "key": [each.key for each in records],
        "value": [each.value for each in records],
        "headers": [each.headers for each in records],
        "timestamp": [each.time_ms for each in records],
    }


def table_of(records: Records, names: pa.DataType | None = None) -> pa.Table:
    """The records as an Arrow table; `names`: the type of headers' keys."""
    columns = columns_of(records)
    pairs = [[{"key": key, "value": value} for key, value in each] for each in columns["headers"]]
    headers = pa.array(pairs, _HEADERS)
    if names is not None:
        headers = headers.cast(pa.list_(pa.struct([("key", names), ("value", pa.binary())])))
    return pa.table(
        {
            "key": pa.array(columns["key"], pa.binary()),
            "value": pa.array(columns["value"], pa.binary()),
            "headers": headers,
            "timestamp": pa.array(columns["timestamp"], pa.timestamp("ms", "UTC")),
        }
    )


def by_send_batch(make: Callable[[Records], Any]) -> Callable[[Place, Records], None]:
    """The SDK, all records at once."""

    def send(place: Place, records: Records) -> None:
        with place.broker.connect() as client, client.producer() as producer:
            producer.send_batch(place.topic, make(records)).result(SECONDS_MAX)

    return send


def said(data: bytes | None) -> object:
    """Bytes in JSON, as docs/cli.md has them."""
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data or b"").decode()}


def lines_of(records: Records) -> bytes:
    """The records as lines of JSON."""
    lines = (
        {
            "key": said(each.key),
            "value": said(each.value),
            "headers": [[said(name), said(value)] for name, value in each.headers],
            "timestamp": each.time_ms,
        }
        for each in records
    )
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def by_json_lines(place: Place, records: Records) -> None:
    """`smq produce --json-lines`."""
    path = place.directory / f"{place.topic}.lines"
    path.write_bytes(lines_of(records))
    place.smq("produce", place.topic, str(path), "--json-lines")


def by_import(suffix: str) -> Callable[[Place, Records], None]:
    """`smq import` of a file that others have written."""

    def import_(place: Place, records: Records) -> None:
        path = place.directory / f"{place.topic}{suffix}"
        if suffix == ".ndjson":
            path.write_bytes(lines_of(records))
        elif suffix == ".csv":
            path.write_bytes(csv_of(records))
        elif suffix == ".parquet":
            pq.write_table(table_of(records, pa.string()), path)
        else:
            table = table_of(records, pa.string())
            with pa_ipc.new_file(path, table.schema) as file:
                file.write_table(table)
        place.smq("import", place.topic, str(path))

    return import_


def csv_of(records: Records) -> bytes:
    """The records as CSV, all fields quoted."""
    rows = ((each.key or b"", each.value or b"", b"%d" % each.time_ms) for each in records)
    lines = (b",".join(b'"' + each.replace(b'"', b'""') + b'"' for each in row) for row in rows)
    return b"key,value,timestamp\n" + b"".join(line + b"\n" for line in lines)


def by_copy(place: Place, records: Records) -> None:
    """`smq copy`, of larger batches than the destination takes."""
    source = Place(place.broker, f"{place.topic}-source", place.directory)
    with place.broker.connect() as client:
        client.create_topic(source.topic, 1, ANY_TIME)
    by_send_batch(columns_of)(source, records)
    place.smq("copy", source.topic, place.topic)


def by_confluent(place: Place, records: Records) -> None:
    """librdkafka."""
    producer = Producer({"bootstrap.servers": place.broker.bootstrap, "message.max.bytes": 99_000})
    for each in records:
        headers: list[Any] = [(name.decode(), value) for name, value in each.headers]
        producer.produce(
            place.topic, each.value, each.key, headers=headers, timestamp=each.time_ms, partition=0
        )
    assert producer.flush(SECONDS_MAX) == 0


def _has_csv(each: Awkward) -> bool:
    return each.is_text and None not in each[:2] and not each.headers


def of_confluent(each: Awkward) -> Awkward:
    """librdkafka's names of headers end at the first zero."""
    names = ((name.partition(b"\0")[0], value) for name, value in each.headers)
    return each._replace(headers=tuple(names))


def _of_confluent(each: Awkward) -> Awkward:
    """And it takes the times 0 and -1 for now."""
    return of_confluent(each._replace(time_ms=max(1, each.time_ms)))


def all_of(records: Records) -> Records:
    """For ways that take each record."""
    return records


# A way in, and which records it takes: what others cannot say, or have a meaning of their own for.
Send = Callable[[Place, Records], None]
IN: dict[str, tuple[Send, Callable[[Records], Records]]] = {
    "sdk-shared-memory": (by_send("shared memory"), all_of),
    "sdk-wire": (by_send("kafka"), all_of),
    "sdk-zstd": (by_send("shared memory", "zstd"), all_of),
    "sdk-lists": (by_send_batch(columns_of), all_of),
    "sdk-arrow": (by_send_batch(table_of), all_of),
    "produce": (by_json_lines, all_of),
    "import-ndjson": (by_import(".ndjson"), all_of),
    "import-parquet": (by_import(".parquet"), lambda all_: [x for x in all_ if x.has_text_names]),
    "import-arrow": (by_import(".arrow"), lambda all_: [x for x in all_ if x.has_text_names]),
    "import-csv": (by_import(".csv"), lambda all_: [x for x in all_ if _has_csv(x)]),
    "copy": (by_copy, all_of),
    "confluent": (by_confluent, lambda all_: [_of_confluent(x) for x in all_ if x.has_text_names]),
}
