"""Rules for values of settings: each returns an error message in Kafka's words, or "".
smq.model.config_values has parsed the values by their types before.
"""

import re
from collections.abc import Callable
from typing import TypeAlias

from smq.model.config_values import Value

Rule: TypeAlias = Callable[[Value], str]
_PARTITION_AND_BROKER = re.compile("([0-9]+:[0-9]+)?")


def at_least(least: int) -> Rule:
    """A number of at least this. Kafka takes NaN, which is not less."""
    return lambda value: f"Value must be at least {least}" if float(value) < least else ""


def between(least: int, most: int) -> Rule:
    """A number of this range, its ends included."""

    def rule(value: Value) -> str:
        too_small = at_least(least)(value)
        too_large = float(value) > most
        return too_small or (f"Value must be no more than {most}" if too_large else "")

    return rule


def or_default(default: int, least: int, most: int) -> Rule:
    """A number of this range, or the one that means no choice."""
    words = f"Value must be between {least} and {most} or equal to {default}"
    return lambda value: "" if value == default or least <= float(value) <= most else words


def one_of(*values: Value, otherwise: str = "") -> Rule:
    """One of these values. `otherwise` replaces the list of them in the message."""
    words = otherwise or f"String must be one of: {', '.join(map(str, values))}"
    return lambda value: "" if value in values else words


def some_of(*values: str) -> Rule:
    """A list of these values, or of none."""
    words = f"String must be one of: {', '.join(values)}"
    return lambda value: "" if not value or set(str(value).split(",")) <= {*values} else words


def throttled_replicas(value: Value) -> str:
    """A list of partition and broker as `0:1`, or `*` alone (ThrottledReplicaListValidator)."""
    parts = str(value).split(",")
    if parts == ["*"] or all(_PARTITION_AND_BROKER.fullmatch(part) for part in parts):
        return ""
    return "Must be the literal '*' or a list of replicas: [partitionId]:[brokerId],…"
