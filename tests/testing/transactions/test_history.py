"""Notes of programs that are killed at any moment, and their meaning."""

from pathlib import Path

from smq.testing.transactions.history import Attempt, Copy, Fate, History, Item, Notes


def test_a_copy_is_packed_and_unpacked() -> None:
    for origin in (None, Attempt(1, 2, 3)):
        copy = Copy(Item(1, 70_000), Attempt(4, 5, 6), origin)
        assert Copy.unpacked(copy.packed()) == copy


def test_the_notes_of_a_life_give_the_fate_of_each_attempt(tmp_path: Path) -> None:
    notes = Notes(tmp_path / "notes")
    items = [Item(0, 1), Item(0, 2)]
    for fate in (Fate.COMMITTED, Fate.ABORTED, None):
        attempt = notes.begins(items)
        notes.commits(attempt)
        if fate is not None:
            notes.ends(attempt, fate)
    notes.begins(items)  # It is killed before it commits, and in the middle of a line.
    lines = [*(tmp_path / "notes").read_text().splitlines(), '{"what": "com']
    history = History()
    history.add_lines(7, 1, "t", lines)
    fates = [Fate.COMMITTED, Fate.ABORTED, Fate.UNKNOWN, Fate.ABORTED]
    assert [each.fate for each in history.tried.values()] == fates
    assert history.tried[Attempt(7, 1, 4)].items == items
    assert (history.count(Fate.ABORTED), history.count(*Fate)) == (2, 4)
