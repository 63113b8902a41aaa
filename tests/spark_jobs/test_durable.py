"""Small files of jobs: replaced as a whole, and checked by later runs."""

from pathlib import Path

import pytest

from smq.tables.plan import Unreadable
from spark_jobs.durable import claim, load, save


def test_a_file_says_what_was_saved_last(tmp_path: Path) -> None:
    path = tmp_path / "_progress.json"
    assert load(path) is None
    for value in ({"rows": 1}, {"rows": 2, "more": [None]}):
        save(path, value)
        assert load(path) == value
    assert [each.name for each in tmp_path.iterdir()] == ["_progress.json"]


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff"])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "_progress.json"
    path.write_bytes(content)
    with pytest.raises(Unreadable, match=r"_progress\.json"):
        load(path)


def test_a_directory_is_of_one_job_with_the_same_options(tmp_path: Path) -> None:
    path = tmp_path / "table" / "_decode.json"
    for _ in range(2):
        claim(path, {"topic": "orders", "schema": "a"})
    with pytest.raises(Unreadable, match="made with another schema; name a new directory"):
        claim(path, {"topic": "orders", "schema": "b"})
    with pytest.raises(Unreadable, match="another schema and topic"):
        claim(path, {"topic": "others", "schema": "b"})
    with pytest.raises(Unreadable, match="is not a table of this job"):
        claim(tmp_path / "_decode.json", {})
