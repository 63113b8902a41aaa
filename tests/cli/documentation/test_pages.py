"""Documentation that is made from tables agrees with them."""

from pathlib import Path

import pytest

from smq.cli.documentation.pages import PARTS, with_part


@pytest.mark.parametrize("name", PARTS)
def test_the_page_is_what_make_docs_would_write(name: str) -> None:
    text = Path(name).read_text()
    assert with_part(text, PARTS[name]()) == text, "run `make docs`"


def test_a_page_without_a_place_for_it_is_our_bug() -> None:
    with pytest.raises(AssertionError, match="the page has no"):
        with_part("text", "part")
