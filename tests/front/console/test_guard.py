"""Who may see the console, and who may change settings."""

import pytest

from tests.front.console.fake_desk import TOKEN, Browser

ACTIONS = [
    "/topics",
    "/topics/clicks/settings",
    "/topics/clicks/partitions",
    "/topics/clicks/delete",
    "/topics/clicks/messages",
    "/groups/reset",
    "/groups/delete",
]


@pytest.mark.parametrize("path", ["/", "/topics", "/groups", "/topics/clicks/messages"])
def test_other_hosts_are_refused_with_a_hint_to_ssh(path: str) -> None:
    answer = Browser(host="192.168.0.7").get(path)
    assert answer.status == 403
    assert b"ssh -L" in answer.body


@pytest.mark.parametrize("path", ACTIONS)
@pytest.mark.parametrize("token", ["", "wrong", TOKEN[:-1], "\u00e9"])
def test_without_the_token_nothing_is_changed(path: str, token: str) -> None:
    browser = Browser()
    answer = browser.post(path, token=token, confirm="clicks", name="clicks")
    assert answer.status == 403
    assert b"smq serve" in answer.body
    assert browser.desk.done == []


def test_another_host_with_the_token_changes_nothing() -> None:
    browser = Browser(host="10.0.0.1")
    assert browser.post("/topics", name="new").status == 403
    assert browser.desk.done == []


def test_pages_say_what_a_browser_may_do_with_them() -> None:
    headers = Browser().get("/").headers
    assert "script-src 'self'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert "set-cookie" not in headers
