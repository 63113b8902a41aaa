"""Adoptions: what a log has taken over of a partition that may come to be led here.

The content of a frame of FRAME_KIND_ADOPTION, whose check covers all of it (int64 words):

    0        1      2        3      4     5           6       8       9
    +--------+------+--------+------+-----+-----------+-------+-------+------+----------------+
    |number  |epoch |attempt |start |part |part count |(zero) |kind   |rows  | the rows       |
    +--------+------+--------+------+-----+-----------+-------+-------+------+----------------+
     part                                                      page

An adoption is whole once all its parts have come, in order. The first page is the partition's row,
the others are of producers, open and aborted transactions. A frame is filled up to whole lines.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import numpy as np

from shm.kernels.base.words import FRAME_ALIGNMENT_BYTES, FRAME_HEADER_BYTES
from shm.kernels.log.producers import PRODUCER_COLUMNS
from smq.log.files.bounds import (
    INT32,
    INT64,
    NUMBERS,
    Bounds,
    require,
    require_producers,
    require_transactions,
)
from smq.model.setting import INT64_MAX

PART_WORDS = 8
PAGE_HEAD_WORDS = 2
PAGE_ROW, PAGE_PRODUCERS, PAGE_OPEN, PAGE_ABORTED = range(4)
PLACES: Bounds = (0, INT64_MAX // 2)
_LINE_WORDS = FRAME_ALIGNMENT_BYTES // 8
_HEADER_WORDS = FRAME_HEADER_BYTES // 8


class AdoptionPart(NamedTuple):
    """Which part of which adoption a frame has; the partition is led from offset `start` on."""

    number: int
    epoch: int
    attempt: int
    start: int
    part: int
    part_count: int


class AdoptedRow(NamedTuple):
    """What a log takes over of a partition's row, and how many rows of each kind follow."""

    log_start: int
    sealed_end: int
    decided_end: int
    compacted_end: int
    max_timestamp: int
    unsealed_bytes: int
    unsealed_since_ms: int
    producer_count: int
    open_count: int
    aborted_count: int


_COLUMNS = {
    PAGE_ROW: len(AdoptedRow._fields),
    PAGE_PRODUCERS: PRODUCER_COLUMNS,
    PAGE_OPEN: 5,
    PAGE_ABORTED: 5,
}


