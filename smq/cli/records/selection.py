"""Selects which records `smq consume` prints, and which of their fields."""

import json
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from string import Formatter
from typing import Any, Protocol

from smq.cli.client import to_json
from smq.cli.places import EPOCH

FIELDS = ("topic", "partition", "offset", "timestamp", "time", "key", "value", "headers", "size")
_ESCAPES = {r"\n": "\n", r"\t": "\t", r"\0": "\0"}


class AnyRecord(Protocol):
    """The attributes of a record that selection uses."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> memoryview | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...


@dataclass(frozen=True, slots=True)
class Selection:
    """A filter: key and value match, and all these headers are present."""

    key: re.Pattern[bytes] | None = None
    value: re.Pattern[bytes] | None = None
    headers: Collection[tuple[str, bytes]] = ()

    def has(self, record: AnyRecord) -> bool:
        """Whether the record is selected. A null key or value matches nothing."""
        fits = _fits(self.key, record.key) and _fits(self.value, record.value)
        return fits and all(pair in record.headers for pair in self.headers)


def _fits(wanted: re.Pattern[bytes] | None, found: bytes | memoryview | None) -> bool:
    return wanted is None or (found is not None and wanted.search(found) is not None)


def pattern(text: str) -> re.Pattern[bytes]:
    """A regular expression for bytes. Raises ValueError."""
    try:
        return re.compile(text.encode(errors="surrogateescape"))
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from error


class Template:
    """`{field}` stands for a field; `{value.user.id}` and `{key.id}` for a part of JSON.

    A part that a record lacks is empty. Raises ValueError for an unknown field.
    """

    def __init__(self, text: str) -> None:
        for escape, meant in _ESCAPES.items():
            text = text.replace(escape, meant)
        self._pieces: list[tuple[str, str | None]] = []
        for literal, name, spec, conversion in Formatter().parse(text):
            if name is not None:
                check_field(name)
            if spec or conversion:
                raise ValueError(f"{{{name}}} takes no format")
            self._pieces.append((literal, name))

    def line(self, record: AnyRecord) -> bytes:
        """The record's line, without a line end."""
        parts = []
        for literal, name in self._pieces:
            parts.append(literal.encode())
            if name is not None:
                parts.append(_bytes_of(field_of(record, name)))
        return b"".join(parts)


def check_field(name: str) -> None:
    """Raises ValueError for an unknown field."""
    first, dot, _ = name.partition(".")
    if first not in FIELDS or (dot and first not in {"key", "value"}):
        known = ", ".join(FIELDS)
        raise ValueError(f"there is no field {name!r}, only {known}, and value.… and key.…")


def field_of(record: AnyRecord, name: str) -> Any:  # noqa: ANN401  (what the field is)
    """A field, or a part of a key or value that is JSON; None if it has none."""
    first, *path = name.split(".")
    if first == "time":
        return _time(record.timestamp_ms)
    if first == "timestamp":
        return record.timestamp_ms
    if first == "size":
        return len(record.key or b"") + len(record.value or b"")
    if first == "headers":
        return headers_json(record.headers)
    found = getattr(record, first)
    if isinstance(found, memoryview):
        found = bytes(found)
    return _part(found, path) if path else found


def headers_json(headers: Iterable[tuple[str, bytes | None]]) -> list[list[Any]]:
    """Pairs of a name and a value, as JSON."""
    named = ((name.encode(errors="surrogateescape"), value) for name, value in headers)
    return [[to_json(name), to_json(value)] for name, value in named]


def _time(timestamp_ms: int) -> str | None:
    try:
        return (EPOCH + timedelta(milliseconds=timestamp_ms)).isoformat("T", "milliseconds")
    except OverflowError:  # Outside the calendar: producers may send any number.
        return None


def _part(data: bytes | None, path: list[str]) -> Any:  # noqa: ANN401  (what JSON gives)
    try:
        found = None if data is None else json.loads(data)
    except (ValueError, RecursionError):
        return None
    for name in path:
        if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        elif isinstance(found, dict):
            found = found.get(name)
        else:
            return None
    return found


def _bytes_of(found: Any) -> bytes:  # noqa: ANN401  (as above)
    if found is None:
        return b""
    if isinstance(found, bytes):
        return found
    if isinstance(found, str):
        return found.encode(errors="surrogateescape")
    return json.dumps(found, ensure_ascii=False).encode(errors="surrogateescape")


def chosen(record: AnyRecord, names: list[str]) -> bytes:
    """A line of JSON with these fields."""
    found = {name: field_of(record, name) for name in names}
    as_json = {
        name: to_json(each) if isinstance(each, bytes) else each for name, each in found.items()
    }
    return json.dumps(as_json, ensure_ascii=False).encode(errors="surrogateescape") + b"\n"


@dataclass(slots=True)
class Counts:
    """The statistics of `--stats`: records, bytes and times, by partition."""

    partitions: dict[int, dict[str, int]] = field(default_factory=dict)

    def add(self, record: AnyRecord) -> None:
        """Count a record."""
        time_ms = record.timestamp_ms
        counts = self.partitions.setdefault(
            record.partition,
            {
                "partition": record.partition,
                "records": 0,
                "bytes": 0,
                "nulls": 0,
                "first_offset": record.offset,
                "last_offset": record.offset,
                "first_timestamp": time_ms,
                "last_timestamp": time_ms,
            },
        )
        counts["records"] += 1
        counts["bytes"] += field_of(record, "size")
        counts["nulls"] += record.value is None
        counts["last_offset"] = record.offset
        counts["first_timestamp"] = min(counts["first_timestamp"], time_ms)
        counts["last_timestamp"] = max(counts["last_timestamp"], time_ms)

    def rows(self) -> list[dict[str, int]]:
        """The counts of each partition."""
        return [self.partitions[number] for number in sorted(self.partitions)]
