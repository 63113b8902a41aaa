"""What tidyings have found comes back, or counts as nothing."""

from pathlib import Path

import pytest

from smq.sealer.lake.seen import Mark, Seen, read_seen, seen_path, write_seen
from smq.sealer.lake.state import TableState, forget_state, path_of, write_state

SEEN = Seen("uuid", (Mark(5, 1), Mark(9, 3)), frozenset({"b", "a"}))


def test_it_comes_back_until_the_table_is_forgotten(tmp_path: Path) -> None:
    write_state(tmp_path, TableState(namespace="a", topic="b.c", format="iceberg"))
    path = seen_path(path_of(tmp_path, "a", "b.c", "iceberg"))
    assert read_seen(path) == Seen()
    write_seen(path, SEEN)
    assert read_seen(path) == SEEN
    forget_state(tmp_path, "a", "b.c", "iceberg")
    assert not path.parent.exists()


DEEP = pytest.param("[" * 200_000, id="deep")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"table": "a", "marks": [1], "unnamed": []}', DEEP]
)
def test_an_unreadable_file_counts_as_nothing_seen(tmp_path: Path, text: str) -> None:
    (tmp_path / "iceberg.seen").write_text(text)
    assert read_seen(tmp_path / "iceberg.seen") == Seen()


def test_no_age_is_negative() -> None:
    """Data fault 5, its kind: after a time line that was lost nothing would ever be old."""
    assert SEEN.at(7).marks == (Mark(5, 1), Mark(7, 3))
