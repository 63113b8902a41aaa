"""The content of frames of adoptions, and what of it no log writes."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from shm.kernels.base.words import FRAME_ALIGNMENT_BYTES, FRAME_HEADER_BYTES
from smq.log.files.adopted import (
    PAGE_ABORTED,
    PAGE_OPEN,
    PAGE_ROW,
    PLACES,
    AdoptedRow,
    Adoption,
    AdoptionPart,
    content_of,
    judge_page,
    page_of,
    read_content,
)
from smq.log.files.bounds import INT32

ROW = AdoptedRow(3, 20, 15, 10, 1_700, 400, 55, 0, 1, 1)
FIRST = page_of(PAGE_ROW, np.array([ROW], np.int64))
OPEN = page_of(PAGE_OPEN, np.array([(7, 11, 0, 12, 1_700)], np.int64))
ABORTED = page_of(PAGE_ABORTED, np.array([(7, 12, 0, 11, 19)], np.int64))
PART = AdoptionPart(7, 9, 1, 25, 0, 3)


def adoption(*pages: np.ndarray, start: int = 25) -> Adoption:
    return Adoption(7, 9, 1, start, 3, 2048, list(pages))


@pytest.mark.parametrize("page", [FIRST, OPEN, ABORTED])
def test_a_part_is_read_as_it_was_written_and_fills_whole_lines(page: np.ndarray) -> None:
    content = content_of(PART, page)
    assert (len(content) + FRAME_HEADER_BYTES) % FRAME_ALIGNMENT_BYTES == 0
    part, found = read_content(content)
    assert part == PART
    assert found.tolist() == page.tolist()


@given(st.binary(max_size=400))
def test_any_bytes_are_a_part_or_refused(data: bytes) -> None:
    try:
        read_content(np.frombuffer(data, np.uint8))
    except ValueError:
        return
    assert len(data) >= 80


@pytest.mark.parametrize(
    ("place", "value"),
    [(0, 4), (0, -1), (1, 2), (1, -1), (1, 2**62), (2, -1), (3, 2**63 - 1), (9, -1), (11, -5)],
)
def test_a_page_that_no_log_makes_is_refused(place: int, value: int) -> None:
    page = FIRST.copy()
    page[place] = value
    with pytest.raises(ValueError, match=r"bounds|page"):
        judge_page(page)


def test_an_adoption_has_its_row_first_and_its_ends_in_order() -> None:
    whole = adoption(FIRST, OPEN, ABORTED)
    whole.judge(PLACES, INT32)
    assert whole.is_whole
    assert whole.row == ROW
    assert whole.rows_of(PAGE_OPEN).tolist() == [[7, 11, 0, 12, 1_700]]
    wrong = page_of(PAGE_ROW, np.array([ROW._replace(decided_end=21)], np.int64))
    for each in (
        adoption(OPEN),
        adoption(FIRST, FIRST),
        adoption(),
        adoption(FIRST, start=19),
        adoption(wrong),
    ):
        with pytest.raises(ValueError, match=r"bounds|page|order"):
            each.judge(PLACES, INT32)
