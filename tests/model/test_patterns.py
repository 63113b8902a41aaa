"""Regular expressions of clients: whole names match, and none costs more than its bound."""

import pytest

from smq.model.errors import BrokerError, ErrorCode
from smq.model.patterns import PROGRAM_MAX, Pattern


def test_a_whole_name_must_match() -> None:
    pattern = Pattern("app-[0-9]+")
    assert pattern.matches("app-12")
    assert not pattern.matches("my-app-12")
    assert not pattern.matches("app-12b")
    assert Pattern("ä|ö").matches("ö")


@pytest.mark.parametrize("text", ["(", "[a", "*", r"(a)\1", "(?=a)", "a" * 100_000, "(a{9}){99}"])
def test_an_invalid_or_too_large_pattern_is_refused(text: str) -> None:
    with pytest.raises(BrokerError) as refusal:
        Pattern(text)
    assert refusal.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_no_pattern_is_larger_than_its_bound() -> None:
    assert Pattern("(x+x+)+y").size <= PROGRAM_MAX
    assert not Pattern("(x+x+)+y").matches("x" * 30_000)
