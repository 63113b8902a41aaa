"""Rules for values of settings: each says in Kafka's words what is wrong, or "".

The values have been parsed by their types before (smq.model.config_values).
"""

from collections.abc import Callable
from typing import TypeAlias

from smq.model.config_values import Value

Rule: TypeAlias = Callable[[Value], str]


def at_least(least: int) -> Rule:
    """No number below it."""
    return lambda value: "" if float(value) >= least else f"Value must be at least {least}"


def between(least: int, most: int) -> Rule:
    """A number of this range, its ends included."""

    def rule(value: Value) -> str:
        too_small = at_least(least)(value)
        return too_small or ("" if float(value) <= most else f"Value must be no more than {most}")

    return rule


def or_default(default: int, least: int, most: int) -> Rule:
    """A number of this range, or the one that stands for no choice."""
    words = f"Value must be between {least} and {most} or equal to {default}"
    return lambda value: "" if value == default or least <= float(value) <= most else words


def one_of(*values: Value, otherwise: str = "") -> Rule:
    """One of these values. `otherwise` is said in place of a list of them."""
    words = otherwise or f"String must be one of: {', '.join(map(str, values))}"
    return lambda value: "" if value in values else words
