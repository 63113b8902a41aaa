"""Arguments as they are kept, or an error that names argument, value and what is allowed."""

from collections.abc import Iterable
from typing import Any

from smq.wire.records import Headers


def bytes_of(name: str, value: Any) -> bytes | None:  # noqa: ANN401  (whatever was given)
    """A key or a value: bytes, another buffer's bytes, or None."""
    if value is None or type(value) is bytes:
        return value
    try:
        return memoryview(value).tobytes()
    except TypeError:
        raise TypeError(
            f"{name} is bytes, a buffer or None, not {type(value).__name__}"
            + ("; encode it" if isinstance(value, str) else "")
        ) from None


def header_pairs(headers: Any) -> Headers:  # noqa: ANN401
    """Headers: pairs of a key (text or bytes) and bytes or None, or a mapping of them."""
    pairs = headers.items() if hasattr(headers, "items") else headers
    if not isinstance(pairs, Iterable) or isinstance(pairs, str | bytes):
        raise TypeError(f"headers is a list of (key, value) pairs, not {type(headers).__name__}")
    return tuple(_pair(each) for each in pairs)


def _pair(pair: Any) -> tuple[bytes, bytes | None]:  # noqa: ANN401
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise TypeError(f"headers is a list of (key, value) pairs, and has {pair!r}")
    key, value = pair
    if isinstance(key, str):
        key = key.encode()
    found = bytes_of("a header's key", key)
    if found is None:
        raise TypeError("a header's key is text or bytes, not None")
    return found, bytes_of(f"the header {key!r}", value)


def duration(name: str, seconds: Any, above: float | None = None) -> float:  # noqa: ANN401
    """Seconds: 0 or more, or above a number."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError(f"{name} is a number of seconds, not {type(seconds).__name__}")
    if not (seconds >= 0 if above is None else seconds > above):
        allowed = "0 or more" if above is None else f"above {above}"
        raise ValueError(f"{name} is {seconds}; it should be {allowed}")
    return seconds


def whole_number(name: str, number: Any, least: int, beyond: int) -> int:  # noqa: ANN401
    """A whole number in [least, beyond)."""
    if isinstance(number, bool) or not hasattr(number, "__index__"):
        raise TypeError(f"{name} is a whole number, not {type(number).__name__}")
    found = int(number)
    if not least <= found < beyond:
        raise ValueError(f"{name} is {found}; it should be from {least} to {beyond - 1}")
    return found
