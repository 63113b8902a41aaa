"""The values of configs: Kafka's types, and how each is written.

A text is read as Java reads it (ConfigDef.parseType, ConfigDef.convertToString): digits of every
script, `1F` and `0x1p-1`, but no `1_000` and no `inf`.
"""

import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from enum import IntEnum
from typing import TypeAlias

from smq.model.config import INT32_MAX
from smq.model.setting import INT64_MAX

Value: TypeAlias = bool | int | float | str


class ConfigType(IntEnum):
    """The types of values, by Kafka's numbers."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


# Kafka's ConfigSource in words (KIP-226).
SOURCES = {
    1: "topic",
    2: "changed for this broker",
    3: "changed for all brokers",
    4: "set at the start",
    5: "default",
}


def parsed(kind: ConfigType, text: str) -> Value:
    """The value of a text. Raises ValueError with a sentence in Kafka's words."""
    return _PARSERS[kind](text.strip(_JAVA_SPACES))


def written(value: Value) -> str:
    """A value as Kafka writes it, which `parsed` reads again."""
    if isinstance(value, bool):
        return str(value).lower()
    return _double_written(value) if isinstance(value, float) else str(value)


# What Java's String.trim removes, and what \s matches. No pattern here may read a character more
# than a few times: a value has up to 32 KiB.
_JAVA_SPACES = "".join(map(chr, range(33)))
_SPACES = " \t\n\v\f\r"
_INTEGER = re.compile(r"[+-]?\d{1,400}")
_BMP_MAX = "\uffff"  # Java reads digits beyond it as two characters.
_DECIMAL = re.compile(
    r"([+-]?(?:NaN|Infinity|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?))[fFdD]?"
)
_HEX = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)


def _boolean(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError("Expected value to be either true or false")
    return text.lower() == "true"


def _integer(kind: str, largest: int) -> Callable[[str], int]:
    def parsed(text: str) -> int:
        if _INTEGER.fullmatch(text) and max(text) <= _BMP_MAX:
            value = int(text)
            if -largest - 1 <= value <= largest:
                return value
        raise ValueError(f"Not a number of type {kind}")

    return parsed


def _double(text: str) -> float:
    try:
        if found := _DECIMAL.fullmatch(text):
            return float(found[1])
        if found := _HEX.fullmatch(text):
            return float.fromhex(found[1])
    except OverflowError:
        return math.copysign(math.inf, -1 if text.startswith("-") else 1)
    raise ValueError("Not a number of type DOUBLE")


def _double_written(value: float) -> str:
    """As Java's Double.toString: decimal from a thousandth to ten millions."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    first, *others = map(str, digits)
    power = len(others) + int(exponent)
    return f"{'-' * sign}{first}.{''.join(others) or '0'}E{power}"


def _list(text: str) -> str:
    return ",".join(each.strip(_SPACES) for each in text.split(","))


_PARSERS: Mapping[ConfigType, Callable[[str], Value]] = {
    ConfigType.BOOLEAN: _boolean,
    ConfigType.STRING: str,
    ConfigType.INT: _integer("INT", INT32_MAX),
    ConfigType.LONG: _integer("LONG", INT64_MAX),
    ConfigType.DOUBLE: _double,
    ConfigType.LIST: _list,
    ConfigType.PASSWORD: str,
}
