"""Results in a file, and compared."""

from pathlib import Path
from typing import Any

import pytest

from smq.load.results import BadResults, append, compared, number, read, stamped, title


def a_result(rate: float, p99: float, size: int = 10) -> dict[str, Any]:
    figures = {"rates": {"acked_msg_s": rate}, "latency_us": {"publish": {"p99": p99}}}
    return stamped(figures, "sizes", {"messageSize": size}, "here:9092")


def test_results_are_appended_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    first, second = a_result(1, 2), a_result(3, 4)
    append(path, first)
    append(path, second)
    assert read(path) == [first, second]
    assert title(first) == "sizes, messageSize 10"
    assert first["machine"]["cores"] >= 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("what\n", "line 1, is not a result"),
        ("[1]\n", "line 1, is not a result"),
        ('{"format": 1}\n{}\n', "line 2, is not a result"),
        ('{"format": 2}\n', "line 1, has format 2; this smq knows 1"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(text)
    with pytest.raises(BadResults, match=says):
        read(path)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadResults, match="cannot be read"):
        read(tmp_path / "none")


def test_the_newest_of_the_same_step_is_compared() -> None:
    before = [a_result(1, 1), a_result(100, 50), a_result(7, 7, size=99)]
    rows = list(compared([a_result(200, 25)], before))
    assert [(row.words, row.ratio, row.better) for row in rows] == [
        ("acknowledged, msg/s", 2.0, "higher"),
        ("publish p99, µs", 0.5, "lower"),
    ]


def test_numbers_have_three_digits() -> None:
    assert [number(each) for each in (None, 0.12345, 12.345, 12345.6)] == [
        "", "0.123", "12.3", "12,346",
    ]  # fmt: skip
