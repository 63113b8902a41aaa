"""Which routes there are, and that each page is a whole document."""

import pytest

from tests.front.console.fake_desk import Browser, FakeDesk, seen


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/topics",
        "/topics/clicks",
        "/topics/clicks/messages",
        "/topics/clicks/messages/0/5",
        "/groups",
        "/groups/one?group=readers",
        "/files",
        "/settings",
    ],
)
def test_each_page_is_whole_without_scripts(path: str) -> None:
    page = Browser(FakeDesk([seen(5, b"{}")])).text(path)
    assert page.startswith("<!doctype html>")
    assert page.count("<h1>") == 1
    assert page.rstrip().endswith("</html>")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/", 200),
        ("/topics", 200),
        ("/topics/clicks", 200),
        ("/groups", 200),
        ("/groups/one?group=readers", 200),
        ("/files", 200),
        ("/settings", 200),
        ("/topics/clicks/messages", 403),
        ("/topics/clicks/messages?text=pin", 403),
        ("/topics/clicks/messages/0/5", 403),
        ("/topics/clicks/messages/0/5/value", 403),
        ("/files/one?key=a", 403),
        ("/console/rates", 403),
        ("/console/static/console.js", 403),
    ],
)
def test_a_link_of_another_site_opens_plain_pages_only(path: str, status: int) -> None:
    """Door fault 1: how long a search takes tells what it finds."""
    desk = FakeDesk([seen(5, b"{}")])
    headers = {"sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
    assert Browser(desk).get(path, sec_fetch_site="cross-site", **headers).status == status
    assert Browser(desk).get(path, sec_fetch_site="same-origin", **headers).status != 403


def test_actions_are_no_gets() -> None:
    assert Browser().get("/groups/reset").status == 405
    assert Browser().get("/topics/clicks/delete").status == 405
