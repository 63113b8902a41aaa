"""Reads SeaweedMQ's RecordValues as rows of typed columns: a reader of the protobuf message alone.

    RecordValue{fields map<string,Value>=1}, its entries {name=1, Value=2}
    Value oneof: bool=1 int32=2 int64=3 float=4 double=5 bytes=6 string=7 timestamp=8 date=9
                 decimal=10 time=11 list=14 record=15

The bytes are untrusted. Only what the columns name is read, as protobuf reads it: of fields that
are there twice the last one counts, and messages are merged. A field that its message does not have
makes the value a misfit: plain text, as `50000`, may be a message of such fields alone. int32 fits
int64, and float fits double, as where records are published (`smq.agent.records`).

The sealer needs no protobuf for it, which is an extra.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from struct import Struct as Packed
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from smq.model.topic_schema import Column, Kind, ListOf, Struct
from smq.sealer.arrow_value import leaf_count
from smq.sealer.years import DAY_MAX, DAY_MIN, DAY_MS, within_years

DECIMAL_DIGITS, DECIMAL_SCALE = 38, 18  # Of each column, as in SeaweedMQ's own files.
_DECIMAL_BYTES_MAX = 16
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_TAG_END, _VARINT_BITS = 2**32, 70
_BOOL, _INT32, _INT64, _FLOAT, _DOUBLE, _BYTES, _STRING = range(1, 8)
_TIMESTAMP, _DATE, _DECIMAL, _TIME, _LIST, _RECORD = 8, 9, 10, 11, 14, 15
_WIRE = {
    **dict.fromkeys((_BOOL, _INT32, _INT64), _VARINT),
    _FLOAT: _FIXED32,
    _DOUBLE: _FIXED64,
    **dict.fromkeys((_BYTES, _STRING), _LENGTH),
    **dict.fromkeys((_TIMESTAMP, _DATE, _DECIMAL, _TIME, _LIST, _RECORD), _LENGTH),
}
_VALUES = {1: _LENGTH}  # Of a RecordValue its entries, of a ListValue its items.
_ENTRY = {1: _LENGTH, 2: _LENGTH}
_IN_TIMESTAMP = {1: _VARINT, 2: _VARINT}
_IN_DECIMAL = {1: _LENGTH, 2: _VARINT, 3: _VARINT}
_NUMBER = {1: _VARINT}  # In a date, and in a time.
_FLOAT32, _FLOAT64 = Packed("<f"), Packed("<d")


class RecordMisfit(ValueError):
    """A value is no RecordValue of these columns."""


class _MessagePart(NamedTuple):
    """Bytes of a message."""

    data: bytes
    start: int
    end: int

    def bytes(self) -> bytes:
        """The bytes alone."""
        return self.data[self.start : self.end]


def _merged(parts: Sequence[_MessagePart]) -> _MessagePart:
    """The parts of one message: protobuf reads them as if they were joined."""
    if len(parts) == 1:
        return parts[0]
    data = b"".join([each.bytes() for each in parts])
    return _MessagePart(data, 0, len(data))


# A Value: which of its fields it has, 0 for none, and that as it is in the message.
_Found: TypeAlias = tuple[int, Any]
_Convert: TypeAlias = Callable[[_Found], Any]


class RecordValues:
    """Reads the values of a topic. Of one that fits, objects in lists have at most `cost_max`
    columns together."""

    def __init__(self, columns: Sequence[Column], types: pa.Schema, cost_max: int) -> None:
        self._types, self._cost_max = types, cost_max
        self._left = 0
        self._places = {each.source.encode(): at for at, each in enumerate(columns)}
        self._converts = [
            self._convert(each.type, type_)
            for each, type_ in zip(columns, types.types, strict=True)
        ]

    def read(self, values: Sequence[bytes]) -> tuple[pa.Table, list[int]]:
        """The rows of the values that fit, and which ones these are."""
        rows, fitting = [], []
        for number, value in enumerate(values):
            self._left = self._cost_max
            try:
                rows.append(_row(_MessagePart(value, 0, len(value)), self._places, self._converts))
            except RecordMisfit:
                continue
            fitting.append(number)
        columns = zip(*rows, strict=True) if rows else [()] * len(self._types)
        arrays = [
            pa.array(column, type_)
            for column, type_ in zip(columns, self._types.types, strict=True)
        ]
        return pa.table(arrays, self._types), fitting

    def _convert(self, kind: Kind, type_: pa.DataType) -> _Convert:
        match kind:
            case ListOf(items):
                return self._list(self._convert(items, type_.value_type), leaf_count(type_))
            case Struct(fields):
                return self._struct(fields, type_)
            case str():
                return _PLAIN[kind]

    def _list(self, convert: _Convert, cost: int) -> _Convert:
        def list_of(found: _Found) -> list[Any] | None:
            number, part = found
            if not number:
                return None
            _require(number == _LIST)
            items = []
            for _, item in _fields(part, _VALUES):
                self._left -= cost
                _require(self._left >= 0)
                items.append(convert(_value(item)))
            return items

        return list_of

    def _struct(self, columns: Sequence[Column], type_: pa.DataType) -> _Convert:
        places = {each.source.encode(): at for at, each in enumerate(columns)}
        names = [each.name for each in columns]
        converts = [
            self._convert(each.type, type_.field(at).type) for at, each in enumerate(columns)
        ]

        def object_of(found: _Found) -> dict[str, Any] | None:
            number, part = found
            if not number:
                return None
            _require(number == _RECORD)
            row = zip(names, _row(part, places, converts), strict=True)
            return {name: value for name, value in row if value is not None}  # Nulls take memory.

        return object_of


def _require(holds: bool) -> None:  # noqa: FBT001  (like `assert`)
    if not holds:
        raise RecordMisfit


def _row(
    part: _MessagePart, places: Mapping[bytes, int], converts: Sequence[_Convert]
) -> list[Any]:
    """The fields of a RecordValue, null where it has none."""
    found: list[Any] = [None] * len(converts)
    for _, entry in _fields(part, _VALUES):
        name, parts = b"", []
        for field, inner in _fields(entry, _ENTRY):
            if field == 1:
                name = inner.bytes()
            else:
                parts.append(inner)
        at = places.get(name)
        if at is not None:
            found[at] = converts[at](_value(_merged(parts))) if parts else None
    return found


def _value(part: _MessagePart) -> _Found:
    found = 0
    contents: list[Any] = []
    for number, content in _fields(part, _WIRE):
        if number != found or number < _TIMESTAMP:
            contents.clear()
        contents.append(content)
        found = number
    if found >= _TIMESTAMP:
        return found, _merged(contents)
    return found, contents[0] if contents else None


def _fields(part: _MessagePart, wires: Mapping[int, int]) -> Iterator[tuple[int, Any]]:
    """The fields of a message that has these, and how they are written: their number and their
    content: a number, a part, or the bytes of a fixed size."""
    data, at, end = part
    while at < end:
        tag = data[at]
        at += 1
        if tag >= 0x80:
            tag, at = _varint(data, at - 1)
        _require(8 <= tag < _TAG_END)
        number, wire = tag >> 3, tag & 7
        _require(wires.get(number) == wire)
        content: Any
        if wire in {_LENGTH, _VARINT}:
            content, at = _varint(data, at)
            if wire == _LENGTH:
                content, at = _MessagePart(data, at, at + content), at + content
        else:
            size = 4 if wire == _FIXED32 else 8
            content, at = data[at : at + size], at + size
        _require(at <= end)
        yield number, content


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        _require(at < len(data) and shift < _VARINT_BITS)
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _signed(value: int, bits: int) -> int:
    """The number that a varint has in this many bits."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _inner(part: _MessagePart, wires: Mapping[int, int], number: int, bits: int) -> int:
    """A whole number within a message; 0: it is not there."""
    found = 0
    for field, content in _fields(part, wires):
        if field == number:
            found = content
    return _signed(found, bits)


