"""The pages of a file that could not be read, and since when each of them fails.

An error of the disk may end, so a page is waited for, by itself: that another page of its file
fails says nothing of it.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from smq.log.files.disk import PAGE_BYTES

TRY_PAGES_MAX = 4  # With one read: each may take a failing disk seconds.


class PagePatience(NamedTuple):
    """How long a page must have failed without a good read, and how often, before it is given up.

    Not how close its failures lie: a disk that needs a minute for each would never be given up.
    """

    wait_ms: int
    tries: int


PATIENCE = PagePatience(60_000, 3)  # Longer than most errors that end.
PATIENCE_SHORT = PagePatience(5000, 2)


def pages_of(at: int, length: int) -> range:
    """The pages that have these bytes of a file."""
    return range(at // PAGE_BYTES, -(-(at + length) // PAGE_BYTES))


@dataclass(slots=True)
class _BadPage:
    """When a page's present state was first and last met (monotonic), and how often; -1: see
    BadPages.date()."""

    fails: bool = True
    since_ms: int = -1
    tried_ms: int = -1
    tries: int = 0

    def is_over(self, patience: PagePatience, now_ms: int) -> bool:
        """Whether it has failed for so long."""
        return self.tries >= patience.tries and now_ms >= self.since_ms + patience.wait_ms


class BadPages:
    """Those of one file: a read of each has failed; a later one may not have.

    Reads have no clock. What they meet is dated by who has one, soon after.
    """

    def __init__(self) -> None:
        self._pages: dict[int, _BadPage] = {}
        self._undated: set[int] = set()
        self._failing: np.ndarray | None = None  # As failing(); None: to be made.

    def failing(self) -> np.ndarray:
        """The pages of which the last read has failed (int64, ascending)."""
        if self._failing is None:
            self._failing = np.array(
                sorted(page for page, known in self._pages.items() if known.fails), np.int64
            )
        return self._failing

    def has_any(self, pages: range) -> bool:
        """Whether any of these pages is among them."""
        return bool(self._pages) and any(page in self._pages for page in pages)

    def note(self, at: int, length: int, bad: Collection[int]) -> None:
        """A read of these bytes of the file has failed in the pages `bad`, and in no others."""
        if not bad and not self._pages:
            return
        failed = set(bad)
        # Of a page that was read in part the disk may lack the rest.
        for page in range(-(-at // PAGE_BYTES), (at + length) // PAGE_BYTES):
            if page in self._pages and page not in failed:
                self._meet(page, fails=False)
        for page in failed:
            self._meet(page, fails=True)

    def _meet(self, page: int, *, fails: bool) -> None:
        known = self._pages.get(page)
        if known is None or known.fails != fails:
            self._pages[page], self._failing = _BadPage(fails), None
        elif not fails:
            return
        self._undated.add(page)

    def date(self, now_ms: int) -> None:
        """What was noted since the last call counts from now on."""
        for page in self._undated:
            known = self._pages[page]
            if known.since_ms < 0:
                known.since_ms = now_ms
            known.tried_ms = now_ms
            known.tries += 1
        self._undated.clear()

    def are_over(self, pages: range, patience: PagePatience, now_ms: int) -> bool:
        """Whether all of these pages that are bad, one at least, have failed for so long.

        If all were read since: whether that is so long ago, as an answer may have what was read
        before.
        """
        known = [self._pages[page] for page in pages if page in self._pages]
        failing = [page for page in known if page.fails]
        if failing:
            return all(page.is_over(patience, now_ms) for page in failing)
        return now_ms >= max(page.since_ms for page in known) + patience.wait_ms

    def to_try(self) -> list[tuple[int, range]]:
        """The pages that fail and have not done so for PATIENCE yet, and when they were last tried;
        neighbours together."""
        wanted = (
            page
            for page in self.failing().tolist()
            if not (known := self._pages[page]).is_over(PATIENCE, known.tried_ms)
        )
        found: list[tuple[int, range]] = []
        for page in wanted:
            tried_ms, pages = found[-1] if found else (0, range(0))
            if page == pages.stop and 0 < len(pages) < TRY_PAGES_MAX:
                tried_ms = min(tried_ms, self._pages[page].tried_ms)
                found[-1] = tried_ms, range(pages.start, page + 1)
            else:
                found.append((self._pages[page].tried_ms, range(page, page + 1)))
        return found
