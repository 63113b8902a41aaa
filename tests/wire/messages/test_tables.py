"""The tables, field by field, against what two libraries know."""

import dataclasses
from typing import Any

import pytest

from smq.testing.messages import MESSAGES
from smq.wire.messages.tables import APIS
from smq.wire.structure_code import snake
from tests.wire.oracles import (
    NOT_CARRIED,
    THEIR_NAMES,
    THEIR_OLDER_NAMES,
    kafka_python_facts,
    kio_class,
)


@pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated")
def test_the_table_is_the_one_kafka_python_carries() -> None:
    carried = [api for api in APIS if api.name not in NOT_CARRIED]
    assert len(carried) == len(APIS) - len(NOT_CARRIED)
    for api in carried:
        for name, message in api.messages.items():
            schema = kafka_python_facts(name)
            assert schema["apiKey"] == api.key
            never = schema["flexibleVersions"] == "none" and api.flexible_from > api.versions[-1]
            assert never or schema["flexibleVersions"] == f"{api.flexible_from}+"
            common = {each["name"]: each["fields"] for each in schema.get("commonStructs", ())}
            same_fields(message.fields, schema["fields"], api.versions, common)


def same_fields(
    ours: list[Any],
    theirs: list[dict[str, Any]],
    parent: range,
    common: dict[str, list[dict[str, Any]]],
) -> None:
    found = [field for field in theirs if clipped(field["versions"], parent)]
    by_name = {field.name: field for field in ours}
    versions = {name: [v for f in ours if f.name == name for v in f.versions] for name in by_name}
    assert list(by_name) == [snake(field["name"]) for field in found]
    for our, their in zip(by_name.values(), found, strict=True):
        assert versions[our.name] == clipped(their["versions"], parent)
        our_type = THEIR_NAMES.get(our.type, our.type)
        their_type = their["type"].removeprefix("[]" if our.is_array else "")
        assert their_type in {our_type, THEIR_OLDER_NAMES.get(our_type)}
        assert list(our.nullable) == clipped(their.get("nullableVersions"), our.versions)
        assert our.tag == their.get("tag")
        assert default_of(our.default) == default_of(their.get("default"))
        fields = their.get("fields", common.get(our.type, []))
        same_fields(our.fields, fields, our.versions, common)


def clipped(text: str | None, parent: range) -> list[int]:
    if text is None or text == "none":
        return []
    first, _, last = text.rstrip("+").partition("-")
    end = parent.stop if text.endswith("+") else int(last or first) + 1
    return [version for version in parent if int(first) <= version < end]


def default_of(text: object) -> object:
    named = {"int32_max": 2**31 - 1, "int32_min": -(2**31), "int64_max": 2**63 - 1}
    absent = {None: None, "": None, "false": None, False: None, "0": None}
    if text in absent:
        return None
    if text in named:
        return named[str(text)]
    try:
        return int(str(text), 0)
    except ValueError:
        return text


def test_kio_has_the_same_fields_in_the_same_order() -> None:
    for api, name in MESSAGES:
        for version in api.versions:
            same_as_kio(api.messages[name].fields, kio_class(api.key, name, version), version)


def same_as_kio(fields: list[Any], schema: Any, version: int) -> None:
    ours = [field for field in fields if version in field.versions]
    theirs = dataclasses.fields(schema)
    renamed = [field.name.removesuffix("_ms") for field in ours]
    assert renamed == [field.name.removesuffix("_ms") for field in theirs]
    for our, their in zip(ours, theirs, strict=True):
        assert our.tag == their.metadata.get("tag")
        may_be_null = "None" in str(their.type)
        assert may_be_null == (version in our.nullable) or our.type in {"uuid", "int64"}
        if our.fields:
            same_as_kio(our.fields, structure_in(their.type), version)


def structure_in(annotation: Any) -> Any:
    """`X` of `X`, `tuple[X, ...]` or `tuple[X, ...] | None`."""
    while not dataclasses.is_dataclass(annotation):
        annotation = annotation.__args__[0]
    return annotation
