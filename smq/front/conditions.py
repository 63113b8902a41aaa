"""Ranges and preconditions in a request's headers (RFC 9110), as plain values.

An ETag is an object's version in quotes. A request for one range gets it; a request for several
gets the whole object, as the RFC allows. Dates are not supported as conditions: a version is exact,
a second is not.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from smq.filer.store import CREATE, OVERWRITE, Facts, IfMatch, Mode


class BadCondition(ValueError):
    """A malformed header. Answer 400."""


class Unsatisfiable(Exception):
    """The range begins beyond the object's end. Answer 416."""


class ByteSpan(NamedTuple):
    """The bytes [start, start + length)."""

    start: int
    length: int


_RANGE = re.compile(r"bytes=(\d{0,19})-(\d{0,19})")
_TAG = re.compile(r'(?:W/)?"([^"]*)"')


def combined(lines: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Headers by name; repeated headers are joined to one list."""
    headers = dict[str, str]()
    for name, value in lines:
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def etag(facts: Facts) -> str:
    """The ETag of an object."""
    return '"{}"'.format(facts.version.strip('"'))


def write_mode(headers: Mapping[str, str], existing: Facts | None) -> Mode | None:
    """The write mode of a PUT; None if the version to replace does not exist.

    Raises BadCondition.
    """
    match, none_match = headers.get("if-match"), headers.get("if-none-match")
    if match is not None and none_match is not None:
        raise BadCondition("If-Match and If-None-Match exclude each other")
    if none_match is not None:
        if none_match.strip() != "*":
            raise BadCondition("the only If-None-Match of a PUT is *")
        return CREATE
    if match is None:
        return OVERWRITE
    if existing is None or not names_this(match, existing):
        return None
    return IfMatch(existing.version)


def names_this(header: str, facts: Facts, *, weak: bool = False) -> bool:
    """Whether an If-Match or (`weak`) If-None-Match header contains an object's version."""
    if header.strip() == "*":
        return True
    tags = [each for each in _TAG.finditer(header) if weak or not each[0].startswith("W/")]
    return etag(facts).strip('"') in {each[1] for each in tags}


def is_unchanged(headers: Mapping[str, str], facts: Facts) -> bool:
    """Whether the client already has this version: 304."""
    header = headers.get("if-none-match")
    return header is not None and names_this(header, facts, weak=True)


def is_another(headers: Mapping[str, str], facts: Facts) -> bool:
    """Whether the client requires another version: 412."""
    header = headers.get("if-match")
    return header is not None and not names_this(header, facts)


def span(headers: Mapping[str, str], facts: Facts) -> ByteSpan | None:
    """The requested range; None: the whole object. Raises Unsatisfiable."""
    wanted = headers.get("range")
    condition = headers.get("if-range")
    if wanted is None or (condition is not None and condition.strip() != etag(facts)):
        return None
    found = _RANGE.fullmatch(wanted.strip())
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:
        return _last(int(found[2]), facts.length)
    start, end = int(found[1]), int(found[2]) if found[2] else facts.length - 1
    if end < start <= facts.length - 1:
        return None  # "5-3" is not a valid range, and is ignored.
    if start >= facts.length:
        raise Unsatisfiable
    return ByteSpan(start, min(end + 1, facts.length) - start)


def _last(count: int, length: int) -> ByteSpan:
    if count == 0 or length == 0:
        raise Unsatisfiable
    return ByteSpan(max(length - count, 0), min(count, length))
