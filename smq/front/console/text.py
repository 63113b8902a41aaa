"""Formats bytes, numbers and times for people. Record bytes and names are untrusted.

The templates escape HTML. This module makes characters visible that would hide or reverse text. It
cuts bytes and text to a bound before it makes anything of them: one byte may become ten letters.
"""

import json
import re
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from smq.model.references import HEADER as REFERENCE_HEADER

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
HEX_BYTES = 512  # Shown of binary data.
SHOWN_BYTES_MAX = 256 * 1024  # Of a key, a header or a value.
PARSED_BYTES_MAX = 64 * 1024  # Of JSON: the parser holds the GIL. What is longer is not indented.
INDENTED_LETTERS_MAX = 16 * PARSED_BYTES_MAX  # Lists within lists grow with their depth.
NAME_LETTERS = 1000  # Of a name: those of clients and groups may have 32,767 bytes.
CONTENT_TYPE = "content-type"
_KINDS_BY_TYPE = {
    b"application/vnd.apache.arrow.stream": "Arrow",
    b"application/x-npy": "NumPy",
    b"avro/binary": "Avro",
    b"application/avro": "Avro",
}
_KINDS_BY_START = {b"\x93NUMPY": "NumPy", b"Obj\x01": "Avro", b"\xff\xff\xff\xff": "Arrow"}
DECODED_KINDS = frozenset({"Arrow", "NumPy", "Avro"})  # Decoded in a subprocess.
PICTURES = 0x2400  # Unicode's symbols for control characters.
_CONTROLS = [chr(each) for each in range(0x20) if chr(each) not in "\n\r\t"]
_PERHAPS_HIDDEN = re.compile("[^ -~]+")

Headers = Sequence[tuple[str, bytes | None]]


class Shown(NamedTuple):
    """Bytes as text. `is_cut`: the text is truncated."""

    kind: str
    text: str
    is_cut: bool = False


def shown(data: bytes | None, size: int, headers: Headers = ()) -> Shown:
    """The beginning of a key or value of `size` bytes as one or more lines of text."""
    if data is None:
        return Shown("null", "null")
    if not data:
        return Shown("empty", "")
    data = data[:SHOWN_BYTES_MAX]
    is_cut = len(data) < size
    kind = kind_of(data, headers)
    if kind in DECODED_KINDS:
        return Shown(kind, _hex(data[:32]), is_cut)
    text = _text(data, is_cut=is_cut)
    if text is None:
        return Shown("binary", _hex(data[:HEX_BYTES]), is_cut or len(data) > HEX_BYTES)
    if kind == "reference":
        return Shown(kind, _spelled(text), is_cut)
    is_long = is_cut or len(data) > PARSED_BYTES_MAX
    is_json = text.lstrip()[:1] in {"{", "["} and (is_long or _parsed(text) is not None)
    return Shown("JSON" if is_json else "text", _spelled(text), is_cut)


def pretty(data: bytes | None, size: int, headers: Headers = ()) -> Shown:
    """The same with indented JSON, for a record's own page."""
    found = shown(data, size, headers)
    if data is None or found.kind != "JSON" or found.is_cut or len(data) > PARSED_BYTES_MAX:
        return found
    indented = _indented(_parsed(data.decode()))
    return found if indented is None else found._replace(text=_spelled(indented))


def kind_of(data: bytes, headers: Headers) -> str:
    """The format of the bytes, from headers or their beginning; "" if unknown."""
    for name, value in headers:
        if name == REFERENCE_HEADER:
            return "reference"
        if name.lower() == CONTENT_TYPE and value in _KINDS_BY_TYPE:
            return _KINDS_BY_TYPE[value]
    return next((kind for start, kind in _KINDS_BY_START.items() if data.startswith(start)), "")


def visible(text: str, letters_max: int = NAME_LETTERS) -> str:
    """Text with control and format characters, such as direction overrides, made visible. What is
    longer than `letters_max` is cut."""
    return _spelled(text if len(text) <= letters_max else f"{text[:letters_max]}…")


def _spelled(text: str) -> str:
    return text if text.isprintable() else _PERHAPS_HIDDEN.sub(_spelled_run, text)


def _spelled_run(found: re.Match[str]) -> str:
    run = found[0]
    return run if run.isprintable() else "".join(map(_spelled_letter, run))


def _spelled_letter(character: str) -> str:
    if character in "\n\t" or character.isprintable() or character == "\u3000":
        return character
    if character < " ":
        return chr(PICTURES + ord(character))
    if unicodedata.category(character) == "Zs":
        return " "
    return f"\\u{{{ord(character):x}}}"


def _text(data: bytes, *, is_cut: bool) -> str | None:
    """None if it is not text."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if not (is_cut and error.end >= len(data) and error.start >= len(data) - 3):
            return None
        text = data[: error.start].decode()  # The cut is within a character.
    controls = sum(map(text.count, _CONTROLS))
    return text if controls * 10 <= len(text) else None


def _parsed(text: str) -> object | None:
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found


def _indented(value: object) -> str | None:
    """None if it is too long or too deep."""
    pieces, left = list[str](), INDENTED_LETTERS_MAX
    try:
        for piece in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(value):
            pieces.append(piece)
            left -= len(piece)
            if left < 0:
                return None
    except RecursionError:
        return None
    return "".join(pieces)


def _hex(data: bytes) -> str:
    return data.hex(" ")


def size(count: float) -> str:
    """Bytes in units of 1024."""
    for unit in UNITS:
        if abs(count) < 1024 or unit == UNITS[-1]:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError


def number(count: float) -> str:
    """A number with thin spaces between groups of three digits."""
    return f"{count:,.0f}".replace(",", "\u202f")


def moment(time_ms: int) -> str:
    """A UTC time in milliseconds; the plain number if no calendar date represents it."""
    try:
        time = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(time_ms)
    return f"{time:%Y-%m-%d %H:%M:%S}.{time_ms % 1000:03d} UTC"


def seconds(span_s: float | None) -> str:
    """A duration in its largest unit; a dash if unknown."""
    if span_s is None:
        return "\u2013"
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if span_s >= 2 * length:
            return f"{span_s / length:.0f} {unit}"
    return f"{span_s:.0f} s" if span_s >= 10 else f"{span_s:.1f} s"
