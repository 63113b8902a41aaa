"""What newer versions have elsewhere: no field is forgotten on the way to an older version."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from smq.testing.messages import MESSAGES, codec_module
from smq.wire.codec import Message, Writer
from smq.wire.messages.notation import Api, Field, parse_apis
from smq.wire.messages.tables import APIS
from smq.wire.replaced_code import replacements
from smq.wire.structure_code import condition, snake

Path = tuple[str, ...]
VALUES: dict[str, Any] = {
    "string": "x", "bytes": b"x", "records": b"x", "uuid": UUID(int=7), "float64": 1.5,
}  # fmt: skip
TABLE = """
Some 1 versions 0-9 flexible 10+
    SomeRequest
        row_a     int32      0-3   >rows.a
        row_b     int32      2-3   >rows.b
        rows      []Row      4+
            a     int32
            b     int32
        key       string     0-4   >keys
        keys      []string   5+
        names     []string   0-5   >topics.name
        topics    []Topic    6+
            name  string?
        me        int32      0-6   =-1 >state.me
        state     State      7+    tag=0
            me    int32            =-1
"""


def filled(module: Any, name: str, fields: list[Field]) -> Message:
    """A message with something in each field, and one element in each array."""
    values: dict[str, Any] = {}
    for field in fields:
        if field.replaced_by:
            continue
        value = VALUES.get(field.type, field.default != "true" if field.type == "bool" else 77)
        if field.fields:
            value = filled(module, field.type, field.fields)
        values[field.name] = [value] if field.is_array else value
    message = getattr(module, name)(**values)
    assert isinstance(message, Message)
    return message


def versions_of(fields: list[Field], above: Path = ()) -> Iterator[tuple[Path, range]]:
    """Each field by its path in a message, and versions that have it."""
    for field in fields:
        path = above + field.path
        yield path, field.versions
        yield from versions_of(field.fields, path)


def values_of(message: Message, above: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Each field that holds no others, with its value."""
    for name in type(message).__slots__:
        value, path = getattr(message, name), (*above, name)
        found = list(value) if isinstance(value, (list, tuple)) else [value]
        if found and isinstance(found[0], Message):
            yield from values_of(found[0], path)
        else:
            yield path, [bytes(each) if isinstance(each, memoryview) else each for each in found]


@pytest.mark.parametrize(("api", "name"), MESSAGES, ids=[name for _, name in MESSAGES])
def test_every_field_is_read_in_each_version_that_has_it(api: Api, name: str) -> None:
    module, fields = codec_module(api), api.messages[name].fields
    message = filled(module, name, fields)
    said = dict(values_of(message))
    has = defaultdict[Path, set[int]](set)
    for path, versions in versions_of(fields):
        has[path] |= set(versions)
    assert said.keys() <= has.keys()
    for version in api.versions:
        writer = Writer()
        getattr(module, f"write_{snake(name)}")(message, version, writer)
        read = getattr(module, f"read_{snake(name)}")(writer.to_bytes(), 0, version)
        found = dict(values_of(read))
        for path, value in said.items():
            assert (found.get(path) == value) == (version in has[path]), (path, version)


def test_a_message_of_several_rows_is_our_bug_in_a_version_without_an_array() -> None:
    [api] = (each for each in APIS if each.name == "FindCoordinator")
    module = codec_module(api)
    request = module.FindCoordinatorRequest(coordinator_keys=["a", "b"])
    with pytest.raises(ValueError, match="too many values"):
        module.write_find_coordinator_request(request, 3, Writer())


def test_each_kind_of_replacement_has_its_code() -> None:
    [api] = parse_apis(TABLE)
    found = replacements(
        api.messages["SomeRequest"].fields,
        lambda field: field.type.lower(),
        lambda versions: condition(versions, api.versions),
    )
    reading = {
        name: "\n".join([*each.lines("before_reading"), "    …", *each.lines("after_reading")])
        for name, each in found.items()
    }
    assert reading == {
        "rows": "    if version <= 3:\n        row = Row()\n        message.rows = [row]\n    …",
        "keys": "    …\n    if version <= 4:\n        message.keys = [key]",
        "topics": (
            "    …\n    if version <= 5:\n"
            "        message.topics = [Topic(name=each) for each in names]"
        ),
        "state": (
            "    …\n    if version <= 6:\n        if me != -1:\n"
            "            message.state = State(me=me)"
        ),
    }
    rows = found["rows"]
    older = [each for each in api.messages["SomeRequest"].fields if each.path[0] == "rows"]
    assert [rows.place(each) for each in older[:2]] == ["row.a", "row.b"]
    assert list(rows.lines("before_writing")) == [
        "    if version <= 3:",
        "        (row,) = message.rows",
    ]
    assert found["topics"].place(api.messages["SomeRequest"].fields[5]) == "names"


# What newer versions do not have and nothing replaces as it is: a name became an id, which only the
# catalog can tell, or the matter is gone.
WITHOUT_REPLACEMENT = {
    "name": {"Produce", "OffsetCommit", "OffsetFetch"},
    "topic": {"Fetch"},
    "retention_time_ms": {"OffsetCommit"},
    "include_cluster_authorized_operations": {"Metadata"},
    "cluster_authorized_operations": {"Metadata"},
    "allow_downgrade": {"UpdateFeatures"},  # A yes became one of three types.
    "results": {"UpdateFeatures"},
}


def test_a_field_that_ends_names_its_replacement() -> None:
    def ending(field: Field, last: int) -> Iterator[Field]:
        for each in field.fields:
            if last in each.versions:
                yield from ending(each, last)
            elif not each.replaced_by:
                yield each

    found = defaultdict[str, set[str]](set)
    for api in APIS:
        for message in api.messages.values():
            for field in ending(message, api.versions[-1]):
                found[field.name].add(api.name)
    assert found == WITHOUT_REPLACEMENT
