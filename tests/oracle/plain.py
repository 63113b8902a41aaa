"""Answers as plain data: readable in a file, and free of what must differ between two brokers.

A field that has its schema's default is left out, but for error codes. What a broker makes up is
replaced by a name that stands for the same value everywhere in one dialogue (`<topic id 1>`,
`<producer 2>`), so that two answers are equal when the same things are equal in both.
Words meant for people are only there or not there: `<words>`. A batch that is cut at the end of an
answer is left out: Kafka does that to keep to a size, and its clients ask for the batch again.
"""

import re
import zlib
from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from smq.wire.codec import Message
from smq.wire.records import BatchView, Record, read_batches

CLOSED = "the connection is closed"
SILENT = "no answer"
BYTES_SHOWN_MAX = 64
RECENT_MS = 1_600_000_000_000  # The dialogues' own timestamps are older, the broker's are not.
NO_TIME_MS = 1 << 62

_WORDS = {"error_message", "batch_index_error_message", "documentation"}
_DROPPED = {"throttle_time_ms", "finalized_features_epoch"}
_MADE_UP = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Names:
    """The names that made-up values get in one dialogue, in the order of appearance.

    `own` is how the names of the dialogue's own topics and groups begin; they are shown as `~`.
    """

    def __init__(self, own: str) -> None:
        self.own = own
        self._names: dict[tuple[str, object], str] = {}
        self._counts: dict[str, int] = {}

    def call(self, kind: str, value: object, name: str) -> None:
        """Give a value its name now, not when it is first seen in an answer."""
        self._names[kind, value] = name

    def of(self, kind: str, value: object) -> str:
        name = self._names.get((kind, value))
        if name is None:
            count = self._counts[kind] = self._counts.get(kind, 0) + 1
            name = self._names[kind, value] = f"<{kind} {count}>"
        return name


def plain(message: Message, names: Names) -> dict[str, Any]:
    """A decoded message as a dictionary."""
    default = type(message)()
    fields: dict[str, Any] = {}
    for field in message.__slots__:
        value = getattr(message, field)
        if field in _DROPPED or (field != "error_code" and _same(value, getattr(default, field))):
            continue
        if field == "records":
            fields[field] = None if value is None else _batches(bytes(value), names)
        else:
            fields[field] = _plain_value(field, value, names)
    return fields


def _same(value: Any, default: Any) -> bool:
    return bool(value == default or (default == () and value == []))


def _plain_value(field: str, value: Any, names: Names) -> Any:
    match value:
        case Message():
            return plain(value, names)
        case list() | tuple():
            return [_plain_value(field, each, names) for each in value]
        case bytes() | memoryview():
            return _text(bytes(value))
        case UUID():
            return names.of("topic id", value) if value.int else "<no topic id>"
        case _ if field in _WORDS:
            return None if value is None else "<words>"
    return _MADE_UP_FIELDS.get(field, _as_it_is)(value, names)


def _as_it_is(value: Any, names: Names) -> Any:
    return value.replace(names.own, "~") if isinstance(value, str) else value


def made_up_part(value: str | None, names: Names) -> str | None:
    """Kafka makes member ids of what the client said and a UUID."""
    return value and _MADE_UP.sub(lambda found: names.of("uuid", found[0]), value)


def _numbered(kind: str) -> Callable[[int, Names], int | str]:
    return lambda value, names: names.of(kind, value) if value > 0 else value


def _time(value: int, _: Names) -> int | str:
    return "<now>" if RECENT_MS < value < NO_TIME_MS else value


_MADE_UP_FIELDS: dict[str, Callable[[Any, Names], Any]] = {
    "member_id": made_up_part,
    "leader": made_up_part,
    "cluster_id": lambda value, _: value and "<cluster>",
    "host": lambda value, _: value and "<host>",
    "port": lambda value, _: "<port>" if value > 0 else value,
    "session_id": _numbered("session"),
    "producer_id": _numbered("producer"),
    "log_append_time_ms": _time,
    "timestamp": _time,
    "last_timestamp": _time,
}


def _batches(data: bytes, names: Names) -> list[dict[str, Any]]:
    return [_batch(batch, names) for batch in read_batches(data)]


_BATCH_NUMBERS = ("base_offset", "leader_epoch", "attributes", "last_offset_delta", "record_count")
_BATCH_OPTIONAL = ("producer_epoch", "base_sequence")


def _batch(batch: BatchView, names: Names) -> dict[str, Any]:
    fields: dict[str, Any] = {field: getattr(batch, field) for field in _BATCH_NUMBERS}
    fields |= {
        field: _time(getattr(batch, field), names) for field in ("base_timestamp", "max_timestamp")
    }
    if batch.producer_id >= 0:
        fields["producer_id"] = names.of("producer", batch.producer_id)
        fields |= {field: getattr(batch, field) for field in _BATCH_OPTIONAL}
    fields["records"] = [_record(record, names) for record in batch.records()]
    return fields


def _record(record: Record, names: Names) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "offset": record.offset,
        "timestamp": _time(record.timestamp_ms, names),
        "key": _text(record.key),
        "value": _text(record.value),
    }
    if record.headers:
        fields["headers"] = [[_text(key), _text(value)] for key, value in record.headers]
    return fields


def _text(data: bytes | None) -> str | None:
    if data is None:
        return None
    if len(data) > BYTES_SHOWN_MAX:
        return f"<{len(data)} bytes, CRC {zlib.crc32(data):08x}>"
    return data.decode("latin-1")


def own(items: Iterable[Any], field: str, prefix: str) -> list[Any]:
    """Of a list of everything there is, what this dialogue made, in order."""
    return sorted(
        (each for each in items if str(getattr(each, field)).startswith(prefix)),
        key=lambda each: str(getattr(each, field)),
    )
