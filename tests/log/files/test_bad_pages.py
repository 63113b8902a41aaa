"""Each page that could not be read has its own time."""

from itertools import chain

import numpy as np
import pytest

from smq.log.files.bad_pages import (
    PATIENCE,
    PATIENCE_SHORT,
    TRY_PAGES_MAX,
    BadPages,
    pages_of,
)
from smq.log.files.disk import PAGE_BYTES

ALL = range(16)
WAIT_MS, LATER_MS = PATIENCE.wait_ms, 100 * PATIENCE.wait_ms
COUNT_MAX, LOOKS_MAX = 1000, 1 << 20


@pytest.fixture
def pages() -> BadPages:
    return BadPages()


def note(pages: BadPages, now_ms: int, *bad: int, among: range = ALL) -> None:
    pages.note(among.start * PAGE_BYTES, len(among) * PAGE_BYTES, bad)
    pages.date(now_ms)


def over(pages: BadPages, *which: int) -> list[bool]:
    """Of each of these pages, whether it may be given up."""
    return [pages.are_over(range(page, page + 1), PATIENCE, LATER_MS) for page in which]


def fail_for_long(pages: BadPages, since_ms: int, *bad: int) -> None:
    for now_ms in (since_ms, since_ms + 1, since_ms + WAIT_MS):
        note(pages, now_ms, *bad)


def unread(pages: BadPages, among: range = ALL) -> list[int]:
    found: list[int] = pages.unread(among.start * PAGE_BYTES, len(among) * PAGE_BYTES).tolist()
    return found


def test_pages_of_bytes_are_all_that_have_some_of_them() -> None:
    assert pages_of(0, PAGE_BYTES) == range(1)
    assert pages_of(PAGE_BYTES - 1, 2) == range(2)


def test_reads_that_succeed_leave_no_trace(pages: BadPages) -> None:
    note(pages, 1)
    assert not pages.has_any(ALL)
    assert pages.first_failing(0) is None
    assert not len(pages.unread(0, 16 * PAGE_BYTES))


def test_a_page_counts_from_its_own_first_failure(pages: BadPages) -> None:
    for now_ms, bad in ((10, [3]), (20, [3]), (50, [3, 4]), (60, [3, 4]), (10 + WAIT_MS, [3, 4])):
        note(pages, now_ms, *bad)
    assert pages.failing().tolist() == [3, 4]
    assert pages.has_any(range(4, 6))
    assert not pages.has_any(range(5, 9))
    assert over(pages, 3, 4) == [True, False]
    assert not pages.are_over(ALL, PATIENCE, LATER_MS)
    note(pages, 50 + WAIT_MS, 4, among=range(4, 16))
    assert pages.are_over(ALL, PATIENCE, LATER_MS)


def test_the_failures_of_a_page_must_last_so_long(pages: BadPages) -> None:
    """It may have healed since the last one."""
    for now_ms in (0, 1, 2, WAIT_MS - 1):
        note(pages, now_ms, 3)
    assert over(pages, 3) == [False]
    note(pages, WAIT_MS, 3)
    assert over(pages, 3) == [True]


def test_a_few_failures_give_nothing_up_however_far_apart_they_lie(pages: BadPages) -> None:
    note(pages, 0, 3)
    note(pages, 2 * WAIT_MS, 3)
    assert over(pages, 3) == [False]
    assert pages.are_over(ALL, PATIENCE_SHORT, LATER_MS)
    note(pages, 4 * WAIT_MS, 3)  # As a disk does that takes minutes for each.
    assert over(pages, 3) == [True]


def test_a_good_read_begins_anew(pages: BadPages) -> None:
    fail_for_long(pages, 0, 3)
    assert over(pages, 3) == [True]
    note(pages, 101 * WAIT_MS)
    assert pages.failing().tolist() == []
    for now_ms in (102 * WAIT_MS, 102 * WAIT_MS + 1, 103 * WAIT_MS - 1):
        note(pages, now_ms, 3)
    assert over(pages, 3) == [False]


