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


def test_actions_are_no_gets() -> None:
    assert Browser().get("/groups/reset").status == 405
    assert Browser().get("/topics/clicks/delete").status == 405