def _bool(found: _Found) -> bool | None:
    number, content = found
    _require(number in {0, _BOOL})
    return content & (2**64 - 1) != 0 if number else None


def _int32(found: _Found) -> int | None:
    number, content = found
    _require(number in {0, _INT32})
    return _signed(content, 32) if number else None


def _int64(found: _Found) -> int | None:
    number, content = found
    _require(number in {0, _INT32, _INT64})
    return _signed(content, 32 if number == _INT32 else 64) if number else None


def _float(found: _Found) -> float | None:
    number, content = found
    _require(number in {0, _FLOAT})
    return _FLOAT32.unpack(content)[0] if number else None


def _double(found: _Found) -> float | None:
    number, content = found
    if number == _DOUBLE:
        return float(_FLOAT64.unpack(content)[0])
    return _float(found)


def _bytes(found: _Found) -> bytes | None:
    number, content = found
    _require(number in {0, _BYTES})
    return content.bytes() if number else None


def _string(found: _Found) -> str | None:
    number, content = found
    _require(number in {0, _STRING})
    try:
        return str(content.bytes(), "utf-8") if number else None
    except UnicodeDecodeError:
        raise RecordMisfit from None


def _timestamp(found: _Found) -> int | None:
    number, content = found
    _require(number in {0, _TIMESTAMP})
    if not number:
        return None
    micros = _inner(content, _IN_TIMESTAMP, 1, 64)
    _require(within_years(micros) == micros)
    return micros


def _date(found: _Found) -> int | None:
    number, content = found
    _require(number in {0, _DATE})
    if not number:
        return None
    days = _inner(content, _NUMBER, 1, 32)
    _require(DAY_MIN <= days <= DAY_MAX)
    return days


def _time(found: _Found) -> int | None:
    number, content = found
    _require(number in {0, _TIME})
    if not number:
        return None
    micros = _inner(content, _NUMBER, 1, 64)
    _require(0 <= micros < DAY_MS * 1000)
    return micros


def _decimal(found: _Found) -> Decimal | None:
    number, content = found
    _require(number in {0, _DECIMAL})
    if not number:
        return None
    digits = b""
    for field, inner in _fields(content, _IN_DECIMAL):
        if field == 1:
            digits = inner.bytes()
    precision, scale = (_inner(content, _IN_DECIMAL, each, 32) for each in (2, 3))
    _require(0 <= scale <= precision <= DECIMAL_DIGITS and len(digits) <= _DECIMAL_BYTES_MAX)
    unscaled = int.from_bytes(digits, signed=True)
    _require(precision > 0 and abs(unscaled) < 10**precision)
    if scale <= DECIMAL_SCALE:
        unscaled *= 10 ** (DECIMAL_SCALE - scale)
    else:
        unscaled, rest = divmod(unscaled, 10 ** (scale - DECIMAL_SCALE))
        _require(rest == 0)
    _require(abs(unscaled) < 10**DECIMAL_DIGITS)
    return Decimal(f"{unscaled}e-{DECIMAL_SCALE}")


_PLAIN: Mapping[str, _Convert] = {
    "bool": _bool,
    "int32": _int32,
    "int64": _int64,
    "float": _float,
    "double": _double,
    "bytes": _bytes,
    "string": _string,
    "timestamp": _timestamp,
    "date": _date,
    "time": _time,
    "decimal": _decimal,
}
