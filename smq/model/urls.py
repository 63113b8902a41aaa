"""URLs in settings: whether they are some, and libraries' errors without the secrets in them."""

import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, unquote, urlsplit

from smq.model.setting import HIDDEN

SEGMENT_MIN = 8  # A shorter part of a path is a word, such as `iceberg`.
VALUE_MIN = 3


def why_no_url(url: str) -> str:
    """Why nothing can be sent to a URL; "" if it can be."""
    if not url.isascii() or not url.isprintable() or " " in url:
        return "a URL has no spaces and no letters beyond ASCII; percent-encode them"
    try:
        parts = urlsplit(url)
        is_whole = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_whole = False
    return "" if is_whole else "it is no http:// or https:// URL"


def path_of_file_url(url: str) -> str:
    """The absolute path that a file:// URL of this host names; "": it is none."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    is_ours = parts.scheme == "file" and parts.netloc in {"", "localhost"}
    path = unquote(parts.path)
    is_path = path.startswith("/") and "\0" not in path
    return path if is_ours and is_path and not (parts.query or parts.fragment) else ""


def names_user(url: str) -> bool:
    """Whether a URL has a user, or a password."""
    return "@" in urlsplit(url).netloc


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
