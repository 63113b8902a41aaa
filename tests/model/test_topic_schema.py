"""A topic's schema: its form, and the changes that it allows."""

import json

import pytest

from smq.model.topic_schema import (
    COLUMNS_MAX,
    Column,
    ListOf,
    Struct,
    check_given,
    has_record_values,
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
        ("[" * 30_000, "it is not JSON"),
        ("[" * 50_000, "a schema has at most"),
        ("[]", "a schema is"),
        ('{"fields": []}', "a list of 1 to"),
        (json.dumps({"fields": [{"name": "a", "type": "bool"}] * (COLUMNS_MAX + 1)}), "1 to 200"),
        ('{"fields": [{"name": "a"}]}', "a field has"),
        ('{"fields": [{"name": "a b", "type": "bool"}]}', "no name of a column"),
        ('{"fields": [{"name": "_offset", "type": "bool"}]}', "no name of a column"),
        ('{"fields": [{"name": "_", "type": "bool"}]}', "no name of a column"),
        ('{"fields": [{"name": "a", "type": "bool"}], "values": "Avro"}', "left out for JSON"),
        ('{"fields": [{"name": "Value", "type": "bool"}]}', "column of every topic"),
        ('{"fields": [{"name": "a", "type": "uuid"}]}', "is no type"),
        ('{"fields": [{"name": "a", "type": {"list": "uuid"}}]}', "is no type"),
        ('{"fields": [{"name": "a", "type": {"list": "bool", "x": 1}}]}', "is no type"),
        ('{"fields": [{"name": "a", "type": "bool"}, {"name": "A", "type": "bool"}]}', "twice"),
        ('{"fields": [{"name": "a", "type": "bool", "from": 1}]}', "no name of a column"),
        (PRICE.replace('"double"', '{"list": ' * 9 + '"bool"' + "}" * 9), "at most 5 deep"),
    ],
)
def test_an_invalid_schema_is_refused_with_a_sentence(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        check_given(text)


def test_fields_of_a_records_structs_are_renamed() -> None:
    struct = {"struct": [{"name": "a_", "type": "date", "from": "a"}]}
    fields = [{"name": "_offset_", "type": struct, "from": "_offset"}]
    text = json.dumps({"values": "RecordValue", "fields": fields})
    columns = (Column("_offset_", Struct((Column("a_", "date", "a"),)), "_offset"),)
    assert parse_schema(text) == columns
    assert written(columns, of_records=True) == text
    assert has_record_values(text)
    assert not has_record_values(PRICE)
    assert not has_record_values("")
    with pytest.raises(ValueError, match="a field has"):
        parse_schema(json.dumps({"fields": fields}))


def test_values_stay_of_one_form() -> None:
    of_records = PRICE.replace("{", '{"values": "RecordValue", ', 1)
    assert "another form" in narrowing(PRICE, of_records)
    assert "another form" in narrowing(of_records, PRICE)
    assert narrowing(of_records, of_records) == narrowing("", of_records) == ""


def test_columns_are_added_and_not_removed_or_changed() -> None:
    assert narrowing("", PRICE) == ""
    assert narrowing(PRICE, ALL) == ""
    assert "lacks the column tags" in narrowing(ALL, PRICE)
    assert "lacks the column price" in narrowing(PRICE, "")
    for other in ("float", "int64", "string"):
        assert "changes the column price" in narrowing(PRICE, PRICE.replace("double", other))
