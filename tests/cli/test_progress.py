"""Progress is for terminals."""

import pytest

from smq.cli.progress import progress


def test_nothing_is_written_where_there_is_no_terminal(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with progress("work", 2) as advance:
        advance(1)
        advance(1)
    assert capfd.readouterr() == ("", "")
