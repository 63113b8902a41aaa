"""Each page that could not be read has its own time."""

import pytest

from smq.log.files.bad_pages import BAD_MS, TRY_PAGES_MAX, BadPages, pages_of
from smq.log.files.disk import PAGE_BYTES

ALL = range(16)


@pytest.fixture
def pages() -> BadPages:
    return BadPages()


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
    note(pages, 10, 3)
    note(pages, 50, 3, 4)
    assert 3 in pages
    assert 5 not in pages
    assert pages.has_any(range(4, 6))
    assert not pages.has_any(range(5, 9))
    assert (pages.since_ms(range(3, 4)), pages.since_ms(range(4, 5))) == (10, 50)
    assert pages.since_ms(range(3, 5)) == 50


def test_failures_far_apart_have_different_causes(pages: BadPages) -> None:
    for now_ms in (0, BAD_MS - 1):
        note(pages, now_ms, 3)
    assert pages.since_ms(ALL) == 0
    note(pages, 2 * BAD_MS, 3)
    assert pages.since_ms(ALL) == 2 * BAD_MS


def test_a_page_that_failed_for_long_is_bad_until_it_is_read(pages: BadPages) -> None:
    for now_ms in (0, BAD_MS, 100 * BAD_MS):
        note(pages, now_ms, 3)
    assert pages.since_ms(ALL) == 0
    note(pages, 101 * BAD_MS)
    note(pages, 102 * BAD_MS, 3)
    assert pages.since_ms(ALL) == 102 * BAD_MS


def test_neighbours_that_fail_are_tried_together_until_they_have_failed_for_long(
    pages: BadPages,
) -> None:
    assert pages.to_try() == []
    note(pages, 0, 3)
    note(pages, 10, 4, 6, among=range(4, 16))
    assert pages.to_try() == [(0, range(3, 5)), (10, range(6, 7))]
    note(pages, 20, 3, 4)
    assert pages.to_try() == [(20, range(3, 5))]
    note(pages, BAD_MS, 3, 4)
    assert pages.to_try() == [(BAD_MS, range(4, 5))]
    note(pages, BAD_MS + 10, 3, 4)
    assert pages.to_try() == []


def test_of_very_many_neighbours_some_are_tried_with_one_read(pages: BadPages) -> None:
    note(pages, 0, *range(TRY_PAGES_MAX + 1))
    assert [len(found) for _, found in pages.to_try()] == [TRY_PAGES_MAX, 1]


def test_a_page_that_was_read_since_counts_from_then(pages: BadPages) -> None:
    note(pages, 0, 3, 4)
    note(pages, 10, 4)
    note(pages, 20, 4)
    assert 3 in pages
    assert pages.since_ms(range(3, 4)) == 10
    assert pages.since_ms(ALL) == 0
    note(pages, 30, 3, 4)
    assert pages.since_ms(range(3, 4)) == 30


def test_a_page_of_which_only_a_part_was_read_may_still_fail(pages: BadPages) -> None:
    note(pages, 0, 3)
    pages.note(3 * PAGE_BYTES + 1, PAGE_BYTES, ())
    pages.note(2 * PAGE_BYTES, 2 * PAGE_BYTES - 1, ())
    pages.date(10)
    assert pages.since_ms(ALL) == 0


def test_an_undated_failure_counts_from_the_next_date(pages: BadPages) -> None:
    pages.note(0, PAGE_BYTES, [0])
    pages.note(0, PAGE_BYTES, ())
    pages.note(0, PAGE_BYTES, [0])
    note(pages, 7, among=range(5, 6))
    assert pages.since_ms(ALL) == 7
