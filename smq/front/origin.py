"""Which site a request comes from, under which address, and whether a proxy has passed it on.

A browser sends `Origin` with each request that may change something. It sends `Sec-Fetch-Site` with
every request to a potentially trustworthy address (Fetch Metadata, W3C): with TLS all, without it
127.0.0.0/8, ::1 and localhost. Under any other address a page's request may look like that of
another program, which sends neither header. So it may anywhere in browsers from before Fetch
Metadata, such as Safari 16.3 and Firefox 89; but these say that they are browsers. Another port of
this host is another origin of the same site, and as foreign as any other: `same-site` is not
enough.
"""

import ipaddress
from collections.abc import Mapping

OURS = frozenset({b"same-origin", b"none"})  # `none`: typed by the user, or from a bookmark.
BROWSER = b"Mozilla/"  # All browsers' User-Agent begins so, and no page can change it.
READS = frozenset({"GET", "HEAD"})
TOKEN_HEADER = "x-smq-token"  # noqa: S105  (Its name; no page of another site can send it.)
LOCALHOST = frozenset({"localhost", ""})  # No browser leaves the Host empty.
# What proxies and CDNs add: no client of this host sends any of it.
PROXY_HEADERS = frozenset(
    {
        *(b"forwarded", b"via", b"x-forwarded", b"x-real-ip", b"x-real-port", b"proxy-connection"),
        *(b"x-client-ip", b"client-ip", b"true-client-ip", b"x-cluster-client-ip", b"x-host"),
        *(b"x-proxyuser-ip", b"x-remote-addr", b"x-remote-ip", b"x-scheme", b"x-original-host"),
        *(b"x-originating-ip", b"x-original-url", b"x-real-proto", b"cdn-loop"),
        *(b"fastly-client-ip", b"x-appengine-user-ip", b"x-azure-clientip"),
    }
)
PROXY_PREFIXES = (b"x-forwarded-", b"x-original-forwarded-", b"cf-", b"x-envoy-")


def is_foreign(scheme: str, headers: Mapping[bytes, bytes]) -> bool:
    """Whether a page of another origin caused the request, which came by http or https. A proxy
    may have taken https off."""
    site = headers.get(b"sec-fetch-site", b"none")
    if site.lower() not in OURS:
        return True
    origin = headers.get(b"origin")
    schemes = {scheme.encode(), b"https" if is_passed_on(headers) else b""}
    host = headers.get(b"host", b"").lower()
    return origin is not None and origin.lower() not in {each + b"://" + host for each in schemes}


def is_old_browser(scheme: str, headers: Mapping[bytes, bytes]) -> bool:
    """Whether a browser should have said which page caused the request, and cannot."""
    is_browser = headers.get(b"user-agent", b"").startswith(BROWSER)
    is_trusted = scheme == "https" or is_marked(headers)
    return is_browser and b"sec-fetch-site" not in headers and is_trusted


def is_navigation(method: str, headers: Mapping[bytes, bytes]) -> bool:
    """Whether a browser opens a page of its own with the answer: a link, not a frame or image."""
    mode, target = headers.get(b"sec-fetch-mode"), headers.get(b"sec-fetch-dest")
    return (
        method in READS
        and b"origin" not in headers
        and (mode, target) == (b"navigate", b"document")
    )


def host_name(headers: Mapping[bytes, bytes]) -> str:
    """The name or address in Host, without a port and brackets, in lower case."""
    host = headers.get(b"host", b"").decode("latin-1")
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdecimal() else host).strip("[]").lower()


def address_of(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that the name spells; None for other names."""
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def is_of_no_host(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether no host has it, though browsers connect to this one: 0.0.0.0, ::ffff:127.0.0.1."""
    is_mapped = isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None
    return is_mapped or address.is_unspecified


def is_marked(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a browser would have marked the request of a foreign page, under this Host."""
    name = host_name(headers)
    address = address_of(name)
    if address is None:
        return name in LOCALHOST
    return address.is_loopback and not is_of_no_host(address)


def is_passed_on(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a proxy has sent the request: the peer's address is not the client's."""
    return any(name in PROXY_HEADERS or name.startswith(PROXY_PREFIXES) for name in headers)
