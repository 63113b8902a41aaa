"""A topic's schema: its form, and the changes that it allows."""

import json

import pytest

from smq.model.topic_schema import (
    COLUMNS_MAX,
    Column,
    ListOf,
    Struct,
    narrowing,
    parse_schema,
    written,
)

PRICE = '{"fields": [{"name": "price", "type": "double"}]}'
ALL = json.dumps(
    {
        "fields": [
            {"name": "price", "type": "double"},
            {"name": "tags", "type": {"list": "string"}},
            {"name": "buyer", "type": {"struct": [{"name": "id", "type": "int64"}]}},
            {"name": "sent", "type": "timestamp", "from": "timestamp"},
        ]
    }
)


def test_a_schema_is_its_columns_and_is_written_as_it_was() -> None:
    assert parse_schema(ALL) == (
        Column("price", "double", "price"),
        Column("tags", ListOf("string"), "tags"),
        Column("buyer", Struct((Column("id", "int64", "id"),)), "buyer"),
        Column("sent", "timestamp", "timestamp"),
    )
    assert json.loads(written(parse_schema(ALL))) == json.loads(ALL)
    assert parse_schema("") == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "it is not JSON"),
        ("[" * 50_000, "a schema has at most"),
        ("[]", "a schema is"),
        ('{"fields": []}', "a list of 1 to"),
        (json.dumps({"fields": [{"name": "a", "type": "bool"}] * (COLUMNS_MAX + 1)}), "1 to 200"),
        ('{"fields": [{"name": "a"}]}', "a field has"),
        ('{"fields": [{"name": "a b", "type": "bool"}]}', "no name of a column"),
        ('{"fields": [{"name": "_offset", "type": "bool"}]}', "no name of a column"),
        ('{"fields": [{"name": "Value", "type": "bool"}]}', "column of every topic"),
        ('{"fields": [{"name": "a", "type": "date"}]}', "is no type"),
        ('{"fields": [{"name": "a", "type": {"list": "date"}}]}', "is no type"),
        ('{"fields": [{"name": "a", "type": {"list": "bool", "x": 1}}]}', "is no type"),
        ('{"fields": [{"name": "a", "type": "bool"}, {"name": "A", "type": "bool"}]}', "twice"),
        ('{"fields": [{"name": "a", "type": "bool", "from": 1}]}', "no name of a column"),
        (PRICE.replace('"double"', '{"list": ' * 9 + '"bool"' + "}" * 9), "at most 5 deep"),
    ],
)
def test_an_invalid_schema_is_refused_with_a_sentence(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_schema(text)


def test_columns_are_added_and_not_removed_or_changed() -> None:
    assert narrowing("", PRICE) == ""
    assert narrowing(PRICE, ALL) == ""
    assert "lacks the column tags" in narrowing(ALL, PRICE)
    assert "lacks the column price" in narrowing(PRICE, "")
    for other in ("float", "int64", "string"):
        assert "changes the column price" in narrowing(PRICE, PRICE.replace("double", other))
