"""Which error codes an answer carries.

The message tables say where an answer may have some; the way to these fields is prepared once for
each version of an API. Only ELEMENTS_MAX elements are looked at: an answer of a hundred thousand
partitions must not hold the loop, and its first ones tell what went wrong.
"""

from collections.abc import Iterable
from functools import cache
from itertools import islice
from typing import NamedTuple

from gateway.context import Message
from smq.wire.messages.notation import Field, in_newer_places
from smq.wire.messages.tables import APIS

ELEMENTS_MAX = 1000
_NAMES = {"error_code", "partition_error_code"}
_RESPONSES = {api.key: api.messages[f"{api.name}Response"] for api in APIS}

Codes = dict[int, int]
"""How many of each code, without 0."""


class _Way(NamedTuple):
    """The fields of a structure that are error codes, and its arrays that lead to some."""

    codes: tuple[str, ...]
    arrays: tuple[tuple[str, "_Way"], ...]


def error_codes(api_key: int, version: int, response: Message) -> Codes:
    """The codes of a response, or of a part of it."""
    found: Codes = {}
    _look(_way(api_key, version), (response,), found, ELEMENTS_MAX)
    return found


def error_codes_of_rows(
    api_key: int, version: int, path: tuple[str, ...], rows: Iterable[Message], found: Codes
) -> None:
    """Add the codes of rows of an array in a response to those found before."""
    ways = [_way(api_key, version)]
    for name in path:
        ways = [inner for way in ways for array, inner in way.arrays if array == name]
    for way in ways:
        _look(way, rows, found, ELEMENTS_MAX)


@cache
def _way(api_key: int, version: int) -> _Way:
    return _way_of(_RESPONSES[api_key], version)


def _way_of(structure: Field, version: int) -> _Way:
    fields = in_newer_places(structure.fields, version)
    inner = [(each.name, _way_of(each, version)) for each in fields if each.is_array]
    codes = tuple(each.name for each in fields if each.name in _NAMES)
    return _Way(codes, tuple((name, way) for name, way in inner if way.codes or way.arrays))


def _look(way: _Way, messages: Iterable[Message], found: Codes, left: int) -> int:
    """Add the codes of these messages; returns how many more elements may be looked at."""
    for message in islice(messages, left):
        left -= 1
        for name in way.codes:
            if code := getattr(message, name):
                found[code] = found.get(code, 0) + 1
        for name, inner in way.arrays:
            left = _look(inner, getattr(message, name) or (), found, left)
        if left <= 0:
            return 0
    return left
