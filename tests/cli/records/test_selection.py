"""Filters and templates of records."""

import json
from dataclasses import dataclass

import pytest

from smq.cli.records.selection import Counts, Selection, Template, chosen, field_of, pattern


@dataclass
class Given:
    value: memoryview | None = None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    topic: str = "t"
    partition: int = 0
    offset: int = 5
    timestamp_ms: int = 1500


def given(value: bytes | None = None, key: bytes | None = None, **headers: bytes) -> Given:
    view = None if value is None else memoryview(value)
    return Given(view, key, tuple(headers.items()))


def test_everything_is_selected_unless_something_is_asked_for() -> None:
    assert Selection().has(given())
    assert not Selection(key=pattern("")).has(given())
    assert Selection(value=pattern("b")).has(given(b"abc"))
    assert not Selection(value=pattern("^b")).has(given(b"abc"))
    assert Selection(headers=[("a", b"1")]).has(given(a=b"1", b=b"2"))
    assert not Selection(headers=[("a", b"1")]).has(given(a=b"2"))


def test_an_empty_key_or_value_is_matched_and_a_missing_one_is_not() -> None:
    """Use fault 9."""
    for text, expected in (("^$", True), ("", True), ("a", False)):
        assert Selection(key=pattern(text)).has(given(key=b"")) == expected
        assert Selection(value=pattern(text)).has(given(b"")) == expected
        assert not Selection(key=pattern(text)).has(given())
        assert not Selection(value=pattern(text)).has(given())


def test_each_header_of_a_repeated_name_is_looked_at() -> None:
    """Use fault 9."""
    record = Given(headers=(("a", b"1"), ("a", b"2"), ("b", None)))
    assert Selection(headers=[("a", b"1")]).has(record)
    assert Selection(headers=[("a", b"2"), ("a", b"1")]).has(record)
    assert not Selection(headers=[("a", b"1"), ("a", b"3")]).has(record)
    assert not Selection(headers=[("b", b"")]).has(record)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("value.a.b", 1),
        ("value.list.1", "y"),
        ("value.list.7", None),
        ("value.a.b.c", None),
        ("value.none", None),
        ("key.id", None),
        ("size", 36),
        ("time", "1970-01-01T00:00:01.500+00:00"),
    ],
)
def test_parts_of_json_are_fields(name: str, found: object) -> None:
    assert field_of(given(b'{"a": {"b": 1}, "list": ["x", "y"]}', b"k"), name) == found


def test_a_template_prints_bytes_as_they_are() -> None:
    line = Template(r"{offset}\t{key}{value}|{headers}|{value.x}").line(
        given(b"\xff", None, h=b"1")
    )
    assert line == b'5\t\xff|[["h", "1"]]|'


@pytest.mark.parametrize("timestamp_ms", [2**63 - 1, -(2**63), -1])
def test_any_timestamp_can_be_printed(timestamp_ms: int) -> None:
    record = given(b"v")
    record.timestamp_ms = timestamp_ms
    assert Template("{time}{timestamp}").line(record).endswith(b"%d" % timestamp_ms)


def test_chosen_fields_with_any_bytes_are_json() -> None:
    assert chosen(given(b"\xff"), ["value", "offset"]) == (
        b'{"value": {"base64": "/w=="}, "offset": 5}\n'
    )


@pytest.mark.parametrize("text", ["{", "}", "{key!r}", "{key:>5}", "{}", "{topic.x}"])
def test_a_template_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        Template(text)


def test_counts_keep_the_range_of_times() -> None:
    counts = Counts()
    for record in (given(b"ab"), given(None, b"k")):
        counts.add(record)
    (row,) = counts.rows()
    assert (row["records"], row["bytes"], row["nulls"]) == (2, 3, 1)


def test_headers_with_any_names_are_json() -> None:
    """Awkward records: a name that is not UTF-8 made lines that no JSON parser reads."""
    record = Given(headers=(("\udcff", b"\xff"), ("a", None)))
    expected = [[{"base64": "/w=="}, {"base64": "/w=="}], ["a", None]]
    assert json.loads(chosen(record, ["headers"])) == {"headers": expected}
    assert json.loads(Template("{headers}").line(record)) == expected
