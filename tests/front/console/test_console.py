"""Shared by all pages: forms, and the display of failures."""

import pytest

from smq.front.console.console import FORM_BYTES_MAX, lines_of
from tests.front.console.fake_desk import HOSTILE, Browser


def test_a_failure_is_a_page_with_its_sentence_and_status() -> None:
    answer = Browser().get("/topics/nope")
    assert answer.status == 404
    assert b"no nope" in answer.body
    bad = Browser().get("/topics/clicks/messages?limit=x")
    assert bad.status == 400
    assert b"whole number" in bad.body


def test_a_failed_action_is_a_sentence() -> None:
    answer = Browser().post("/topics/clicks/partitions", added=HOSTILE)
    assert answer.status == 400
    assert b"<script" not in answer.body
    assert b"&lt;script&gt;" in answer.body


def test_a_form_is_bounded() -> None:
    browser = Browser()
    answer = browser.post("/topics/clicks/messages", value="x" * FORM_BYTES_MAX)
    assert answer.status == 400
    many = {f"field{number}": "" for number in range(200)}
    assert browser.post("/topics/clicks/messages", **many).status == 400
    assert browser.desk.done == []


def test_lines_are_counted_before_they_are_cut() -> None:
    assert lines_of("a\r\nb\n", 3, "a plan") == ["a", "b", ""]
    with pytest.raises(ValueError, match="a plan has at most 2 lines"):
        lines_of("\n" * 1_000_000, 2, "a plan")
