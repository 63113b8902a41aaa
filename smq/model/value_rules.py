"""Rules for values of settings: each returns an error message in Kafka's words, or "".
smq.model.config_values has parsed the values by their types before.
"""

from collections.abc import Callable
from typing import TypeAlias

from smq.model.config_values import Value

Rule: TypeAlias = Callable[[Value], str]


def at_least(least: int) -> Rule:
    """A number of at least this."""
    return lambda value: "" if float(value) >= least else f"Value must be at least {least}"


def between(least: int, most: int) -> Rule:
    """A number of this range, its ends included."""

    def rule(value: Value) -> str:
        too_small = at_least(least)(value)
        return too_small or ("" if float(value) <= most else f"Value must be no more than {most}")

    return rule


def or_default(default: int, least: int, most: int) -> Rule:
    """A number of this range, or the one that means no choice."""
    words = f"Value must be between {least} and {most} or equal to {default}"
    return lambda value: "" if value == default or least <= float(value) <= most else words


def one_of(*values: Value, otherwise: str = "") -> Rule:
    """One of these values. `otherwise` replaces the list of them in the message."""
    words = otherwise or f"String must be one of: {', '.join(map(str, values))}"
    return lambda value: "" if value in values else words
