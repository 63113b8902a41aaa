"""A log's own tries of pages that fail: nobody else reads these.

Who asks rarely would wait for ever for them, and who asks often would hold the disk. So the log
tries each of them every RETRY_MS until it has failed for long (files/bad_pages.py). Who wants a
frame whose pages all have asks for the first of these: the log tries that page once more, since the
disk may be well by now, and while such pages fail also those behind it. What has a part in one that
fails is lost (given_up.py); if none does, it is served.

While the process stands still nobody waits for a page: a disk may be away for some seconds just
after that, as that of a machine that was moved. So pages are dated once a second, by a clock that
counts little of a long time between two such looks.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from shm.kernels.base.words import WORD_WRITTEN
from shm.segment import LogMemory
from smq.log.files.bad_pages import TRY_PAGES_MAX
from smq.log.files.disk import PAGE_BYTES
from smq.log.files.segment import WalSegment
from smq.log.files.wal import Wal
from smq.log.given_up import GivenUp

RETRY_MS = 5000
LOOK_MS = 1000  # What counts of more than RETRY_MS between two calls of tend().
TRIES_MAX = 2048  # In one round; a few milliseconds to choose them …
TRIES_MS = 2000  # … of which no other begins after so long.
LOOKS_MAX = 24 * 1024  # Pages that fail, among which they are chosen: a dead segment of 64 MB …
LOOKS_OF_SEGMENT = 512  # … and others: to choose from one costs as much as from so many pages.
assert LOOKS_MAX // LOOKS_OF_SEGMENT <= TRIES_MAX
ASKED_MAX = 16  # Places that are asked for at once. Of each is known, for a moment, …
ASKED_PAGES_MAX = 1024  # … what lies in so many pages: a megabyte.


@dataclass(slots=True, eq=False)
class _AskedPages:
    """The pages [page, end) of a segment, in which somebody wants the frame that comes first.

    frames   that have a part in them; None: not known yet
    """

    segment: WalSegment
    page: int
    end: int
    frames: np.ndarray | None = None


class OwnTries:
    """Those of one log, in rounds: no more than TRIES_MS of them, or others could not read.

    clock      monotonic milliseconds, as of about a second ago; None: not known yet
    given_up   loses what lies in pages that have failed for long, and once more just now
    waited_ms  dates the pages that fail: grows with each tend(), little after a stop
    """

    def __init__(
        self,
        wal: Wal,
        memory: LogMemory,
        clock: Callable[[], int | None],
        given_up: GivenUp,
    ) -> None:
        self._wal, self._words, self._clock, self._given_up = wal, memory.words, clock, given_up
        self.waited_ms, self._tended_ms = 0, -1
        self._asked: deque[_AskedPages] = deque()
        self._to_try: list[tuple[int, int]] = []  # Positions and lengths; the next one last.
        self._ended_ms = -RETRY_MS  # The last page of _to_try.
        self._began_ms = self._spent_ms = 0  # The last try; all of this round.
        self._rests_until_ms = -1
        self._is_trying = self._goes_on = self._was_asked = False
        self._next_looked = 0  # From this position on we look for pages to try next.

    def ask(self, segment: WalSegment, page: int) -> None:
        """Try once more a page that has failed for long, and those behind it, as soon as begin() is
        called; not if there are many: who wants what it has comes again."""
        end = min(page + ASKED_PAGES_MAX, self._end_of(segment))
        for each in self._asked:
            if each.segment is segment and each.page <= page < each.end:
                if page < each.page + TRY_PAGES_MAX:
                    return
                end, each.end = each.end, page  # Nobody waits for all that lies before.
                break
        if len(self._asked) < ASKED_MAX:
            self._asked.append(_AskedPages(segment, page, end))

    def tend(self) -> None:
        """Call about once a second: date what reads have met, and begin a round if it is time."""
        now_ms = self._clock()
        if now_ms is None:
            return
        self._count(now_ms)
        for segment in self._segments():
            segment.bad_pages.date(self.waited_ms)
            self._given_up.tell_why(segment)
        if not self._asked:  # Otherwise there may be more of the same.
            self._given_up.tell()
        self.begin()

    def _count(self, now_ms: int) -> None:
        """Count the time since the last look."""
        if self._tended_ms >= 0:
            passed_ms = now_ms - self._tended_ms
            self.waited_ms += passed_ms if passed_ms <= RETRY_MS else LOOK_MS
        self._tended_ms = now_ms

    def begin(self) -> None:
        """Begin a round, if none is under way and it is time."""
        now_ms = self._clock()
        if now_ms is None or self._is_trying or now_ms < self._rests_until_ms:
            return
        if now_ms >= self._ended_ms + RETRY_MS:
            self._choose()
            self._ended_ms, self._spent_ms = now_ms, 0
        self._go_on()

    def stop(self) -> None:
        """A stop waits for no more of it than the read that is under way."""
        self._to_try.clear()
        self._asked.clear()
        self._given_up.tell()
        self._wal.stop_trying()

    def _segments(self) -> list[WalSegment]:
        return [segment for segment in self._wal.segments if not segment.is_kept]

    def _choose(self) -> None:
        bad = self._to_look_at(self._segments())
        each = -(-TRIES_MAX // max(1, len(bad)))
        found = [
            (tried_ms, segment.start + pages.start * PAGE_BYTES, len(pages) * PAGE_BYTES)
            for segment, looks_max in bad
            for tried_ms, pages in segment.bad_pages.to_try(self._end_of(segment), each, looks_max)
        ]
        self._to_try = [(position, length) for _, position, length in sorted(found)[:TRIES_MAX]]
        self._to_try.reverse()

    def _end_of(self, segment: WalSegment) -> int:
        """How many pages of a segment there are to try: nobody wants what lies behind the log's
        end, and a used file may have anything there."""
        written = min(segment.end, self._words[WORD_WRITTEN]) - segment.start
        return max(0, -(-written // PAGE_BYTES))

    def _to_look_at(self, segments: list[WalSegment]) -> list[tuple[WalSegment, int]]:
        """Segments with pages to try, and how many of these to look at: as many as may be looked at
        in a turn of the loop. Those that were left out come first in the next round."""
        bad = [segment for segment in segments if segment.bad_pages.open_max]
        first = bisect_left(bad, self._next_looked, key=lambda segment: segment.start)
        found, left_out, left = list[tuple[WalSegment, int]](), list[WalSegment](), LOOKS_MAX
        for segment in bad[first:] + bad[:first]:
            looks = LOOKS_OF_SEGMENT + segment.bad_pages.open_max
            if found and looks > left:
                left_out.append(segment)  # One with fewer pages does not wait for dead ones.
                continue
            found.append((segment, LOOKS_MAX))
            left -= looks
        if left_out:
            self._next_looked = left_out[0].start
        return found

    def _go_on(self) -> None:
        """One after another: other reads come between. Those that are asked for and the others take
        turns, so that on a slow disk neither wait for all of the other kind."""
        self._goes_on = True
        while (self._asked or self._to_try) and not self._is_trying and not self._is_resting():
            if self._asked and not (self._was_asked and self._to_try):
                self._try_asked(self._asked[0])
            else:
                self._was_asked = False
                self._begin_try()
                self._wal.try_again(*self._to_try.pop(), self._tried)
        self._goes_on = False

    def _try_asked(self, asked: _AskedPages) -> None:
        pages, segment = self._next_of(asked), asked.segment
        if not pages or segment.is_kept or self._wal.find(segment.start) is not segment:
            self._asked.remove(asked)  # Whoever asks again will see.
            self._given_up.tell()
            return
        self._begin_try()
        if asked.frames is None:
            find = self._given_up.frames_in(segment, range(asked.page, asked.end))
            self._wal.aside(find, partial(self._found, asked))
            return
        self._was_asked = True
        position, length = segment.start + pages.start * PAGE_BYTES, len(pages) * PAGE_BYTES
        self._wal.try_again(position, length, partial(self._asked_tried, asked, pages))

    def _next_of(self, asked: _AskedPages) -> range:
        """The next pages to try: neighbours, of which each has failed for long."""
        segment, page = asked.segment, asked.page
        failing = segment.bad_pages.failing()
        at = int(np.searchsorted(failing, page))
        end = page
        for each in failing[at : at + TRY_PAGES_MAX].tolist():
            is_next = each == end < asked.end
            if not is_next or not self._given_up.are_over(segment, range(each, each + 1)):
                break
            end += 1
        return range(page, end)

    def _found(self, asked: _AskedPages, frames: np.ndarray) -> None:
        asked.frames = frames
        self._has_tried()

    def _asked_tried(self, asked: _AskedPages, pages: range, bad: Sequence[int]) -> None:
        segment, asked.page = asked.segment, pages.stop
        if asked in self._asked:  # Otherwise the log stops.
            self._asked.remove(asked)
            if len(bad) and asked.frames is not None and not segment.is_kept:
                self._given_up.lose(segment, asked.frames, bad)
                self._asked.append(asked)  # Those of other places have their turn.
            else:  # If it was not tried, for another reason, who asks comes again.
                self._given_up.tell()
        self._has_tried()

    def _tried(self, _: Sequence[int]) -> None:
        now_ms = self._clock()
        assert now_ms is not None
        self._ended_ms = now_ms
        self._has_tried()

    def _begin_try(self) -> None:
        now_ms = self._clock()
        assert now_ms is not None
        self._is_trying, self._began_ms = True, now_ms

    def _has_tried(self) -> None:
        now_ms = self._clock()
        assert now_ms is not None
        self._is_trying = False
        self._spent_ms += now_ms - self._began_ms
        if self._spent_ms > TRIES_MS:
            self._spent_ms = 0
            self._to_try.clear()
            self._rests_until_ms = now_ms + RETRY_MS
            self._given_up.tell()
        if not self._goes_on:  # What is done at once would be nested.
            self._go_on()

    def _is_resting(self) -> bool:
        now_ms = self._clock()
        return now_ms is not None and now_ms < self._rests_until_ms
