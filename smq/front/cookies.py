"""The cookie of a browser's session (smq.front.sessions).

In TLS its name begins with `__Host-`: no other host, and no page without TLS, can set it. A proxy
in front may have taken TLS off, and says so.
"""

import re
from collections.abc import Iterator, Mapping

from starlette.responses import Response

from smq.front.logins import HEAD_BYTES
from smq.front.origin import is_passed_on

NAME, NAME_IN_TLS = "smq-session", "__Host-smq-session"
ID_MAX = 100  # Characters.
PLACE_MAX = 2000  # Characters of a path and its query.
START = "/"
_OURS = re.compile(rb"(?:^|;)[ \t]*(%b|%b)[ \t]*=([^;]*)" % (NAME.encode(), NAME_IN_TLS.encode()))
_COOKIE = re.compile(rb"\r\ncookie:([^\r\n]*)", re.IGNORECASE)


def session_id_of(scheme: str, headers: Mapping[bytes, bytes]) -> str:
    """The id that a browser sends; "": none."""
    name = NAME_IN_TLS if is_in_tls(scheme, headers) else NAME
    return _cookies(headers.get(b"cookie", b"")).get(name, "")


def ids_in_head(data: bytes) -> Iterator[str]:
    """The ids that the head of a request may show, as it comes in: one at most of each name."""
    found = _COOKIE.search(data, 0, HEAD_BYTES)
    yield from (_cookies(found[1]) if found else {}).values()


def _cookies(line: bytes) -> dict[str, str]:
    """Ours in a Cookie header, by name. Their values have no quotes, and none are looked for: the
    time that http.cookies takes for backslashes goes by their number's square. Nor is the line
    split: strangers' heads are looked at before their turn, and may have thousands of parts."""
    found = dict[str, str]()
    for each in _OURS.finditer(line):
        value = each[2].strip()
        if value.isascii() and len(value) <= ID_MAX:
            found[each[1].decode()] = value.decode()
    return found


def set_session(
    response: Response, scheme: str, headers: Mapping[bytes, bytes], session_id: str
) -> None:
    """Have the browser send an id until it ends; "": no more."""
    is_secure = is_in_tls(scheme, headers)
    response.set_cookie(
        NAME_IN_TLS if is_secure else NAME,
        session_id,
        max_age=None if session_id else 0,
        path="/",
        secure=is_secure,
        httponly=True,
        samesite="strict",
    )


def is_in_tls(scheme: str, headers: Mapping[bytes, bytes]) -> bool:
    """Whether the browser has asked by https."""
    said = headers.get(b"x-forwarded-proto", b"").lower() if is_passed_on(headers) else b""
    return scheme == "https" or said == b"https"


def own_place(text: str) -> str:
    """A path of ours with its query, to go to after a login; else the first page."""
    is_ours = text.startswith("/") and not text.startswith(("//", "/\\"))
    return text if is_ours and text.isprintable() and len(text) <= PLACE_MAX else START
