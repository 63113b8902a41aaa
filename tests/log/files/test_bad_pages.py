"""Each page that could not be read has its own time."""

import pytest

from smq.log.files.bad_pages import PATIENCE, PATIENCE_SHORT, TRY_PAGES_MAX, BadPages, pages_of
from smq.log.files.disk import PAGE_BYTES

ALL = range(16)
WAIT_MS = PATIENCE.wait_ms


@pytest.fixture
def pages() -> BadPages:
    return BadPages()


def over_from(pages: BadPages, which: range) -> int:
    """Since when they fail, by when they are given up."""
    end_ms = next(ms for ms in range(10**9) if pages.are_over(which, PATIENCE, ms * 10)) * 10
    return end_ms - WAIT_MS


def note(pages: BadPages, now_ms: int, *bad: int, among: range = ALL) -> None:
    pages.note(among.start * PAGE_BYTES, len(among) * PAGE_BYTES, bad)
    pages.date(now_ms)


def test_pages_of_bytes_are_all_that_have_some_of_them() -> None:
    assert pages_of(0, PAGE_BYTES) == range(1)
    assert pages_of(PAGE_BYTES - 1, 2) == range(2)


def test_reads_that_succeed_leave_no_trace(pages: BadPages) -> None:
    note(pages, 1)
    assert not pages.has_any(ALL)


def test_a_page_counts_from_its_own_first_failure(pages: BadPages) -> None:
    for now_ms in (10, 20, 50):
        note(pages, now_ms, 3)
    for now_ms in (60, 70, 80):
        note(pages, now_ms, 3, 4)
    assert pages.failing().tolist() == [3, 4]
    assert pages.has_any(range(4, 6))
    assert not pages.has_any(range(5, 9))
    assert over_from(pages, range(3, 4)) == 10
    assert over_from(pages, range(4, 5)) == over_from(pages, range(3, 5)) == 60


def test_a_few_failures_give_nothing_up_however_far_apart_they_lie(pages: BadPages) -> None:
    note(pages, 0, 3)
    note(pages, 2 * WAIT_MS, 3)
    assert not pages.are_over(ALL, PATIENCE, 3 * WAIT_MS)
    assert pages.are_over(ALL, PATIENCE_SHORT, 3 * WAIT_MS)
    note(pages, 4 * WAIT_MS, 3)  # As a disk does that takes minutes for each.
    assert pages.are_over(ALL, PATIENCE, 4 * WAIT_MS)


def test_a_good_read_begins_anew(pages: BadPages) -> None:
    for now_ms in (0, WAIT_MS, 100 * WAIT_MS):
        note(pages, now_ms, 3)
    assert over_from(pages, ALL) == 0
    note(pages, 101 * WAIT_MS)
    assert pages.failing().tolist() == []
    for now_ms in (102 * WAIT_MS, 102 * WAIT_MS + 1, 102 * WAIT_MS + 2):
        note(pages, now_ms, 3)
    assert over_from(pages, ALL) == 102 * WAIT_MS


def test_neighbours_that_fail_are_tried_together_until_they_have_failed_for_long(
    pages: BadPages,
) -> None:
    assert pages.to_try() == []
    note(pages, 0, 3)
    note(pages, 10, 4, 6, among=range(4, 16))
    assert pages.to_try() == [(0, range(3, 5)), (10, range(6, 7))]
    note(pages, 20, 3, 4)
    assert pages.to_try() == [(20, range(3, 5))]
    note(pages, WAIT_MS, 3, 4)
    assert pages.to_try() == [(WAIT_MS, range(4, 5))]
    note(pages, WAIT_MS + 10, 3, 4)
    assert pages.to_try() == []


def test_of_very_many_neighbours_some_are_tried_with_one_read(pages: BadPages) -> None:
    note(pages, 0, *range(TRY_PAGES_MAX + 1))
    assert [len(found) for _, found in pages.to_try()] == [TRY_PAGES_MAX, 1]


def test_a_page_that_was_read_since_counts_from_then(pages: BadPages) -> None:
    note(pages, 0, 3, 4)
    note(pages, 10, 4)
    note(pages, 20, 4)
    assert pages.failing().tolist() == [4]
    assert over_from(pages, range(3, 4)) == 10
    assert over_from(pages, ALL) == 0


def test_a_page_of_which_only_a_part_was_read_may_still_fail(pages: BadPages) -> None:
    note(pages, 0, 3)
    pages.note(3 * PAGE_BYTES + 1, PAGE_BYTES, ())
    pages.note(2 * PAGE_BYTES, 2 * PAGE_BYTES - 1, ())
    assert pages.failing().tolist() == [3]


def test_an_undated_failure_counts_from_the_next_date(pages: BadPages) -> None:
    for bad in ([0], (), [0]):
        pages.note(0, PAGE_BYTES, bad)
    note(pages, 70, among=range(5, 6))
    for now_ms in (80, 90):
        note(pages, now_ms, 0)
    assert over_from(pages, ALL) == 70
