"""The values of configs: Kafka's types, and how each is written."""

import re
from collections.abc import Callable, Mapping
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
    return _PARSERS[kind](text)


def _boolean(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError("Expected value to be either true or false")
    return text.lower() == "true"


def _integer(kind: str, largest: int) -> Callable[[str], int]:
    def parsed(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]{1,20}", text) or not -largest - 1 <= int(text) <= largest:
            raise ValueError(f"Not a number of type {kind}")
        return int(text)

    return parsed


def _double(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("Not a number of type DOUBLE") from None


def _list(text: str) -> str:
    return ",".join(part.strip() for part in text.split(","))


_PARSERS: Mapping[ConfigType, Callable[[str], Value]] = {
    ConfigType.BOOLEAN: _boolean,
    ConfigType.STRING: str,
    ConfigType.INT: _integer("INT", INT32_MAX),
    ConfigType.LONG: _integer("LONG", INT64_MAX),
    ConfigType.DOUBLE: _double,
    ConfigType.LIST: _list,
    ConfigType.PASSWORD: str,
}
