"""The pages of a file that could not be read, and since when each of them fails.

An error of the disk may end, so a page is waited for, by itself: that another page of its file
fails says nothing of it.

    unknown, or read ── a read fails ──▶ failing ── a read succeeds ──▶ read
                                            └── for long, and often: over, it may be given up

A read of a page that fails may take the disk seconds. So the log tries such pages by itself, a few
at a time (to_try), and readers leave them out (unread). Of pages that lie together mostly
all fail, so those behind a run are tried too, as many as the run has: what is known doubles with
each round, and a dead segment has failed for long, page by page, soon after its first page.
"""

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from smq.log.files.disk import PAGE_BYTES

TRY_PAGES_MAX = 4  # With one job: each may take a failing disk seconds.


class PagePatience(NamedTuple):
    """How long a page must have failed without a good read, and how often, before it is given up.

    Not how close its failures lie: a disk that needs a minute for each would never be given up.
    """

    wait_ms: int
    tries: int


PATIENCE = PagePatience(60_000, 3)  # Longer than most errors that end.
PATIENCE_SHORT = PagePatience(5000, 2)

_FAILS, _READ = 1, 2
_PAGE = np.dtype(
    [("state", "u1"), ("is_met", "?"), ("since_ms", "<i8"), ("tried_ms", "<i8"), ("tries", "<i8")]
)
"""A page's state, if it is known, since when it has it and when it was met last (by the clock of
OwnTries.waited_ms), and how often. -1: never. `is_met`: it was since the last date()."""


