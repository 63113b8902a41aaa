"""The state of a copy is read as it was written, and nothing else is taken for it."""

from pathlib import Path

import pytest

from smq.app.cli.records.copy_state import read_state, write_state


def test_pairs_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "state"
    assert read_state(path, "a", "b") == {}
    write_state(path, "a", "b", {0: (5, 3), 1: (0, 0)})
    assert read_state(path, "a", "b") == {0: (5, 3), 1: (0, 0)}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"version": 2}',
        '{"version": 1, "source": "a", "destination": "c", "partitions": {}}',
        '{"version": 1, "source": "a", "destination": "b"}',
        '{"version": 1, "source": "a", "destination": "b", "partitions": {"0": [1]}}',
    ],
)
def test_anything_else_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "state"
    path.write_text(text)
    with pytest.raises(SystemExit, match="smq: "):
        read_state(path, "a", "b")
