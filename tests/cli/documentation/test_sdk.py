"""The SDK's reference has every name that it offers."""

from smq.cli.documentation.sdk import reference
from smq.client import sdk


def test_every_name_is_in_it_with_a_sentence() -> None:
    page = reference()
    for name in vars(sdk):
        if name[0].isalpha():
            assert f"`smq.{name}`" in page or f"| `{name}` | " in page, name
    assert "| `Overrun` |  |" not in page


def test_parameters_that_are_given_by_name_stand_behind_a_star() -> None:
    page = reference()
    assert "#### `Producer.send`" in page
    assert "\nsmq.connect(" in page
    assert "self" not in page.split("## Classes")[0]
