"""The ways out of a broker, for the awkward records. Each says what it keeps of one."""

import base64
import json
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.ipc as pa_ipc
import pyarrow.parquet as pq
from confluent_kafka import Consumer, TopicPartition

from smq.front.console.desk import HEADERS_MAX, PREVIEW_BYTES
from tests.app.awkward_ways_in import Place, Records, said
from tests.app.fake_broker import eventually
from tests.app.http_client import ask
from tests.awkward import NO_TIME, SMALL_BYTES, Awkward

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def from_records(transport: str) -> Callable[[Place], Records]:
    """The SDK, a record at a time."""

    def read(place: Place) -> Records:
        with (
            place.broker.connect(transport=transport) as client,
            client.consumer(place.topic, start="earliest") as consumer,
        ):
            return [
                Awkward(
                    each.key,
                    None if each.value is None else bytes(each.value),
                    tuple((name.encode(errors="surrogateescape"), x) for name, x in each.headers),
                    each.timestamp_ms,
                )
                for each in consumer.read_until(consumer.find("latest"))
            ]

    return read


def of_table(table: pa.Table) -> Records:
    """Records of columns."""
    times = table["timestamp"].cast(pa.timestamp("ms")).cast(pa.int64()).fill_null(NO_TIME)
    columns = [table[name].to_pylist() for name in ("key", "value", "headers")]
    return [
        Awkward(
            _bytes(key),
            _bytes(value),
            tuple((each["key"].encode(), each["value"]) for each in headers),
            time,
        )
        for key, value, headers, time in zip(*columns, times.to_pylist(), strict=True)
    ]


