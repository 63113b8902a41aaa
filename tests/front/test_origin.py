"""Which requests count as another site's, as links, and as passed on by a proxy."""

import pytest

from smq.front.origin import is_foreign, is_marked, is_navigation, is_old_browser, is_passed_on

HOST = b"127.0.0.1:8080"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {b"sec-fetch-site": b"none"},
        {b"sec-fetch-site": b"same-origin"},
        {b"origin": b"http://127.0.0.1:8080"},
        {b"origin": b"HTTP://127.0.0.1:8080", b"sec-fetch-site": b"same-origin"},
    ],
)
def test_our_own_pages_and_other_programs_are_not_foreign(headers: dict[bytes, bytes]) -> None:
    assert not is_foreign("http", {b"host": HOST, **headers})


@pytest.mark.parametrize(
    "headers",
    [
        {b"sec-fetch-site": b"cross-site"},
        {b"sec-fetch-site": b"same-site"},
        {b"sec-fetch-site": b""},
        {b"origin": b"null"},
        {b"origin": b""},
        {b"origin": b"http://127.0.0.1:9090"},
        {b"origin": b"https://127.0.0.1:8080"},
        {b"origin": b"http://evil.example"},
        {b"origin": b"http://evil.example", b"sec-fetch-site": b"same-origin"},
        {b"origin": b"http://127.0.0.1:8080", b"sec-fetch-site": b"cross-site"},
    ],
)
def test_another_port_or_site_is_foreign(headers: dict[bytes, bytes]) -> None:
    """Door fault 1."""
    assert is_foreign("http", {b"host": HOST, **headers})


SAFARI = b"Mozilla/5.0 (Macintosh) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/15.6 Safari"


@pytest.mark.parametrize(
    ("headers", "is_old"),
    [
        ({b"host": b"127.0.0.1:8080", b"user-agent": SAFARI}, True),
        ({b"host": b"localhost", b"user-agent": SAFARI}, True),
        ({b"host": b"localhost", b"user-agent": SAFARI, b"sec-fetch-site": b"none"}, False),
        ({b"host": b"10.0.0.1", b"user-agent": SAFARI}, False),  # Newer ones mark nothing there.
        ({b"host": b"localhost", b"user-agent": b"curl/8.5.0"}, False),
        ({b"host": b"localhost", b"user-agent": b"Prometheus/3.5.0"}, False),
        ({b"host": b"localhost"}, False),
    ],
)
def test_a_browser_from_before_fetch_metadata_is_known(
    headers: dict[bytes, bytes], *, is_old: bool
) -> None:
    assert is_old_browser("http", headers) == is_old


def test_with_tls_another_scheme_is_foreign_and_every_browser_should_have_said() -> None:
    far = {b"host": b"queue.example"}
    assert not is_foreign("https", {**far, b"origin": b"https://queue.example"})
    assert is_foreign("https", {**far, b"origin": b"http://queue.example"})
    assert is_old_browser("https", {**far, b"user-agent": SAFARI})
    assert not is_old_browser("http", {**far, b"user-agent": SAFARI})


def test_behind_a_proxy_pages_may_be_of_https() -> None:
    far = {b"host": b"queue.example", b"x-forwarded-for": b"10.0.0.1"}
    assert not is_foreign("http", {**far, b"origin": b"https://queue.example"})
    assert not is_foreign("http", {**far, b"origin": b"http://queue.example"})
    assert is_foreign("http", {**far, b"origin": b"https://evil.example"})
    assert is_foreign("http", {b"host": b"queue.example", b"origin": b"https://queue.example"})


def test_a_link_is_a_navigation_and_a_frame_an_image_a_form_are_not() -> None:
    link = {b"sec-fetch-mode": b"navigate", b"sec-fetch-dest": b"document"}
    assert is_navigation("GET", link)
    assert not is_navigation("POST", link)
    assert not is_navigation("GET", {**link, b"sec-fetch-dest": b"iframe"})
    assert not is_navigation("GET", {b"sec-fetch-mode": b"no-cors", b"sec-fetch-dest": b"image"})
    assert not is_navigation("GET", {**link, b"origin": b"http://evil.example"})
    assert not is_navigation("GET", {})


@pytest.mark.parametrize(
    "name",
    [
        *(b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded"),
        *(b"x-real-ip", b"x-client-ip", b"true-client-ip", b"cf-connecting-ip", b"cf-ray"),
        *(b"x-original-forwarded-for", b"x-cluster-client-ip", b"x-envoy-external-address"),
        *(b"proxy-connection", b"fastly-client-ip"),
    ],
)
def test_a_proxy_is_known_by_its_headers(name: bytes) -> None:
    """Door fault 10."""
    assert is_passed_on({name: b""})
    assert not is_passed_on({b"host": HOST})


@pytest.mark.parametrize(
    "host", [b"127.0.0.1", b"127.8.9.1:80", b"[::1]:80", b"[::1]", b"LocalHost:8080", b""]
)
def test_browsers_mark_what_pages_send_to_loopback(host: bytes) -> None:
    assert is_marked({b"host": host})


@pytest.mark.parametrize(
    "host",
    [
        *(b"0.0.0.0:80", b"[::]", b"[::ffff:127.0.0.1]:80", b"[::ffff:7f00:1]", b"192.168.0.1"),
        *(b"ours:80", b"localhost.evil.example", b"127.1", b"2130706433"),
    ],
)
def test_browsers_do_not_mark_what_pages_send_elsewhere(host: bytes) -> None:
    """Door fault 1, its sibling."""
    assert not is_marked({b"host": host})
