"""`frozen`: a dataclass that is cheap to make, for messages: each start makes very many kinds.

`dataclass(frozen=True, slots=True)` writes and compiles seven functions, and makes the class twice.
Only `__init__` needs to know the fields. mypy, not Python, holds the values frozen.
"""

from dataclasses import dataclass, field
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(kind: type[T]) -> type[T]:
    """Make a documented class a dataclass whose values are compared, hashed and shown as others."""
    assert kind.__doc__, "else dataclass() takes its time to write a text"
    made: Any = dataclass(eq=False, repr=False)(kind)
    made.__eq__, made.__hash__, made.__repr__ = _equals, _hash, _shown
    return kind


def _equals(self: object, other: object) -> bool:
    return vars(self) == vars(other) if type(self) is type(other) else NotImplemented


def _hash(self: object) -> int:
    return hash(tuple(vars(self).values()))


def _shown(self: object) -> str:
    values = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
    return f"{type(self).__qualname__}({values})"
