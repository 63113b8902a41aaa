"""Ranges and preconditions as values."""

import pytest

from smq.filer.store import CREATE, OVERWRITE, Facts, IfMatch
from smq.front.conditions import (
    BadCondition,
    ByteSpan,
    Unsatisfiable,
    combined,
    etag,
    is_another,
    is_unchanged,
    names_this,
    span,
    write_mode,
)

FACTS = Facts("a/b", 10, "v1", 0)


def test_an_etag_is_the_version_in_quotes_once() -> None:
    assert etag(FACTS) == '"v1"'
    assert etag(FACTS._replace(version='"v1"')) == '"v1"'


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("bytes=0-3", ByteSpan(0, 4)),
        ("bytes=3-", ByteSpan(3, 7)),
        ("bytes=9-9", ByteSpan(9, 1)),
        ("bytes=4-1000", ByteSpan(4, 6)),
        ("bytes=-3", ByteSpan(7, 3)),
        ("bytes=-1000", ByteSpan(0, 10)),
        (" bytes=0-0 ", ByteSpan(0, 1)),
    ],
)
def test_a_range_is_cut_to_the_object(header: str, expected: ByteSpan) -> None:
    assert span({"range": header}, FACTS) == expected


@pytest.mark.parametrize(
    "header",
    ["bytes=-", "bytes=5-3", "bytes=0-1,3-4", "lines=0-1", "bytes=a-b", "0-1", "bytes=1-2-3"],
)
def test_a_header_that_is_no_single_range_means_the_whole_object(header: str) -> None:
    assert span({"range": header}, FACTS) is None
    assert span({}, FACTS) is None


@pytest.mark.parametrize("header", ["bytes=10-", "bytes=10-20", "bytes=-0"])
def test_a_range_behind_the_end_cannot_be_satisfied(header: str) -> None:
    with pytest.raises(Unsatisfiable):
        span({"range": header}, FACTS)


@pytest.mark.parametrize("header", ["bytes=0-", "bytes=0-0", "bytes=-1"])
def test_of_an_empty_object_there_is_no_range(header: str) -> None:
    with pytest.raises(Unsatisfiable):
        span({"range": header}, FACTS._replace(length=0))


def test_if_range_names_the_version_the_range_is_of() -> None:
    assert span({"range": "bytes=0-3", "if-range": '"v1"'}, FACTS) == ByteSpan(0, 4)
    for other in ('"v2"', 'W/"v1"', "Sat, 21 Nov 2026 14:21:21 GMT"):
        assert span({"range": "bytes=0-3", "if-range": other}, FACTS) is None


def test_a_put_writes_creates_or_replaces_a_version() -> None:
    assert write_mode({}, FACTS) == OVERWRITE
    assert write_mode({"if-none-match": "*"}, FACTS) == CREATE
    assert write_mode({"if-match": '"v1"'}, FACTS) == IfMatch("v1")
    assert write_mode({"if-match": '"v0", "v1"'}, FACTS) == IfMatch("v1")
    assert write_mode({"if-match": "*"}, FACTS) == IfMatch("v1")


@pytest.mark.parametrize("tag", ['"v2"', 'W/"v1"', "v1", "*"])
def test_a_put_over_what_is_not_there_has_no_mode(tag: str) -> None:
    existing = None if tag == "*" else FACTS
    assert write_mode({"if-match": tag}, existing) is None


@pytest.mark.parametrize(
    "headers", [{"if-none-match": '"v1"'}, {"if-match": "*", "if-none-match": "*"}]
)
def test_contradictory_conditions_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(BadCondition):
        write_mode(headers, FACTS)


def test_headers_of_several_lines_are_lists() -> None:
    assert combined([]) == {}
    lines = [("a", "1"), ("b", "2"), ("a", "3")]
    assert combined(lines) == {"a": "1, 3", "b": "2"}


def test_lists_of_etags_weak_ones_for_reads_only() -> None:
    assert names_this('"x", "v1"', FACTS)
    assert not names_this('W/"v1"', FACTS)
    assert is_unchanged({"if-none-match": 'W/"v1"'}, FACTS)
    assert is_unchanged({"if-none-match": "*"}, FACTS)
    assert not is_unchanged({"if-none-match": '"v2"'}, FACTS)
    assert not is_unchanged({}, FACTS)
    assert is_another({"if-match": '"v2"'}, FACTS)
    assert not is_another({"if-match": '"v1"'}, FACTS)
    assert not is_another({}, FACTS)
