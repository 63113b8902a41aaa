"""Errors of libraries without the secrets that they repeat: a URL, or what it is made of."""

import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, unquote

from smq.model.setting import HIDDEN

SEGMENT_MIN = 8  # A shorter part of a path is a word, such as `iceberg`.
VALUE_MIN = 3


def hide(text: str, secrets: Iterable[str]) -> str:
    """The text with each secret replaced, as written and as URLs write it."""
    spelled = {form for each in secrets for form in (each, unquote(each), quote(each, safe=""))}
    for each in sorted(spelled - {""}, key=len, reverse=True):
        text = text.replace(each, HIDDEN)
    return text


def parts_of_url(url: str) -> Iterator[str]:
    """What may be secret in a URL, its host excepted; it need not be a valid one."""
    yield url
    rest = url.partition("://")[2] or url
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    path, _, query = rest.removeprefix(authority).partition("?")
    user, _, _ = authority.rpartition("@")
    if user:
        yield from (rest, authority, user, user.partition(":")[2])
    if path.strip("/"):
        yield from (path, path.rstrip("/"))
    if query:
        yield from (query, f"{path}?{query}")
    yield from (each for each in path.split("/") if len(each) >= SEGMENT_MIN)
    yield from (each for each in re.split("[&=#]", query) if len(each) >= VALUE_MIN)
