"""Checks arguments: returns what is kept, or raises an error with name, value and allowed range."""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from operator import index
from typing import Any

import numpy as np

from smq.client.names import TopicPartition
from smq.client.payload_formats import is_masked
from smq.model.names import NAME_CHARACTERS_MAX, is_valid_topic_name
from smq.wire.records import Headers

SECONDS_MAX = 2_000_000  # Three weeks: polls, and Kafka's requests, have milliseconds in an int32.
TEXT_BYTES_MAX = 2**15 - 1  # The length of a text of Kafka's protocol is an int16.
SHOWN_BITS_MAX = 1024  # Python writes out 4300 digits at most.
_EPOCH, _MILLISECOND = datetime.fromtimestamp(0, UTC), timedelta(milliseconds=1)
_FIELD_NAME = re.compile(":[^:]*:")  # As in a structured array's buffer format.


def bytes_of(name: str, value: Any) -> bytes | None:  # noqa: ANN401  (whatever was given)
    """A key or a value: bytes, a buffer's bytes, or None."""
    if value is None or type(value) is bytes:
        return value
    if is_masked(value):
        raise TypeError(f"{name} is a masked array, whose mask would be lost")
    try:
        view = memoryview(value)
        data = None if has_objects(view) else view.tobytes()
    except (TypeError, ValueError):  # NumPy's, for times and text.
        raise TypeError(
            f"{name} is bytes, a buffer or None, not {type(value).__name__}"
            + ("; encode it" if isinstance(value, str) else "")
        ) from None
    if data is None:
        raise TypeError(f"{name} is an array of objects, which have no bytes of their own")
    return data


def has_objects(view: memoryview) -> bool:
    """Whether items are or contain Python objects: an O outside of field names."""
    return "O" in _FIELD_NAME.sub("", view.format)


def header_pairs(headers: Any) -> Headers:  # noqa: ANN401
    """Headers: pairs of a key (text or bytes) and bytes or None, or a mapping of them."""
    pairs = headers.items() if hasattr(headers, "items") else headers
    return tuple(map(_pair, iterator("headers", pairs, "a list of (key, value) pairs")))


def iterator(name: str, value: Any, allowed: str) -> Iterator[Any]:  # noqa: ANN401
    """An iterator over a list or another iterable; text is refused."""
    found: Iterator[Any] | None = None
    try:
        if not isinstance(value, str | bytes):
            found = iter(value)
    except TypeError:  # Arrays without dimensions raise it too, though they have the method.
        pass
    if found is None:
        raise TypeError(f"{name} is {allowed}, not {type(value).__name__}")
    return found


def _pair(pair: Any) -> tuple[bytes, bytes | None]:  # noqa: ANN401
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise TypeError(f"headers is a list of (key, value) pairs, and has {pair!r}")
    key, value = pair
    if isinstance(key, str):
        try:
            key = key.encode(
                errors="surrogateescape"
            )  # As consumers decode keys that are not UTF-8.
        except UnicodeEncodeError:
            raise ValueError(f"a header's key is {key!r}, which has no bytes in UTF-8") from None
    elif not isinstance(key, bytes | bytearray | memoryview):
        raise TypeError(f"a header's key is text or bytes, not {type(key).__name__}")
    found = bytes_of("a header's key", key) or b""
    return found, bytes_of(f"the header {found!r}", value)


