"""Evaluates a filter on some records at once, on Arrow: a column for each place that it reads.

    records ──▶ columns of places ──pyarrow.compute──▶ true, false or null ──▶ those of true

The kind of a literal says how a place is read: a value of another kind compares as null. Whole
numbers and doubles have a column each, so that none is rounded.
"""

import operator
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from smq.agent.filters import (
    KEY,
    OFFSET,
    TS_NS,
    Both,
    ColumnPlace,
    Compared,
    Either,
    HeaderPlace,
    IsNull,
    Listed,
    Literal,
    Matched,
    Not,
    Place,
    PlaceTest,
    RecordPlace,
    Test,
    kind_of,
    places_of,
)
from smq.agent.proto.mq_broker_pb2 import DataMessage, Header
from smq.agent.proto.mq_schema_pb2 import RecordValue, Value as RecordedValue
from smq.agent.read_records import ReadRecord
from smq.agent.value_bytes import (
    FIELDS,
    LIST_NUMBER,
    PARSED_BYTES_MAX,
    RAW_FIELD,
    RECORD_NUMBER,
    VALUE,
    last_field,
    last_named,
)

_Path: TypeAlias = tuple[str, ...]
_Compare: TypeAlias = Callable[[Any, Any], pa.Array]
_COMPARE: Mapping[str, _Compare] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_INSIDE = {  # Of the kinds that are messages, the number in them.
    "timestamp_value": operator.attrgetter("timestamp_micros"),
    "date_value": operator.attrgetter("days_since_epoch"),
    "time_value": operator.attrgetter("time_micros"),
}
_INCOMPARABLE = {"decimal_value", "list_value", "record_value"}
_NESTED = {LIST_NUMBER, RECORD_NUMBER}
_OTHER = object()  # A value that is there, and compares with nothing.


class RecordFilter:
    """Tells which records a filter is true of."""

    def __init__(self, test: Test) -> None:
        self._test = test
        self._places = {*places_of(test)}
        self.place_count = len(self._places)

    def keep(self, records: Sequence[ReadRecord]) -> list[ReadRecord]:
        """Those of the records that it is true of."""
        if not records:
            return []
        found = pc.fill_null(_PlaceColumns(self._places, records).test(self._test), False)  # noqa: FBT003
        return [each for each, is_kept in zip(records, found.to_pylist(), strict=True) if is_kept]


class _PlaceColumns:
    """The places of some records."""

    def __init__(self, places: set[Place], records: Sequence[ReadRecord]) -> None:
        values: list[_Value] = []
        if paths := [each.path for each in places if isinstance(each, ColumnPlace)]:
            values = [_value_of(each, paths) for each in records]
        names = {each.name for each in places if isinstance(each, HeaderPlace)}
        headers = [_last_headers(names, each) for each in records] if names else []
        self._found = {each: _values(each, records, values, headers) for each in places}

    def test(self, test: Test) -> pa.Array:
        """What a test is of each record."""
        match test:
            case Both(tests):
                return reduce(pc.and_kleene, map(self.test, tests))
            case Either(tests):
                return reduce(pc.or_kleene, map(self.test, tests))
            case Not(inner):
                return pc.invert(self.test(inner))
            case _:
                return self._of_place(test)

    def _of_place(self, test: PlaceTest) -> pa.Array:
        match test:
            case IsNull(place):
                return pa.array([each is None for each in self._found[place]])
            case Matched(place, pattern):
                return pc.match_like(self._texts(place), pattern)
            case Listed(place, literals):
                return self._listed(place, literals)
            case Compared(place, sign, literal):
                return self._compared(place, _COMPARE[sign], literal)

    def _compared(self, place: Place, compare: _Compare, literal: Literal) -> pa.Array:
        match kind_of(literal):
            case "text":
                return compare(self._bytes(place), pa.scalar(_encoded(literal), pa.binary()))
            case "number":
                whole, doubles = self._numbers(place)
                if isinstance(literal, float):
                    whole = whole.cast(pa.float64(), safe=False)
                of_doubles = compare(doubles, pa.scalar(float(literal), pa.float64()))
                return pc.coalesce(compare(whole, pa.scalar(literal, whole.type)), of_doubles)
        return compare(self._of(place, bool, pa.bool_()), pa.scalar(literal, pa.bool_()))

    def _listed(self, place: Place, literals: Sequence[Literal]) -> pa.Array:
        match kind_of(literals[0]):
            case "text":
                return _is_in(self._bytes(place), map(_encoded, literals))
            case "number":
                whole, doubles = self._numbers(place)
                wholes = {int(each) for each in literals if isinstance(each, int)}
                of_doubles = _is_in(doubles, map(float, literals))
                return pc.coalesce(_is_in(whole, wholes), of_doubles)
        return _is_in(self._of(place, bool, pa.bool_()), literals)

    def _numbers(self, place: Place) -> tuple[pa.Array, pa.Array]:
        return self._of(place, int, pa.int64()), self._of(place, float, pa.float64())

    def _of(self, place: Place, kind: type, arrow: pa.DataType) -> pa.Array:
        found = self._found[place]
        return pa.array([each if type(each) is kind else None for each in found], arrow)

    def _bytes(self, place: Place) -> pa.Array:
        found = (
            each.encode() if type(each) is str else each if type(each) is bytes else None
            for each in self._found[place]
        )
        return pa.array(found, pa.binary())

    def _texts(self, place: Place) -> pa.Array:
        return pa.array(map(_text, self._found[place]), pa.string())