def test_a_page_that_was_read_since_counts_from_then(pages: BadPages) -> None:
    note(pages, 0, 3)
    note(pages, 10)
    note(pages, 20)
    assert not pages.are_over(ALL, PATIENCE, 10 + WAIT_MS - 1)
    assert pages.are_over(ALL, PATIENCE, 10 + WAIT_MS)


def test_a_page_of_which_only_a_part_was_read_may_still_fail(pages: BadPages) -> None:
    note(pages, 0, 3)
    pages.note(3 * PAGE_BYTES + 1, PAGE_BYTES, ())
    pages.note(2 * PAGE_BYTES, 2 * PAGE_BYTES - 1, ())
    assert pages.failing().tolist() == [3]


def test_an_undated_failure_counts_from_the_next_date(pages: BadPages) -> None:
    for bad in ([0], (), [0]):
        pages.note(0, PAGE_BYTES, bad)
    note(pages, 70, among=range(5, 6))
    for now_ms in (80, 70 + WAIT_MS - 1):
        note(pages, now_ms, 0)
    assert over(pages, 0) == [False]
    note(pages, 70 + WAIT_MS, 0)
    assert over(pages, 0) == [True]


def test_neighbours_that_fail_are_tried_together_and_as_many_behind_them(pages: BadPages) -> None:
    assert pages.to_try(16, COUNT_MAX, LOOKS_MAX) == []
    note(pages, 0, 8)
    assert pages.to_try(16, COUNT_MAX, LOOKS_MAX) == [(0, range(8, 10))]
    assert pages.to_try(9, COUNT_MAX, LOOKS_MAX) == [(0, range(8, 9))]
    note(pages, 10, 3, 4, 6, among=range(8))
    # Behind two are two, of which one fails, and is tried with them: no page twice.
    assert pages.to_try(16, COUNT_MAX, LOOKS_MAX) == [
        (0, range(8, 10)),
        (10, range(3, 4)),
        (10, range(4, 8)),
    ]
    assert pages.to_try(16, 1, LOOKS_MAX) == [(0, range(8, 10))]


def test_pages_given_up_leave_those_behind_in_the_groups_that_they_had(pages: BadPages) -> None:
    """New groups had one page that was tried long ago, and three that just were: the round took
    twice as many tries."""
    note(pages, 0, *range(8))
    groups = [(0, range(4)), (0, range(4, 8)), (0, range(8, 12)), (0, range(12, 16))]
    assert pages.to_try(16, COUNT_MAX, LOOKS_MAX) == groups
    for now_ms in (1, 1 + WAIT_MS):
        note(pages, now_ms, 0, among=range(1))
    assert pages.to_try(16, COUNT_MAX, LOOKS_MAX) == [(0, range(1, 4)), *groups[1:]]


def test_of_very_many_neighbours_some_are_tried_at_once(pages: BadPages) -> None:
    note(pages, 0, *range(TRY_PAGES_MAX + 1))
    tried = [list(found) for _, found in pages.to_try(1000, COUNT_MAX, LOOKS_MAX)]
    assert [*chain(*tried)] == [*range(2 * (TRY_PAGES_MAX + 1))]
    assert max(map(len, tried)) == TRY_PAGES_MAX


def test_pages_that_failed_for_long_are_not_tried_again_nor_those_behind(pages: BadPages) -> None:
    fail_for_long(pages, 0, 3, 4)
    assert pages.to_try(16, COUNT_MAX, LOOKS_MAX) == []
    note(pages, 2 * WAIT_MS, 3, 4, 5)
    assert pages.to_try(16, COUNT_MAX, LOOKS_MAX) == [
        (2 * WAIT_MS, range(5, 8)),
        (2 * WAIT_MS, range(8, 9)),
    ]


def test_a_dead_file_is_known_after_a_few_rounds(pages: BadPages) -> None:
    count, rounds = 16384, 0
    note(pages, 0, 0)
    while len(pages.failing()) < count:
        rounds += 1
        for _, found in pages.to_try(count, count, LOOKS_MAX):
            pages.note(found.start * PAGE_BYTES, len(found) * PAGE_BYTES, found)
        pages.date(rounds)
    assert rounds == 14


