"""Aborted transactions of a partition: order, look-ups within bounds, copies that stay."""

import tracemalloc
from random import Random

import numpy as np
import pytest

from smq.log.aborted import BLOCK_ROWS, LAST, AbortedRows
from smq.log.files.checkpoint import Aborted
from tests.line_count import lines_counted


def drawn(count: int, seed: int = 1) -> list[Aborted]:
    """Transactions in the order of their markers; some are long and begin before many others."""
    chance = Random(seed)
    found, offset = [], 0
    for i in range(count):
        offset += chance.randint(1, 5)
        first = max(0, offset - chance.choice((1, 2, 30, 5000)))
        found.append(Aborted(7, i % 11, 0, first, offset))
    return found


def filled(rows: list[Aborted]) -> AbortedRows:
    kept = AbortedRows()
    for each in rows:
        kept.add(each)
    kept.invariants()
    return kept


def in_range(
    rows: list[Aborted], start: int, end: int, count_max: int
) -> tuple[list[Aborted], int]:
    """What a list of all gives, by the rule."""
    found = [each for each in rows if each.last_offset >= start and each.first_offset < end]
    if len(found) > count_max:
        end = max(start + 1, found[count_max].first_offset)
        found = [each for each in rows if each.last_offset >= start and each.first_offset < end]
    if len(found) > count_max:
        end = max(start + 1, sorted(each.first_offset for each in found)[count_max])
        found = [each for each in found if each.first_offset < end]
    return found, end


@pytest.mark.parametrize("count", [1, 17, BLOCK_ROWS, BLOCK_ROWS + 1, 5000])
def test_a_range_has_those_that_overlap_it(count: int) -> None:
    rows = drawn(count)
    kept, end = filled(rows), rows[-1].last_offset + 1
    chance = Random(2)
    for _ in range(100):
        start = chance.randrange(end)
        limit, count_max = start + chance.choice((1, 50, end)), chance.choice((1, 10, 10_000))
        found = kept.overlapping(start, limit, count_max)
        assert (found.rows, found.end) == in_range(rows, start, limit, count_max)
        starts = [each.first_offset for each in found.rows]
        assert len(starts) <= count_max or found.end == start + 1


@pytest.mark.parametrize("count", [1, 17, BLOCK_ROWS, BLOCK_ROWS + 1, 5000])
def test_a_range_has_those_of_some_producers(count: int) -> None:
    rows = drawn(count)
    kept, end = filled(rows), rows[-1].last_offset + 1
    chance = Random(2)
    for _ in range(100):
        start = chance.randrange(end)
        limit = start + chance.choice((1, 50, end))
        found = [each for each in rows if each.last_offset >= start and each.first_offset < limit]
        assert kept.overlaps(start, limit) == bool(found)
        wanted = chance.sample(range(12), chance.randrange(5))
        told = [Aborted._make(row) for row in kept.of_producers(start, limit, wanted).tolist()]
        assert told == [each for each in found if each.producer_id in wanted]


@pytest.mark.parametrize("count", [1, 17, BLOCK_ROWS + 1, 3000])
def test_rows_below_an_offset_are_forgotten_and_copies_unchanged(count: int) -> None:
    rows, chance = drawn(count), Random(3)
    kept: AbortedRows | None = filled(rows)
    while kept is not None:
        copies = kept.copies()
        before = [each.copy() for each in copies]
        offset = kept.first_marker + chance.choice((0, 1, 3, 2000))
        left = [each for each in rows if each.last_offset >= offset]
        kept = kept.forget(offset)
        assert (kept is None) == (not left)
        if kept is not None:
            newest = Aborted(7, 1, 0, kept.end, kept.end + chance.randint(0, 2))
            kept.add(newest)
            kept.invariants()
            assert kept.overlapping(0, 2**62, 10_000).rows == [*left, newest]
            rows = [*left, newest] if len(left) > 5 else left
            kept = AbortedRows.of(np.array(rows))
        assert all((a == b).all() for a, b in zip(copies, before, strict=True))


def test_rows_of_a_checkpoint_are_continued() -> None:
    rows = drawn(3000)
    kept = AbortedRows.of(np.concatenate(filled(rows[:2000]).copies()))
    for each in rows[2000:]:
        kept.add(each)
    kept.invariants()
    assert (np.concatenate(kept.copies()) == np.array(rows)).all()


def test_a_hundred_thousand_cost_little_memory_and_few_steps_to_look_up() -> None:
    """data fault 14: each took 880 bytes, a fetch walked all, and a checkpoint copied all."""
    rows = [Aborted(7, i, 0, 2 * i, 2 * i + 1) for i in range(100_000)]
    tracemalloc.start()
    kept = filled(rows)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < 50 * len(rows)
    with lines_counted() as lines:
        found = kept.overlapping(1000, 2**62, 100)
        copies = kept.copies()
    assert found.end == 1200
    assert len(found.rows) == 100
    assert lines.count < 1000
    last = copies[-1]
    assert last.base is not None  # No row is copied.
    assert int(last[-1, LAST]) == rows[-1].last_offset