def text(name: str, value: Any, *, is_secret: bool = False) -> str:  # noqa: ANN401
    """Text that Kafka's protocol can carry, unchanged. Errors do not show a secret."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is text, not {type(value).__name__}")
    try:
        size_bytes = len(value) if value.isascii() else len(value.encode())
    except UnicodeEncodeError:
        shown = "text" if is_secret else repr(value)
        raise ValueError(f"{name} is {shown}, which has no bytes in UTF-8") from None
    if size_bytes > TEXT_BYTES_MAX:
        raise ValueError(f"{name} has {size_bytes} bytes; it should have {TEXT_BYTES_MAX} at most")
    return value


def milliseconds_of(name: str, moment: datetime) -> int:
    """The milliseconds since 1970 of a time with a time zone."""
    if moment.tzinfo is None:
        raise ValueError(f"{name}: {moment} has no time zone; say which, e.g. with tzinfo=UTC")
    return (moment - _EPOCH) // _MILLISECOND


def topic_name(name: str, value: Any) -> str:  # noqa: ANN401
    """A valid topic name."""
    if not is_valid_topic_name(text(name, value)):
        raise ValueError(
            f"{name} is {value!r}; it should be 1 to {NAME_CHARACTERS_MAX} ASCII letters, digits, "
            "'.', '_' and '-', and neither '.' nor '..'"
        )
    return str(value)


def flag(name: str, value: Any) -> bool:  # noqa: ANN401
    """True or False. Other values are refused: their meaning would be a guess."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} is True or False, not {type(value).__name__}")
    return value


def function(name: str, value: Any) -> None:  # noqa: ANN401
    """A callable."""
    if not callable(value):
        raise TypeError(f"{name} is a function, not {type(value).__name__}")


def duration(name: str, seconds: Any, above: float | None = None) -> float:  # noqa: ANN401
    """Seconds: 0 or more, or above a given number, and at most SECONDS_MAX."""
    is_one = hasattr(seconds, "__float__") and not isinstance(seconds, bool | np.ndarray)
    if not is_one:
        raise TypeError(f"{name} is a number of seconds, not {type(seconds).__name__}")
    if not (seconds >= 0 if above is None else seconds > above):
        allowed = "0 or more" if above is None else f"above {above}"
        raise ValueError(f"{name} is {_shown(seconds)}; it should be {allowed}")
    if seconds > SECONDS_MAX:
        raise ValueError(f"{name} is {_shown(seconds)}; it should be {SECONDS_MAX} at most")
    return float(seconds)


def partition_name(name: str, pair: Any) -> TopicPartition:  # noqa: ANN401
    """A partition, as a pair of its topic and its number."""
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise TypeError(f"{name} has pairs of a topic and a partition, and not {pair!r}")
    topic, partition = pair
    return TopicPartition(
        topic_name("topic", topic), whole_number("partition", partition, 0, 2**31)
    )


def offsets_by_partition(name: str, offsets: Any) -> dict[TopicPartition, int]:  # noqa: ANN401
    """A mapping of pairs of a topic and a partition to offsets."""
    if not isinstance(offsets, Mapping):
        raise TypeError(
            f"{name} is a mapping of partitions to offsets, not {type(offsets).__name__}"
        )
    return {
        partition_name(name, pair): whole_number(f"the offset of {pair}", offset, 0, 2**63)
        for pair, offset in offsets.items()
    }


def text_by_name(name: str, texts: Any, *, are_secret: bool = False) -> dict[str, str]:  # noqa: ANN401
    """A mapping of names to text; None is empty. Errors show no text that may be secret."""
    found = {} if texts is None else texts
    if not isinstance(found, Mapping):
        raise TypeError(f"{name} is a mapping of names to text, not {type(found).__name__}")
    return {
        text(f"a name in {name}", key): text(f"{key} in {name}", found[key], is_secret=are_secret)
        for key in found
    }


def whole_number(name: str, number: Any, least: int, beyond: int) -> int:  # noqa: ANN401
    """A whole number in [least, beyond)."""
    try:
        found = None if isinstance(number, bool) else index(number)
    except TypeError:  # Arrays raise it too, though they have the method.
        found = None
    if found is None:
        raise TypeError(f"{name} is a whole number, not {type(number).__name__}")
    if not least <= found < beyond:
        raise ValueError(f"{name} is {_shown(found)}; it should be from {least} to {beyond - 1}")
    return found


def _shown(number: Any) -> Any:  # noqa: ANN401
    """A number for an error message: Python refuses to print thousands of digits."""
    if isinstance(number, int) and number.bit_length() > SHOWN_BITS_MAX:
        return f"a number of {number.bit_length()} bits"
    return number
