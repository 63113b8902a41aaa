"""The code of a structure: conditions on versions, and which fields go together."""

import pytest

from smq.wire.messages.notation import Field
from smq.wire.structure_code import StructureCode, Used, condition, snake, spans, wrapped


@pytest.mark.parametrize(
    ("versions", "test"),
    [
        (range(3, 10), ""),
        (range(2, 11), ""),
        (range(5, 10), "version >= 5"),
        (range(3, 6), "version <= 5"),
        (range(4, 7), "4 <= version <= 6"),
        (range(4, 5), "version == 4"),
    ],
)
def test_a_condition_asks_only_what_must_be_asked(versions: range, test: str) -> None:
    assert condition(versions, within=range(3, 10)) == test


def test_versions_with_the_same_key_are_one_span_newest_first() -> None:
    assert spans(range(1, 7), lambda version: version >= 4) == [
        (range(4, 7), True),
        (range(1, 4), False),
    ]


def test_names_are_snaked_as_in_python() -> None:
    assert snake("OffsetForLeaderEpochRequest") == "offset_for_leader_epoch_request"


def test_parts_that_fit_a_line_are_put_on_one() -> None:
    assert wrapped(4, "f(", ["a", "b"], ")") == ["    f(a, b)"]
    parts = ["x" * 30] * 3
    assert wrapped(0, "long_name(", parts, ")") == ["long_name(", f"    {', '.join(parts)}", ")"]
    assert wrapped(0, "f(", ["x" * 50, "y" * 50], ")") == [
        "f(", f"    {'x' * 50},", f"    {'y' * 50},", ")",
    ]  # fmt: skip


def code_of(*fields: Field, versions: range = range(10)) -> str:
    structure = Field("S", "S", versions, fields=list(fields))
    return "\n".join(StructureCode(structure, flexible_from=99, used=Used()).lines())


def test_adjacent_fixed_fields_are_read_by_one_call() -> None:
    code = code_of(Field("a", "int32", range(10)), Field("b", "bool", range(10)))
    assert "(message.a, message.b) = _iz.unpack_from(buffer, at)\n    at += 5" in code
    assert "append(_iz.pack(message.a, message.b))" in code


def test_a_fixed_field_of_some_versions_changes_the_call() -> None:
    code = code_of(Field("a", "int32", range(10)), Field("b", "int64", range(5, 10)))
    assert "if version >= 5:\n        (message.a, message.b) = _iq" in code
    assert "else:\n        (message.a,) = _i.unpack_from" in code


@pytest.mark.parametrize(
    ("versions", "test"), [(range(4), "version <= 3"), (range(2, 4), "2 <= version <= 3")]
)
def test_a_fixed_field_of_old_versions_is_asked_for_also_when_it_stands_alone(
    versions: range, test: str
) -> None:
    assert f"if {test}:\n        (message.a,) = _i" in code_of(Field("a", "int32", versions))


def test_fixed_fields_that_never_meet_leave_out_the_versions_between() -> None:
    code = code_of(Field("a", "int32", range(3, 5)), Field("b", "int16", range(8, 10)))
    assert "if version >= 8:\n        (message.b,)" in code
    assert "elif 3 <= version <= 4:\n        (message.a,)" in code