def _bytes(data: str | bytes | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


def from_arrow(place: Place) -> Records:
    """The SDK's `to_arrow`."""
    found: Records = []
    with (
        place.broker.connect() as client,
        client.consumer(place.topic, start="earliest") as consumer,
    ):
        ends = consumer.find("latest")
        while any(consumer.position(*name) < end for name, end in ends.items()):
            with consumer.poll(1) as batch:
                found += of_table(batch.to_arrow())
    return found


def unsaid(data: Any) -> bytes | None:
    """Bytes from JSON."""
    if isinstance(data, dict):
        assert [*data] == ["base64"]
        return base64.b64decode(data["base64"], validate=True)
    return _bytes(data)


def of_lines(lines: bytes) -> Records:
    """Records of lines of JSON."""
    return [
        Awkward(
            unsaid(each["key"]),
            unsaid(each["value"]),
            tuple((unsaid(name) or b"", unsaid(value)) for name, value in each["headers"]),
            each["timestamp"],
        )
        for each in map(strict_json, lines.split(b"\n")[:-1])
    ]


def strict_json(text: bytes | str) -> Any:
    """JSON as RFC 8259 has it."""
    return json.loads(text, parse_constant=_refuse)


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def from_consume(*options: str) -> Callable[[Place], Records]:
    """`smq consume`."""
    return lambda place: of_lines(place.smq("consume", place.topic, *options))


def from_export(suffix: str) -> Callable[[Place], Records]:
    """`smq export`, by other readers."""

    def read(place: Place) -> Records:
        path = place.directory / f"out-{place.topic}{suffix}"
        place.smq("export", place.topic, str(path))
        if suffix == ".ndjson":
            return of_lines(path.read_bytes())
        if suffix == ".parquet":
            return of_table(pq.read_table(path))
        with pa_ipc.open_file(path) as file:
            return of_table(file.read_all())

    return read


QUERY = 'SELECT key, value, headers, timestamp FROM {} ORDER BY "offset"'


def _query(place: Place, *, is_raw: bool) -> str:
    return QUERY.format(("raw." if is_raw else "") + f'"{place.topic}"')


def of_rows(rows: Iterator[Sequence[Any]]) -> Records:
    """Records of JSON's rows."""
    return [
        Awkward(
            unsaid(key),
            unsaid(value),
            tuple((each["key"].encode(), unsaid(each["value"])) for each in headers),
            milliseconds(moment),
        )
        for key, value, headers, moment in rows
    ]


def milliseconds(moment: str | None) -> int:
    """Since 1970."""
    if moment is None:
        return NO_TIME
    return (datetime.fromisoformat(moment).replace(tzinfo=UTC) - EPOCH) // timedelta(milliseconds=1)


def from_sql(output_format: str, *, is_raw: bool) -> Callable[[Place], Records]:
    """`smq sql`."""

    def read(place: Place) -> Records:
        path = place.directory / f"sql-{place.topic}.{output_format}"
        options = ("--format", output_format, "--output", str(path))
        place.smq("sql", _query(place, is_raw=is_raw), *options)
        if output_format == "parquet":
            return of_table(pq.read_table(path))
        if output_format == "json":
            lines = map(strict_json, path.read_bytes().split(b"\n")[:-1])
            return of_rows(tuple(each.values()) for each in lines)
        _, *rows = csv_rows(path.read_bytes().decode())
        return of_rows(
            (key, value, strict_json(headers or ""), moment) for key, value, headers, moment in rows
        )

    return read


def csv_rows(text: str) -> Iterator[list[str | None]]:
    """The rows of a CSV file; None is a field without quotes and without text."""
    row: list[str | None] = []
    for match in re.finditer(r'(?:"((?:[^"]|"")*)"|([^,"\n]*))(,|\n)', text):
        quoted, plain, sign = match.groups()
        row.append(plain or None if quoted is None else quoted.replace('""', '"'))
        if sign == "\n":
            yield row
            row = []


def from_http(place: Place) -> Records:
    """`POST /sql`."""
    query = _query(place, is_raw=True).encode()
    answer = ask(place.broker, "POST", "/sql", query, content_type="application/sql")
    assert answer.status == 200, answer.body
    return of_rows(iter(strict_json(answer.body)["rows"]))


def from_console(place: Place) -> Records:
    """The console's download."""
    path = f"/topics/{place.topic}/messages?start=earliest&limit=500&as=ndjson"
    return of_lines(ask(place.broker, "GET", path).body)


def from_confluent(place: Place) -> Records:
    """librdkafka, which takes less than the broker's largest batch; it has no other header names.

    It ends before the first that it cannot say.
    """
    plain = [each for each in from_records("kafka")(place) if each.has_text_names]
    consumer = Consumer(
        {
            "bootstrap.servers": place.broker.bootstrap,
            "group.id": place.topic,
            "receive.message.max.bytes": SMALL_BYTES,
            "fetch.max.bytes": SMALL_BYTES - 1000,
            "message.max.bytes": SMALL_BYTES - 1000,
        }
    )
    consumer.assign([TopicPartition(place.topic, 0, 0)])
    found: Records = []

    def is_read() -> bool:
        message = consumer.poll(0.1)
        if message is not None:
            assert message.error() is None, message.error()
            pairs: list[Any] = [*(message.headers() or ())]
            headers = tuple((name.encode(), value) for name, value in pairs)
            found.append(Awkward(message.key(), message.value(), headers, message.timestamp()[1]))
        return len(found) == len(plain)

    eventually(is_read, f"librdkafka reads {place.topic}: {len(found)} of {len(plain)}")
    consumer.close()
    return found


def whole(each: Awkward) -> Awkward:
    """Everything is kept."""
    return each


def escaped(each: Awkward) -> Awkward:
    """In headers' names, what is not UTF-8 is escaped."""
    names = ((name.decode(errors="backslashreplace").encode(), x) for name, x in each.headers)
    return each._replace(headers=tuple(names))


def of_sql(each: Awkward) -> Awkward:
    """And times outside the calendar are null."""
    time = each.time_ms if each.has_calendar_time else NO_TIME
    return escaped(each)._replace(time_ms=time)


def of_sql_text(each: Awkward) -> Awkward:
    """And keys and values are text: what is not UTF-8 is escaped, whole."""
    key, value = (
        data if data is None or Awkward(data).is_text else _blob(data) for data in each[:2]
    )
    return of_sql(each)._replace(key=key, value=value)


def _blob(data: bytes) -> bytes:
    """DuckDB's text of a BLOB."""
    plain = {*range(32, 127)} - {*b"\\'\""}
    return b"".join(bytes([each]) if each in plain else b"\\x%02X" % each for each in data)


def of_csv(each: Awkward) -> Awkward:
    """And bytes that are not UTF-8 are JSON's text for them."""
    kept = of_sql(each)
    key, value = (
        x if x is None or Awkward(x).is_text else json.dumps(said(x)).encode() for x in each[:2]
    )
    return kept._replace(key=key, value=value)


def of_console(each: Awkward) -> Awkward:
    """Large ones are cut."""
    return Awkward(
        None if each.key is None else each.key[:PREVIEW_BYTES],
        None if each.value is None else each.value[:PREVIEW_BYTES],
        each.headers[:HEADERS_MAX],
        each.time_ms,
    )


Read = Callable[[Place], Records]
Kept = Callable[[Awkward], Awkward]
OUT: dict[str, tuple[Read, Kept]] = {
    "sdk-shared-memory": (from_records("shared memory"), whole),
    "sdk-wire": (from_records("kafka"), whole),
    "sdk-arrow": (from_arrow, escaped),
    "consume-json": (from_consume("--json"), whole),
    "consume-fields": (from_consume("--fields", "key,value,headers,timestamp"), whole),
    "export-ndjson": (from_export(".ndjson"), whole),
    "sql-json": (from_sql("json", is_raw=True), of_sql),
    "sql-text-json": (from_sql("json", is_raw=False), of_sql_text),
    "sql-parquet": (from_sql("parquet", is_raw=True), of_sql),
    "sql-text-parquet": (from_sql("parquet", is_raw=False), of_sql_text),
    "sql-csv": (from_sql("csv", is_raw=True), of_csv),
    "console": (from_console, of_console),
}
"""Ways out that give all records, and what they keep of one."""
TEXT_NAMES_OUT: dict[str, Read] = {
    "export-parquet": from_export(".parquet"),
    "export-arrow": from_export(".arrow"),
}
"""Ways out that refuse header names that are not UTF-8, and keep all else."""