@dataclass(slots=True)
class Adoption:
    """An adoption as far as its parts have come: `position` is the end of the last one's frame.

    Invariant: pages[0] is of kind PAGE_ROW, and no other is.
    """

    number: int
    epoch: int
    attempt: int
    start: int
    part_count: int
    position: int = 0
    pages: list[np.ndarray] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether all parts have come."""
        return len(self.pages) == self.part_count

    @property
    def head(self) -> list[int]:
        """What a checkpoint says of it beside its pages."""
        which = self.number, self.epoch, self.attempt, self.start, self.part_count, self.position
        return [*which, len(self.pages)]

    @property
    def row(self) -> AdoptedRow:
        """Its first page."""
        return AdoptedRow._make(_rows(self.pages[0])[0].tolist())

    def rows_of(self, kind: int) -> np.ndarray:
        """All rows of a kind, int64 [n, columns]."""
        found = [_rows(page) for page in self.pages if page[0] == kind]
        return np.concatenate([np.zeros((0, _COLUMNS[kind]), np.int64), *found])

    def judge(self, places: Bounds, epochs: Bounds) -> None:
        """Raise ValueError unless a log can have written it; `places` bounds offsets and
        positions."""
        require([self.number], NUMBERS)
        require([self.epoch], epochs)
        require([self.attempt, self.part_count], INT64)
        require([self.start, self.position], places)
        require([len(self.pages)], (1, self.part_count))
        for i, page in enumerate(self.pages):
            if (page[0] == PAGE_ROW) != (i == 0):
                raise ValueError("a page out of order")
            judge_page(page, places)
        row = self.row
        if not row.compacted_end <= row.decided_end <= row.sealed_end <= self.start:
            raise ValueError("its ends are in no order")
        if not row.log_start <= self.start:
            raise ValueError("it starts above its end")


def page_of(kind: int, rows: np.ndarray) -> np.ndarray:
    """A page with these rows, int64 [n, columns of the kind]."""
    assert rows.shape[1] == _COLUMNS[kind]
    return np.concatenate([np.array([kind, len(rows)], np.int64), rows.reshape(-1)])


def judge_page(page: np.ndarray, places: Bounds = PLACES) -> None:
    """Raise ValueError unless a log can have written a page: a snapshot may come from anywhere."""
    rows = _rows(page)
    if page[0] == PAGE_ROW:
        require([len(rows)], (1, 1))
        row = AdoptedRow._make(rows[0].tolist())
        require([row.log_start, row.sealed_end, row.decided_end, row.compacted_end], places)
        require([row.unsealed_bytes, row.producer_count, row.open_count], places)
        require([row.aborted_count], places)
    elif page[0] == PAGE_PRODUCERS:
        require_producers(rows)
    else:
        none = np.zeros((0, 5), np.int64)
        is_open = page[0] == PAGE_OPEN
        require_transactions(rows if is_open else none, none if is_open else rows, places)


def content_of(part: AdoptionPart, page: np.ndarray) -> np.ndarray:
    """The content (uint8) of the frame of a part; with the frame's header it fills whole lines."""
    used = PART_WORDS + len(page)
    words = np.zeros(used + -(used + _HEADER_WORDS) % _LINE_WORDS, np.int64)
    words[: len(part)] = part
    words[PART_WORDS:used] = page
    return words.view(np.uint8)


def read_content(content: np.ndarray) -> tuple[AdoptionPart, np.ndarray]:
    """The part of a frame's content (uint8), and its page. Raises ValueError for what no log
    writes."""
    if len(content) % 8 or len(content) < 8 * (PART_WORDS + PAGE_HEAD_WORDS):
        raise ValueError("no words")
    words = content.copy().view(np.int64)
    part, page = AdoptionPart._make(words[: len(AdoptionPart._fields)].tolist()), words[PART_WORDS:]
    require([part.number], NUMBERS)
    require([part.epoch], INT32)
    require([part.start], PLACES)
    require([part.part], (0, part.part_count - 1))
    page = page[: _words_of(page)].copy()
    judge_page(page)
    return part, page


def read_adoptions(heads: Sequence[Sequence[int]], words: np.ndarray) -> list[Adoption]:
    """The adoptions of a checkpoint, of which judge() has seen nothing. Raises ValueError."""
    pages, adoptions = _pages(words), []
    for *which, count in heads:
        require([*which, count], INT64)
        number, epoch, attempt, start, part_count, position = which
        found = list(islice(pages, count))
        adoptions.append(Adoption(number, epoch, attempt, start, part_count, position, found))
    if next(pages, None) is not None or any(not each.pages for each in adoptions):
        raise ValueError("pages of no adoption")
    return adoptions


def _pages(words: np.ndarray) -> Iterator[np.ndarray]:
    while len(words):
        end = _words_of(words)
        yield words[:end].copy()
        words = words[end:]


def _words_of(page: np.ndarray) -> int:
    """The words of the page that some words begin with. Raises ValueError."""
    if len(page) < PAGE_HEAD_WORDS or int(page[0]) not in _COLUMNS:
        raise ValueError("no page")
    columns = _COLUMNS[int(page[0])]
    require([int(page[1])], (0, (len(page) - PAGE_HEAD_WORDS) // columns))
    return PAGE_HEAD_WORDS + int(page[1]) * columns


def _rows(page: np.ndarray) -> np.ndarray:
    if _words_of(page) != len(page):
        raise ValueError("more than a page")
    return page[PAGE_HEAD_WORDS:].reshape(-1, _COLUMNS[int(page[0])])
