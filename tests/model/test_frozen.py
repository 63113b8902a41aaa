"""A frozen class is a dataclass in all that programs ask of one."""

from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

from smq.model.frozen import frozen


@frozen
class Place:
    """Where something is."""

    name: str
    row: int = 0
    seats: list[int] = field(default_factory=list)


@frozen
class Other:
    """With the same fields."""

    name: str
    row: int = 0


@dataclass(frozen=True)
class Usual:
    """What Python makes."""

    name: str
    row: int = 0


def test_values_are_made_compared_and_copied_as_those_of_a_dataclass() -> None:
    place = Place("a", seats=[1])
    assert is_dataclass(place)
    assert [each.name for each in fields(place)] == ["name", "row", "seats"]
    assert place == Place("a", 0, [1])
    assert place != Place("a", 1, [1])
    assert replace(place, row=2).row == 2
    assert Place("b").seats is not Place("b").seats


def test_values_of_two_kinds_differ() -> None:
    other: Any = Other("a")
    assert other != Usual("a")
    assert other != Place("a")


def test_values_are_keys_and_are_shown_as_those_of_a_dataclass() -> None:
    assert len({Other("a"), Other("a"), Other("b")}) == 2
    assert repr(Other("a")) == repr(Usual("a")).replace("Usual", "Other")
