"""Text that moves no cursor and begins no line; JSON stays what it is."""

import json

import pytest
from hypothesis import given, strategies as st

from smq.model.printable import printable, say_error


@given(st.text(st.characters(codec=None)))
def test_printable_text_contains_only_printable_characters(text: str) -> None:
    assert printable(text).isprintable()


@given(st.dictionaries(st.text(), st.text()))
def test_json_means_the_same(facts: dict[str, str]) -> None:
    for as_ascii in (True, False):
        assert json.loads(printable(json.dumps(facts, ensure_ascii=as_ascii))) == facts


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("clicks", "clicks"),
        ("Größe 日本", "Größe 日本"),
        ("a\nshard 1: all is well", "a\\u000ashard 1: all is well"),
        ("\x1b]0;owned\x07", "\\u001b]0;owned\\u0007"),
        ("\u202egnp", "\\u202egnp"),
        ("\U000e0041", "\\udb40\\udc41"),
        ("\udcff", "\\udcff"),
    ],
)
def test_control_characters_are_escaped(text: str, shown: str) -> None:
    """Door fault 13."""
    assert printable(text) == shown


def test_kept_characters_are_not_escaped() -> None:
    assert printable("a\n\tb\x1b", keep="\n\t") == "a\n\tb\\u001b"


def test_a_name_forges_no_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    """Door fault 13: a client's name wrote lines into the log."""
    say_error("process 'x\nshard-1: this is fine' may not attach")
    assert capsys.readouterr().err.count("\n") == 1