def test_of_very_many_pages_some_are_looked_at_with_each_call(pages: BadPages) -> None:
    """Of a dead segment each call took 2 ms of the loop, of a larger one more."""
    failing = [*range(6), 8, 9, 20]
    note(pages, 0, *failing, among=range(32))
    calls = [pages.to_try(32, COUNT_MAX, 4) for _ in range(5)]
    assert calls[:3] == [
        [(0, range(4))],
        [(0, range(4, 8)), (0, range(8, 12))],
        [(0, range(20, 22))],
    ]
    assert calls[3:] == calls[:2]
    pages.note(20 * PAGE_BYTES, PAGE_BYTES, ())
    assert [pages.to_try(32, COUNT_MAX, 4) for _ in range(2)] == calls[:2]


def test_a_file_whose_pages_are_all_given_up_is_not_looked_at(pages: BadPages) -> None:
    assert pages.open_max == 0
    fail_for_long(pages, 0, 3, 4)
    assert pages.open_max == 2
    for looks_max, left in ((1, 2), (2, 0)):
        assert pages.to_try(16, COUNT_MAX, looks_max) == []
        assert pages.open_max == left
    note(pages, LATER_MS, 3, 4)
    assert pages.open_max == 0
    note(pages, LATER_MS, 3, 4, 5)
    assert pages.open_max == 3
    assert pages.to_try(8, COUNT_MAX, LOOKS_MAX) == [(LATER_MS, range(5, 8))]


def test_readers_leave_to_the_log_what_fails(pages: BadPages) -> None:
    pages.note(0, 16 * PAGE_BYTES, [3])
    assert unread(pages) == []  # Nobody has a clock.
    pages.date(0)
    assert unread(pages) == unread(pages, range(3, 4)) == [3]
    assert unread(pages, range(4, 16)) == []
    assert pages.first_failing(3 * PAGE_BYTES + 1) == 3 * PAGE_BYTES
    assert pages.first_failing(4 * PAGE_BYTES) is None
    fail_for_long(pages, 1, 3)
    pages.date(LATER_MS)
    assert unread(pages) == [3]


def test_pages_that_a_read_did_not_come_to_are_tried_by_the_log(pages: BadPages) -> None:
    pages.date(0)
    pages.note(0, 16 * PAGE_BYTES, [3], np.array([4, 5]))
    assert unread(pages) == [3, 4, 5]
    pages.date(1)
    assert [*pages.to_try(6, COUNT_MAX, LOOKS_MAX)] == [(-1, range(4, 6)), (1, range(3, 4))]
    for now_ms in (2, 3, 1 + WAIT_MS):
        pages.note(0, 4 * PAGE_BYTES, [3], ())
        pages.note(0, 16 * PAGE_BYTES, (), [3, 4, 5])
        pages.date(now_ms)
    assert over(pages, 3, 4) == [True, False]  # It never failed itself.
    pages.note(5 * PAGE_BYTES, PAGE_BYTES, ())
    assert pages.failing().tolist() == [3, 4]


def test_a_read_that_does_not_come_to_pages_leaves_what_is_known_of_them(pages: BadPages) -> None:
    """It set them back, so that they never had failed for long while somebody read."""
    fail_for_long(pages, 0, 3, 4)
    pages.date(LATER_MS)
    pages.note(0, 16 * PAGE_BYTES, [3], [4])
    pages.date(LATER_MS)
    assert over(pages, 3, 4) == [True, True]
    assert pages.to_try(5, COUNT_MAX, LOOKS_MAX) == []


def test_a_read_that_leaves_pages_out_changes_nothing_of_them(pages: BadPages) -> None:
    note(pages, 0, 3)
    pages.note(0, 8 * PAGE_BYTES, (), (), [3, 4])
    assert pages.failing().tolist() == [3]
    pages.note(0, 8 * PAGE_BYTES, ())
    pages.note(0, 8 * PAGE_BYTES, (), (), [3])
    assert pages.failing().tolist() == []


def test_no_page_behind_the_end_is_tried(pages: BadPages) -> None:
    note(pages, 0, 4, 8, 9)
    assert pages.to_try(8, COUNT_MAX, LOOKS_MAX) == [(0, range(4, 6))]
    assert pages.to_try(9, 1, 1) == [(0, range(4, 6))]
