"""The cookie of a session, with and without TLS."""

import time

import pytest
from starlette.responses import Response

from smq.front.cookies import ID_MAX, PLACE_MAX, ids_in_head, own_place, session_id_of, set_session

PROXY = {b"x-forwarded-for": b"10.0.0.1"}


def cookie(scheme: str, headers: dict[bytes, bytes], session_id: str = "id") -> list[str]:
    response = Response()
    set_session(response, scheme, headers, session_id)
    return sorted(each.strip().lower() for each in response.headers["set-cookie"].split(";"))


def test_in_tls_no_other_host_sets_the_cookie() -> None:
    attributes = ["httponly", "path=/", "samesite=strict"]
    plain = [*attributes, "smq-session=id"]
    secure = sorted(["__host-smq-session=id", *attributes, "secure"])
    assert cookie("http", {}) == sorted(plain)
    assert cookie("https", {}) == secure
    assert cookie("http", {**PROXY, b"x-forwarded-proto": b"https"}) == secure
    assert cookie("http", {**PROXY, b"x-forwarded-proto": b"http"}) == sorted(plain)


def test_a_cookie_that_ends_has_no_id() -> None:
    assert {"max-age=0", '__host-smq-session=""'} <= set(cookie("https", {}, ""))


def test_in_tls_a_plain_cookie_is_none() -> None:
    both = {b"cookie": b"smq-session=plain; __Host-smq-session=secure"}
    assert session_id_of("http", both) == "plain"
    assert session_id_of("https", both) == "secure"
    assert session_id_of("https", {b"cookie": b"smq-session=plain"}) == ""


@pytest.mark.parametrize(
    "line", [b"", b"smq-session", b"smq-session=\xe9", b"smq-session=" + (ID_MAX + 1) * b"x"]
)
def test_another_cookie_has_no_id(line: bytes) -> None:
    assert session_id_of("http", {b"cookie": line}) == ""
    assert session_id_of("http", {}) == ""


@pytest.mark.parametrize("value", [b'"' + 60_000 * b"\\" + b'"', 60_000 * b";", 30_000 * b"=;"])
def test_a_long_cookie_costs_little(value: bytes) -> None:
    """http.cookies takes far longer for the first one."""
    began_s = time.monotonic()
    line = b"a=" + value + b"; smq-session=id"
    assert session_id_of("http", {b"cookie": line}) == "id"
    assert not [*ids_in_head(b"GET / HTTP/1.1\r\nCookie: a=" + value + b"\r\n\r\n")]
    assert time.monotonic() - began_s < 2


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b"smq-session=a; smq-session=b", "b"),
        (b"x=1;\tsmq-session = a ;y", "a"),
        (b"x=smq-session=a", ""),
        (b"xsmq-session=a", ""),
        (b"smq-sessionx=a", ""),
        (b"a b smq-session=a", ""),
    ],
)
def test_a_cookie_is_ours_by_its_whole_name(line: bytes, found: str) -> None:
    assert session_id_of("http", {b"cookie": line}) == found


@pytest.mark.parametrize(
    "place", ["/", "/topics/a%20b/messages?text=x&limit=5", "/groups/one?group=g"]
)
def test_a_login_goes_on_to_a_place_of_ours(place: str) -> None:
    assert own_place(place) == place


@pytest.mark.parametrize(
    "place",
    [
        "",
        "topics",
        "https://evil.example/",
        "//evil.example/",
        "/\\evil.example/",
        "/\t/evil.example/",
        "/\r\nset-cookie: x",
        "/" + PLACE_MAX * "x",
    ],
)
def test_a_login_goes_on_nowhere_else(place: str) -> None:
    assert own_place(place) == "/"