def _encoded(literal: Literal) -> bytes:
    return str(literal).encode("utf-8", "replace")


def _is_in(found: pa.Array, wanted: Iterable[object]) -> pa.Array:
    """Whether each is one of these; null is null."""
    is_in = pc.is_in(found, pa.array([*wanted], found.type))
    return pc.if_else(pc.is_valid(found), is_in, pa.scalar(None, pa.bool_()))


def _text(value: object) -> str | None:
    """A text; what is no UTF-8 is null."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None
    return value if isinstance(value, str) else None


def _values(
    place: Place,
    records: Sequence[ReadRecord],
    values: Sequence["_Value"],
    headers: Sequence[Mapping[str, bytes | None]],
) -> list[object]:
    match place:
        case ColumnPlace(path):
            return [_at(path, each) for each in values]
        case HeaderPlace(name):
            return [each.get(name) for each in headers]
        case RecordPlace(name):
            of_record: dict[str, Callable[[ReadRecord], object]] = {
                KEY: lambda record: record.key or None,
                TS_NS: lambda record: record.ts_ns,
                OFFSET: lambda record: record.offset,
            }
            return [*map(of_record[name], records)]


_Value: TypeAlias = RecordValue | Mapping[_Path, object]
"""A record's value; or what it has at some paths, if it is too large to be parsed."""


def _value_of(record: ReadRecord, paths: Collection[_Path]) -> _Value:
    if len(record.value) > PARSED_BYTES_MAX:
        return _in_bytes(paths, record)
    value: RecordValue = RecordValue.FromString(b"".join(record.record_value))
    return value


def _at(path: _Path, record: _Value) -> object:
    if not isinstance(record, RecordValue):
        return record.get(path)
    value: RecordedValue | None = None
    for at, name in enumerate(path):
        if value is not None:
            record = value.record_value
        if name not in record.fields:  # Reading one that is not there would add it.
            return None
        value = record.fields[name]
        if at + 1 < len(path) and value.WhichOneof("kind") != "record_value":
            return None
    return None if value is None else _plain(value)


def _plain(value: RecordedValue) -> object:
    kind = value.WhichOneof("kind")
    if kind is None:
        return None
    if kind in _INCOMPARABLE:
        return _OTHER
    found: object = getattr(value, kind)
    inside = _INSIDE.get(kind)
    return found if inside is None else inside(found)


def _in_bytes(paths: Collection[_Path], record: ReadRecord) -> dict[_Path, object]:
    """What is at each of these paths, as `_at` says it. Of a field that is there twice, at any
    depth, the last one counts alone."""
    if not record.is_typed:
        return {path: record.value for path in paths if [*path] == [RAW_FIELD]}
    found: dict[_Path, object] = {}
    _look(record.value, paths, 0, found)
    return found


def _look(data: bytes, paths: Collection[_Path], depth: int, found: dict[_Path, object]) -> None:
    """Find what is at paths that have led here: each message is walked once for all of them."""
    of_names: dict[str, list[_Path]] = defaultdict(list)
    for path in paths:
        of_names[path[depth]].append(path)
    for name, entry in last_named(data, FIELDS, of_names).items():
        kind, _ = last_field(last_field(entry, VALUE)[0].content)
        deeper = [each for each in of_names[name] if len(each) > depth + 1]
        if kind.number and len(deeper) < len(of_names[name]):
            is_nested = kind.number in _NESTED
            here = next(each for each in of_names[name] if len(each) == depth + 1)
            found[here] = _OTHER if is_nested else _plain(RecordedValue.FromString(kind.whole))
        if deeper and kind.number == RECORD_NUMBER:
            _look(kind.content, deeper, depth + 1, found)


def _last_headers(names: Collection[str], record: ReadRecord) -> dict[str, bytes | None]:
    """The last header of each of these names: a record may have as many as it has bytes."""
    if len(record.headers) <= PARSED_BYTES_MAX:
        headers: Iterable[Header] = DataMessage.FromString(record.headers).headers
    else:
        number = DataMessage.HEADERS_FIELD_NUMBER
        headers = map(Header.FromString, last_named(record.headers, number, names).values())
    return {
        each.key: each.value if each.HasField("value") else None
        for each in headers
        if each.key in names
    }
