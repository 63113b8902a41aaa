"""Filters of records: what each is true of, and what compares with nothing."""

from collections.abc import Collection
from dataclasses import replace

import pytest

from smq.agent import filtering
from smq.agent.filtering import RecordFilter
from smq.agent.filters import parse_filter
from smq.agent.proto.mq_broker_pb2 import DataMessage, Header
from smq.agent.proto.mq_schema_pb2 import (
    DateValue,
    DecimalValue,
    ListValue,
    RecordValue,
    TimestampValue,
    TimeValue,
    Value as Recorded,
)
from smq.agent.read_records import ReadRecord
from smq.agent.value_bytes import PARSED_BYTES_MAX, last_named


def record(
    offset: int, key: bytes = b"", headers: tuple[Header, ...] = (), **fields: Recorded
) -> ReadRecord:
    value = RecordValue(fields=fields).SerializeToString()
    written = DataMessage(headers=headers).SerializeToString()
    return ReadRecord(key, value, offset * 10**6, offset, written)


BIG, TRUE = 2**53 + 1, Recorded(bool_value=True)
TWICE = (Header(key="h", value=b"x"), Header(key="h", value=b"y"))
MICROS, DAYS = TimestampValue(timestamp_micros=9), DateValue(days_since_epoch=9)
RECORDS = [
    record(0, b"a", n=Recorded(int32_value=5), s=Recorded(string_value="one"), b=TRUE),
    record(1, b"b", n=Recorded(int64_value=BIG), s=Recorded(bytes_value=b"two")),
    record(2, b"\xff", n=Recorded(double_value=5.5), s=Recorded(string_value="grün")),
    record(3, n=Recorded(float_value=0.5), s=Recorded(), b=Recorded(bool_value=False)),
    record(4, r=Recorded(record_value=RecordValue(fields={"n": Recorded(int64_value=7)}))),
    record(5, headers=TWICE, n=Recorded(string_value="5")),
    record(6, headers=(Header(key="h"),), at=Recorded(timestamp_value=MICROS)),
    record(7, d=Recorded(date_value=DAYS), t=Recorded(time_value=TimeValue(time_micros=9))),
    record(8, m=Recorded(decimal_value=DecimalValue()), l=Recorded(list_value=ListValue())),
    ReadRecord(offset=9, value=b"\xff\xff raw"),
]


@pytest.mark.parametrize(
    ("text", "offsets"),
    [
        ("n = 5", [0]),
        ("n > 5", [1, 2]),
        ("n <= 5.5", [0, 2, 3]),
        (f"n = {BIG}", [1]),
        (f"n = {BIG - 1}", []),
        ("n != 5", [1, 2, 3]),
        ("not n = 5", [1, 2, 3]),
        ("n in (5, 0.5)", [0, 3]),
        ("n not in (5, 0.5)", [1, 2]),
        ("n = '5'", [5]),
        ("n is null", [4, 6, 7, 8, 9]),
        ("s = 'two' or s = 'grün'", [1, 2]),
        ("s > 'one'", [1]),
        ("s in ('one', 'x')", [0]),
        ("s like 'gr_n'", [2]),
        ("s like '%o%'", [0, 1]),
        ("s is not null", [0, 1, 2]),
        ("b = true", [0]),
        ("b in (false)", [3]),
        ("b != true", [3]),
        ("r.n = 7", [4]),
        ("r.n.x is not null or n.x = 1", []),
        ("r is not null and m is null", [4]),
        ("r = 1 or m = 1 or l = 'x'", []),
        ("m is not null and l is not null", [8]),
        ("_key = 'a'", [0]),
        ("_key is null", [3, 4, 5, 6, 7, 8, 9]),
        ("_key like '_'", [0, 1]),
        ("_ts_ns < 1000000 and _value is null", [0]),
        ("_offset in (3, 4)", [3, 4]),
        ("header['h'] = 'y'", [5]),
        ("header['h'] is null and _offset > 5", [6, 7, 8, 9]),
        ("at = 9 or d = 9 or t = 9", [6, 7]),
        ("_value is not null", [9]),
        ("n = 5 or b = false", [0, 3]),
        ("n > 0 and (b is null or s = 'one')", [0, 1, 2]),
    ],
)
@pytest.mark.parametrize("parsed_bytes_max", [-1, PARSED_BYTES_MAX], ids=["large", "small"])
def test_a_filter_keeps_the_records_that_it_is_true_of(
    text: str, offsets: list[int], parsed_bytes_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filtering, "PARSED_BYTES_MAX", parsed_bytes_max)
    kept = RecordFilter(parse_filter(text)).keep(RECORDS)
    assert [each.offset for each in kept] == offsets


def test_a_large_record_is_looked_at_as_a_small_one() -> None:
    more = [Header(key=f"k{each}", value=bytes(10)) for each in range(2000)]
    fields = {f"f{each}": Recorded(string_value="x" * 20) for each in range(2000)}
    inner = Recorded(record_value=RecordValue(fields=fields | {"n": Recorded(int64_value=7)}))
    large = record(3, b"", (*TWICE, *more), **fields, r=inner, s=Recorded(string_value="y" * 10**5))
    for text in (
        "r.n = 7 and f1999 = 'x' * 20".replace("'x' * 20", repr("x" * 20)),
        "r is not null and r.f5 is not null and r.n.x is null and f0.x is null and none is null",
        "header['h'] = 'y' and header['k1999'] is not null and header['none'] is null",
        "s like 'yyy%' and _value is null",
    ):
        assert RecordFilter(parse_filter(text)).keep([large]) == [large]


def test_a_large_record_is_walked_once_for_all_places_of_a_level(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once for each of a hundred columns held the loop for a second."""
    walks: list[int] = []

    def counted(message: bytes, number: int, names: Collection[str]) -> dict[str, bytes]:
        walks.append(len(names))
        return last_named(message, number, names)

    monkeypatch.setattr(filtering, "last_named", counted)
    inner = RecordValue(fields={"a": Recorded(int64_value=1)})
    text = Recorded(string_value="y" * (PARSED_BYTES_MAX + 1))
    large = record(3, b"", s=text, r=Recorded(record_value=inner), i=Recorded(int32_value=2))
    tests = ["i = 2", "r is not null", "s is not null", "r.a = 1", "r.b is null", "t is null"]
    assert RecordFilter(parse_filter(" and ".join(tests))).keep([large]) == [large]
    assert walks == [4, 2]


def test_plain_numbers_are_raw_values_though_protobuf_parses_them() -> None:
    numbers = [ReadRecord(value=each) for each in (b"50000", b"123456789", b"0/34")]
    for text, kept in (("_value is not null", numbers), ("_value = '50000'", numbers[:1])):
        assert RecordFilter(parse_filter(text)).keep(numbers) == kept


def test_a_filter_of_no_records_keeps_none() -> None:
    assert RecordFilter(parse_filter("a = 1")).keep([]) == []


def test_a_filter_leaves_records_as_they_are() -> None:
    before = [*map(replace, RECORDS)]
    RecordFilter(parse_filter("n = 1 and header['h'] = 'x' and nothing.else = 1")).keep(RECORDS)
    assert before == RECORDS
