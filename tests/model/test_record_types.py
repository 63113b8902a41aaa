"""Record types as a topic's config has them."""

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from smq.model.record_types import (
    DEPTH_MAX,
    SCALARS,
    RecordField,
    RecordFields,
    RecordKind,
    RecordList,
    check_fields,
    narrowing,
    parse_record_type,
    text_of,
)

names = st.text("abcé_", min_size=1, max_size=4)


def fields_of(kinds: st.SearchStrategy[RecordKind]) -> st.SearchStrategy[tuple[RecordField, ...]]:
    field = st.builds(
        RecordField, names, kinds, st.integers(-(2**31), 2**31 - 1), st.booleans(), st.booleans()
    )
    return st.lists(field, min_size=1, max_size=3, unique_by=lambda each: each.name).map(tuple)


kinds: st.SearchStrategy[RecordKind] = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: st.builds(RecordList, inner) | st.builds(RecordFields, fields_of(inner)),
    max_leaves=3,
)


def depth_of(kind: RecordKind) -> int:
    match kind:
        case RecordList(items):
            return 1 + depth_of(items)
        case RecordFields(fields):
            return 1 + max(depth_of(each.kind) for each in fields)
    return 1


types = fields_of(kinds.filter(lambda kind: depth_of(kind) <= DEPTH_MAX))


@given(types)
def test_a_type_comes_back_from_its_text(fields: tuple[RecordField, ...]) -> None:
    assert parse_record_type(text_of(fields)) == fields


@given(types, types)
def test_optional_fields_may_be_added(
    before: tuple[RecordField, ...], more: tuple[RecordField, ...]
) -> None:
    known = {each.name for each in before}
    added = tuple(each._replace(required=False) for each in more if each.name not in known)
    assert narrowing(text_of(before), text_of(before + added)) == ""
    assert narrowing("", text_of(before)) == ""


def test_no_field_is_removed_or_changed_and_none_becomes_required() -> None:
    one, other = RecordField("a", "INT32"), RecordField("b", "STRING")
    before = text_of([one])
    for after, words in (
        ([other], "lacks the field a"),
        ([one._replace(kind="INT64")], "changes the field a"),
        ([one._replace(required=True)], "changes the field a"),
        ([one, other._replace(required=True)], "b is required"),
    ):
        assert words in narrowing(before, text_of(after))
    assert narrowing(before, text_of([one._replace(field_index=7)])) == ""


def field(**found: Any) -> str:
    return json.dumps({"fields": [{"name": "a", "type": "INT32"} | found]})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ("[]", "a record type is"),
        ('{"fields": []}', "1 to 200 fields"),
        (field(name=""), "1 to 100 characters"),
        (field(type="INT16"), "is no type"),
        (field(type={"list": "INT32", "of": 1}), "is no type"),
        (field(index=2**31), "32 bits"),
        (field(index=True), "32 bits"),
        (field(required="yes"), "is no field"),
        (field(unknown=1), "a field has"),
        ('{"fields": [{"name": "a", "type": "INT32"}, {"name": "a", "type": "BOOL"}]}', "twice"),
        (field(type={"list": {"list": {"list": {"list": {"list": "INT32"}}}}}), "nested"),
        ("[" * 100_000, "at most"),
        ("[" * 30_000, "JSON"),
    ],
    ids=[
        *("cut JSON", "a list", "no fields", "an empty name", "no scalar", "more than a list"),
        *("a large index", "a true index", "a word for a truth", "an unknown key", "a name twice"),
        *("a deep type", "a long text", "a deep text"),
    ],
)
def test_a_text_that_is_no_type_is_refused_with_the_reason(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_record_type(text)


def test_fields_nested_too_deeply_are_refused() -> None:
    kind: RecordKind = "INT32"
    for _ in range(DEPTH_MAX):
        kind = RecordList(kind)
    with pytest.raises(ValueError, match="the field a: types are nested"):
        check_fields([RecordField("a", kind)])
