"""The pages of a file that could not be read, and since when each of them fails.

An error of the disk may end, so a page is waited for, by itself: that another page of its file
fails says nothing of it.
"""

from collections.abc import Collection
from dataclasses import dataclass

from smq.log.files.disk import PAGE_BYTES

BAD_MS = 60_000  # Of failures: longer than most errors that end.
TRY_PAGES_MAX = 256  # With one read.


def pages_of(at: int, length: int) -> range:
    """The pages that have these bytes of a file."""
    return range(at // PAGE_BYTES, -(-(at + length) // PAGE_BYTES))


@dataclass(slots=True)
class _BadPage:
    """When a page's present state was first and last met (monotonic); -1: see BadPages.date()."""

    fails: bool = True
    since_ms: int = -1
    tried_ms: int = -1


class BadPages:
    """Those of one file: a read of each has failed; a later one may not have.

    Reads have no clock. What they meet is dated by who has one, soon after.
    """

    def __init__(self) -> None:
        self._pages: dict[int, _BadPage] = {}
        self._undated: set[int] = set()

    def __contains__(self, page: int) -> bool:
        return page in self._pages

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
            self._pages[page] = _BadPage(fails)
        elif not fails:
            return
        self._undated.add(page)

    def date(self, now_ms: int) -> None:
        """What was noted since the last call counts from now on.

        Failures of one page that lie further apart than BAD_MS have different causes, unless it had
        failed for so long before.
        """
        for page in self._undated:
            known = self._pages[page]
            is_late = now_ms > known.tried_ms + BAD_MS
            if known.since_ms < 0 or (is_late and known.tried_ms < known.since_ms + BAD_MS):
                known.since_ms = now_ms
            known.tried_ms = now_ms
        self._undated.clear()

    def since_ms(self, pages: range) -> int:
        """Since when all is bad that is bad of these pages, of which one is at least. If they were
        read since: since that, as an answer may have what was read before."""
        known = [self._pages[page] for page in pages if page in self._pages]
        failing = [page.since_ms for page in known if page.fails]
        return max(failing or [page.since_ms for page in known])

    def to_try(self) -> list[tuple[int, range]]:
        """The pages that fail and have not done so for BAD_MS yet, and when they were last tried;
        neighbours together."""
        wanted = sorted(
            page
            for page, known in self._pages.items()
            if known.fails and known.tried_ms < known.since_ms + BAD_MS
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