def pages_of(at: int, length: int) -> range:
    """The pages that have these bytes of a file."""
    return range(at // PAGE_BYTES, -(-(at + length) // PAGE_BYTES))


def _are_over(rows: np.ndarray, patience: PagePatience) -> np.ndarray:
    """Of each page (of _PAGE, failing), whether it has failed for so long (bool)."""
    has_lasted = rows["tried_ms"] - rows["since_ms"] >= patience.wait_ms
    found: np.ndarray = has_lasted & (rows["tries"] >= patience.tries)
    return found


class BadPages:
    """Those of one file: a read of each has failed; a later one may not have.

    Reads have no clock. What they meet is dated by who has one, soon after.
    """

    def __init__(self) -> None:
        self._rows = np.zeros(0, _PAGE)  # By page; what lies behind is unknown.
        self._has_undated = False
        self._now_ms = -1  # Of the last date().
        self._failing: np.ndarray | None = None  # As failing(); None: to be made.
        self._are_all_over = False  # Those that fail, as of the last to_try().
        self._next = 0  # The page from which on to_try() looks next.

    def failing(self) -> np.ndarray:
        """The pages of which the last read has failed (int64, ascending)."""
        if self._failing is None:
            self._failing = np.flatnonzero(self._rows["state"] == _FAILS)
        return self._failing

    @property
    def open_max(self) -> int:
        """How many pages to_try() has to look at: all that fail, unless none of them is to be
        tried."""
        return 0 if self._are_all_over else len(self.failing())

    def first_failing(self, at: int) -> int | None:
        """Where the first page begins that fails, of those that have byte `at` or one behind it."""
        failing = self.failing()
        i = int(np.searchsorted(failing, at // PAGE_BYTES))
        return int(failing[i]) * PAGE_BYTES if i < len(failing) else None

    def failing_of(self, pages: range) -> np.ndarray:
        """Those of these pages that fail (int64, ascending)."""
        failing = self.failing()
        first, end = np.searchsorted(failing, (pages.start, pages.stop))
        found: np.ndarray = failing[first:end]
        return found

    def has_any(self, pages: range) -> bool:
        """Whether any of these pages fails or did."""
        return bool(self._rows["state"][pages.start : pages.stop].any())

    def note(
        self,
        at: int,
        length: int,
        bad: Collection[int],
        untried: Collection[int] = (),
        left_out: Collection[int] = (),
    ) -> None:
        """A read of these bytes of the file has failed in the pages `bad`, and has not come to
        those of `untried`, which may be bad too. It was not to read those of `left_out`: they
        failed when it began, and may be well by now. It has succeeded in the others."""
        if not (len(bad) or len(untried) or len(self._rows)):
            return
        failed, left = np.array([*bad], np.int64), np.array([*untried], np.int64)
        self._reach(1 + max(failed.max(initial=-1), left.max(initial=-1)))
        rows = self._rows
        # Of a page that was read in part the disk may lack the rest.
        first, end = -(-at // PAGE_BYTES), (at + length) // PAGE_BYTES
        were_bad = first + np.flatnonzero(rows["state"][first:end] == _FAILS)
        unread = failed, left, np.array([*left_out], np.int64)
        read = np.setdiff1d(were_bad, np.concatenate(unread))
        self._begin(read, _READ)
        self._begin(failed[rows["state"][failed] != _FAILS], _FAILS)
        rows["is_met"][read] = rows["is_met"][failed] = True
        self._begin(left[rows["state"][left] != _FAILS], _FAILS)
        self._has_undated |= bool(len(read) or len(failed))

    def _reach(self, end: int) -> None:
        """Have rows up to a page."""
        if end > len(self._rows):
            more = np.zeros(max(end, 2 * len(self._rows)) - len(self._rows), _PAGE)
            self._rows = np.concatenate((self._rows, more))

    def _begin(self, pages: np.ndarray, state: int) -> None:
        """Pages have this state now, and had another one before."""
        if len(pages):
            self._rows[pages] = (state, False, -1, -1, 0)
            self._failing, self._are_all_over = None, False

    def date(self, now_ms: int) -> None:
        """What was met since the last call counts from now on."""
        self._now_ms = now_ms
        if not self._has_undated:
            return
        rows, met = self._rows, np.flatnonzero(self._rows["is_met"])
        fresh = met[rows["since_ms"][met] < 0]
        rows["since_ms"][fresh] = rows["tried_ms"][met] = now_ms
        rows["tries"][met] += 1
        rows["is_met"][met] = self._has_undated = False

    def are_over(self, pages: range, patience: PagePatience, now_ms: int) -> bool:
        """Whether all of these pages that are bad, one at least, have failed for so long.

        If all were read since: whether that is so long ago, as an answer may have what was read
        before. What is not dated yet has lasted for no time.
        """
        rows = self._rows[pages.start : pages.stop]
        failing = rows[rows["state"] == _FAILS]
        if len(failing):
            return bool(_are_over(failing, patience).all())
        since_ms = rows["since_ms"][rows["state"] == _READ]
        return bool(since_ms.min() >= 0 and now_ms >= since_ms.max() + patience.wait_ms)

    def unread(self, at: int, length: int) -> np.ndarray:
        """Of the pages that have these bytes, those that a reader is not to read (int64): they
        fail, and the log tries them by itself."""
        pages = pages_of(at, length)
        return self.failing_of(pages if self._now_ms >= 0 else range(0))  # Else nobody tries them.

    def to_try(self, end: int, count_max: int, looks_max: int) -> list[tuple[int, range]]:
        """What to try of the file's first `end` pages, neighbours together, and when it was tried
        last; the `count_max` that were tried first, of `looks_max` that fail. The next call looks
        at the following ones.

        That is the pages that fail and have not done so for PATIENCE yet, and those behind a run of
        such, unless that ends with one that has.
        """
        failing, end = self._to_look_at(end, looks_max)
        if not len(failing):
            return []
        rows = self._rows[failing]
        are_open, tried_ms = ~_are_over(rows, PATIENCE), rows["tried_ms"]
        if not are_open.any():
            self._are_all_over = len(failing) == len(self.failing())
            return []
        starts = np.flatnonzero(np.diff(failing, prepend=-2) != 1)
        ends = np.append(starts[1:], len(failing))
        room = np.append(failing[starts[1:]], end) - failing[ends - 1] - 1
        ahead = np.where(are_open[ends - 1], np.minimum(ends - starts, room), 0)
        behind = np.repeat(failing[ends - 1] + 1 - np.cumsum(ahead) + ahead, ahead)
        behind += np.arange(len(behind))
        pages = np.concatenate((failing[are_open], behind))
        times = np.concatenate((tried_ms[are_open], np.repeat(tried_ms[ends - 1], ahead)))
        order = np.argsort(pages)
        return _first_tried(pages[order], times[order], count_max)

    def _to_look_at(self, end: int, looks_max: int) -> tuple[np.ndarray, int]:
        """Pages that fail, from the next one on, and where what lies behind them ends."""
        failing = self.failing()
        failing = failing[: np.searchsorted(failing, end)]
        if len(failing) <= looks_max:
            return failing, end
        first = int(np.searchsorted(failing, self._next))
        if first == len(failing):
            first = 0
        behind = failing[first + looks_max :]
        if len(behind):
            end = int(behind[0])
        self._next = int(end)
        return failing[first : first + looks_max], end


def _first_tried(
    pages: np.ndarray, tried_ms: np.ndarray, count_max: int
) -> list[tuple[int, range]]:
    """Pages (ascending), neighbours together, and when they were tried; those tried first."""
    if not len(pages):
        return []
    is_first = np.diff(pages, prepend=-2) != 1
    heads = np.flatnonzero(is_first | (pages % TRY_PAGES_MAX == 0))
    counts = np.diff(heads, append=len(pages))
    times = np.minimum.reduceat(tried_ms, heads)
    chosen = np.argsort(times, kind="stable")[:count_max]
    rows = zip(times[chosen], pages[heads[chosen]], counts[chosen], strict=True)
    return [(int(time), range(int(page), int(page + count))) for time, page, count in rows]
