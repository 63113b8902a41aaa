"""The grammar of filters: what it reads, and the sentence for what it does not."""

from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from smq.agent.filters import (
    CHARACTERS_MAX,
    DEPTH_MAX,
    LITERALS_MAX,
    TESTS_MAX,
    Both,
    ColumnPlace,
    Compared,
    Either,
    HeaderPlace,
    IsNull,
    Listed,
    Matched,
    Not,
    RecordPlace,
    parse_filter,
    places_of,
)
from smq.model.record_types import RecordField, RecordFields, RecordList

FIELDS = (
    RecordField("id", "INT64"),
    RecordField("price", "DOUBLE"),
    RecordField("name", "STRING"),
    RecordField("paid", "BOOL"),
    RecordField("at", "TIMESTAMP"),
    RecordField("sum", "DECIMAL"),
    RecordField("tags", "STRING", repeated=True),
    RecordField("list", RecordList("STRING")),
    RecordField("buyer", RecordFields((RecordField("age", "INT32"),))),
)
ID = ColumnPlace(("id",))


@pytest.mark.parametrize(
    ("text", "test"),
    [
        ("id = 1", Compared(ID, "=", 1)),
        ("id<>-2", Compared(ID, "!=", -2)),
        ("price >= 1.5e3", Compared(ColumnPlace(("price",)), ">=", 1500.0)),
        ("paid = TRUE", Compared(ColumnPlace(("paid",)), "=", True)),
        ("name = 'O''Hara'", Compared(ColumnPlace(("name",)), "=", "O'Hara")),
        ("\"name\" LIKE 'a%'", Matched(ColumnPlace(("name",)), "a%")),
        ("buyer.age < 3", Compared(ColumnPlace(("buyer", "age")), "<", 3)),
        ("id not in (1, 2)", Not(Listed(ID, (1, 2)))),
        ("tags is NOT null", Not(IsNull(ColumnPlace(("tags",))))),
        ("_key = 'k'", Compared(RecordPlace("_key"), "=", "k")),
        ("_offset > 5", Compared(RecordPlace("_offset"), ">", 5)),
        ("header['Trace'] is null", IsNull(HeaderPlace("Trace"))),
        ("_value is null", IsNull(ColumnPlace(("_value",)))),
    ],
)
def test_a_test_of_a_place_is_read(text: str, test: object) -> None:
    assert parse_filter(text, FIELDS) == test


def test_and_binds_more_than_or_and_not_more_than_both() -> None:
    one, two, three = (Compared(ID, "=", each) for each in (1, 2, 3))
    assert parse_filter("id=1 or not id=2 and id=3") == Either((one, Both((Not(two), three))))
    assert parse_filter("(id=1 or id=2) and id=3") == Both((Either((one, two)), three))


def test_a_filter_names_its_places() -> None:
    test = parse_filter("not (a = 1 or header['h'] like 'x') and _key in ('k')")
    assert [*places_of(test)] == [ColumnPlace(("a",)), HeaderPlace("h"), RecordPlace("_key")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("id", "at character 3: a comparison, IN, LIKE or IS NULL belongs there, not the end"),
        ("id =", "a number, a text in single quotes, true or false belongs there"),
        ("id = 1 id", "at character 8: the end, AND or OR belongs there, not 'id'"),
        ("id = 1)", "not '\\)'"),
        ("(id = 1", "'\\)' belongs there, not the end"),
        ("name = 'a", "at character 8"),
        ("id ~ 1", "at character 4: '~' begins nothing"),
        ("header[name] = 'x'", "a header's name in single quotes"),
        ("nothing = 1", "there is no column nothing"),
        ("buyer.name = 'x'", "there is no column buyer.name"),
        ("id.x = 1", "id is no record"),
        ("id = 'x'", "id is INT64, and is compared with a number, not a text"),
        ("paid = 1", "paid is BOOL, and is compared with a truth value, not a number"),
        ("name = true", "not a truth value"),
        ("sum = 1", "sum is DECIMAL: a filter asks only whether that is null"),
        ("buyer = 1", "buyer is a record or a list"),
        ("tags = 'x'", "tags is LIST"),
        ("list = 'x'", "list is a record or a list"),
        ("_key = 1", "_key is compared with a text, not a number"),
        ("_ts_ns > 1.5", "_ts_ns is compared with a whole number"),
        ("price in (1, 'x')", "price is DOUBLE"),
        ("id like 3", "LIKE takes a text"),
        (f"id = {2**63}", "a whole number has 64 bits"),
    ],
)
def test_a_filter_that_does_not_fit_its_topic_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_filter(text, FIELDS)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a = 1" + " " * CHARACTERS_MAX, "characters"),
        ("not " * DEPTH_MAX + "a = 1", "deep"),
        ("(" * 1000 + "a = 1", "deep"),
        (" or ".join(["a=1"] * (TESTS_MAX + 1)), "more than 100 tests"),
        (f"a in ({','.join('1' * (LITERALS_MAX + 1))})", "more than 500 literals"),
        ("a in (1, 'x')", "more than one kind"),
        ("a like '%a%a%a%a%'", "at most 4 times % and 8 times _"),
        (" or ".join(["a like 'x%'"] * 9), "more than 8 patterns"),
    ],
)
def test_a_filter_has_bounds(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_filter(text)


@given(
    st.text(max_size=60)
    | st.lists(
        st.sampled_from(
            [
                "a",
                "'x'",
                "1",
                "(",
                ")",
                "and",
                "or",
                "not",
                "in",
                "is",
                "null",
                "like",
                ",",
                ".",
                "=",
                "header",
                "[",
                "]",
                "_key",
                '"q"',
                "<",
                "true",
            ]
        ),
        max_size=12,
    ).map(" ".join)
)
def test_garbage_raises_its_own_error_only(text: str) -> None:
    with suppress(ValueError):
        parse_filter(text, FIELDS)
