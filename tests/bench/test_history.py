"""The history of ratios: a fall fails until a sentence explains it."""

from pathlib import Path

import pytest

from bench import history
from bench.history import COLUMNS, HEADLINES, Entry, entries, entry_of, unexplained, write
from bench.report import Row

GOOD = (2.0,) * len(COLUMNS)


def entry(ratios: tuple[float | None, ...] = GOOD, machine: str = "m", why: str = "") -> Entry:
    return Entry("2026-11-28", machine, "a change", ratios, why)


def changed(column: str, ratio: float | None) -> tuple[float | None, ...]:
    return tuple(ratio if each == column else 2.0 for each in COLUMNS)


def test_each_fall_of_the_documented_history_is_explained() -> None:
    assert len(entries()) >= 2
    assert unexplained(entries()) == []


def test_a_ratio_that_falls_by_more_than_a_tenth_needs_a_sentence() -> None:
    fallen = changed("produce 1 MB", 1.79)
    [fall] = unexplained([entry(), entry(fallen)])
    assert str(fall) == "produce 1 MB: 2 (a change) → 1.79 (a change)"
    assert unexplained([entry(), entry(fallen, why="produce 1 MB: a sentence")]) == []
    assert unexplained([entry(), entry(changed("produce 1 MB", 1.81))]) == []


def test_a_time_falls_when_it_becomes_longer() -> None:
    assert [each.column for each in unexplained([entry(), entry(changed("p99", 2.21))])] == ["p99"]
    assert unexplained([entry(), entry(changed("p99", 1.0))]) == []


def test_rows_are_compared_with_the_last_of_their_machine() -> None:
    slow = changed("p99", 3.0)
    assert unexplained([entry(), entry(slow, machine="another")]) == []
    assert len(unexplained([entry(), entry(machine="another"), entry(slow)])) == 1


def test_a_line_without_a_ratio_is_no_fall() -> None:
    assert unexplained([entry(), entry(changed("produce 1 MB", None))]) == []


def test_the_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    document = tmp_path / "performance.md"
    document.write_text(f"before\n{history.BEGIN}\n{history.END}\nafter\n")
    rows = [Row(words, 1.0, 2.0, 1234.5, "") for words in [*HEADLINES.values()][1:]]
    made = entry_of(rows, "2026-11-28", "m", "a change")
    write([made, entry()], document)
    assert document.read_text().startswith("before\n")
    assert document.read_text().endswith("\nafter\n")
    first, second = entries(document)
    assert first.ratios == (None, *(1234.0,) * (len(COLUMNS) - 1))
    assert second == entry()


def test_a_document_without_marks_is_refused(tmp_path: Path) -> None:
    (tmp_path / "performance.md").write_text("nothing")
    with pytest.raises(ValueError, match="lost the marks"):
        entries(tmp_path / "performance.md")
