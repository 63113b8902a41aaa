"""Which site a request comes from, and whether a proxy has passed it on.

A browser sends `Origin` with each request that may change something, and `Sec-Fetch-Site` with
every request to this host (Fetch Metadata, W3C). Other programs send neither. Another port of this
host is another origin of the same site, and as foreign as any other: `same-site` is not enough.
"""

from collections.abc import Mapping

OURS = frozenset({b"same-origin", b"none"})  # `none`: typed by the user, or from a bookmark.
READS = frozenset({"GET", "HEAD"})
PROXY_HEADERS = frozenset({b"forwarded", b"via"})
PROXY_PREFIX = b"x-forwarded-"


def is_foreign(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a page of another origin caused the request."""
    site = headers.get(b"sec-fetch-site", b"none")
    if site.lower() not in OURS:
        return True
    origin = headers.get(b"origin")
    return origin is not None and origin.lower() != b"http://" + headers.get(b"host", b"").lower()


def is_navigation(method: str, headers: Mapping[bytes, bytes]) -> bool:
    """Whether a browser opens a page of its own with the answer: a link, not a frame or image."""
    mode, target = headers.get(b"sec-fetch-mode"), headers.get(b"sec-fetch-dest")
    return (
        method in READS
        and b"origin" not in headers
        and (mode, target) == (b"navigate", b"document")
    )


def is_passed_on(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a proxy has sent the request: the peer's address is not the client's."""
    return any(name in PROXY_HEADERS or name.startswith(PROXY_PREFIX) for name in headers)
