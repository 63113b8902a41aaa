"""A log's own tries of pages that fail: nobody else reads these.

Who asks rarely would wait for ever for them, and who asks often would hold the disk. So the log
tries each of them every RETRY_MS until it has failed for long (files/bad_pages.py). A frame whose
pages all have is asked for then: the log tries these pages once more, since the disk may be well by
now, and the frame is lost with the first one that fails. If none does, it is served.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from shm.kernels.base.words import WORD_WRITTEN
from shm.segment import LogMemory
from smq.log.files.bad_pages import pages_of
from smq.log.files.disk import PAGE_BYTES
from smq.log.files.segment import WalSegment
from smq.log.files.wal import Wal

RETRY_MS = 5000
TRIES_MAX = 2048  # In one round; a few milliseconds to choose them …
TRIES_MS = 2000  # … of which no other begins after so long.
LOOKS_MAX = 24 * 1024  # Pages that fail, among which they are chosen: a dead segment of 64 MB …
LOOKS_OF_SEGMENT = 512  # … and others: to choose from one costs as much as from so many pages.
assert LOOKS_MAX // LOOKS_OF_SEGMENT <= TRIES_MAX
ASKED_MAX, ASKED_BYTES_MAX = 64, 1024 * 1024  # Frames at once, and of these, or a single one.


class AskedFrame(NamedTuple):
    """A partition's frame, of which every page that fails has failed for long; what was read of
    it."""

    number: int
    segment: WalSegment
    position: int
    found: np.ndarray

    @property
    def pages(self) -> range:
        """The pages of the file that have a part of it."""
        return pages_of(self.position - self.segment.start, len(self.found))

    def first_failing(self) -> int | None:
        """The first of its pages that fails."""
        at = self.segment.bad_pages.first_failing(self.pages.start * PAGE_BYTES)
        return None if at is None or at // PAGE_BYTES not in self.pages else at // PAGE_BYTES


class OwnTries:
    """Those of one log, in rounds: no more than TRIES_MS of them, or others could not read.

    clock   monotonic milliseconds, as of about a second ago; None: not known yet
    lose    gets a frame of which a page has failed for long, and once more just now
    """

    def __init__(
        self,
        wal: Wal,
        memory: LogMemory,
        clock: Callable[[], int | None],
        lose: Callable[[AskedFrame], None],
    ) -> None:
        self._wal, self._words, self._clock, self._lose = wal, memory.words, clock, lose
        self._asked: deque[AskedFrame] = deque()
        self._to_try: list[tuple[int, int]] = []  # Positions and lengths; the next one last.
        self._began_ms = self._ended_ms = -RETRY_MS  # The last round; the last page of _to_try.
        self._rests_until_ms = -1
        self._is_trying = self._goes_on = self._was_asked = False
        self._next_looked = 0  # From this position on we look for pages to try next.

    def ask(self, frame: AskedFrame) -> None:
        """Try a frame's pages once more, as soon as begin() is called; some are left out
        if there are many: who reads them comes again."""
        asked, size = self._asked, len(frame.found)
        if any(each.position == frame.position for each in asked):
            return
        held_bytes = sum(len(each.found) for each in asked)
        if not asked or (len(asked) < ASKED_MAX and held_bytes + size <= ASKED_BYTES_MAX):
            asked.append(frame._replace(found=frame.found.copy()))  # It may be lent.

    def tend(self) -> None:
        """Call about once a second: date what reads have met, and begin a round if it is time."""
        now_ms = self._clock()
        if now_ms is None:
            return
        for segment in self._segments():
            segment.bad_pages.date(now_ms)
        self.begin()

    def begin(self) -> None:
        """Begin a round, if none is under way and it is time."""
        now_ms = self._clock()
        if now_ms is None or self._is_trying or now_ms < self._rests_until_ms:
            return
        if now_ms >= self._ended_ms + RETRY_MS:
            self._choose()
            self._ended_ms = now_ms
        self._began_ms = now_ms
        self._go_on()

    def stop(self) -> None:
        """A stop waits for no more of it than the read that is under way."""
        self._to_try.clear()
        self._asked.clear()

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
                self._was_asked, self._is_trying = False, True
                self._wal.try_again(*self._to_try.pop(), self._tried)
        self._goes_on = False

    def _try_asked(self, frame: AskedFrame) -> None:
        page, segment = frame.first_failing(), frame.segment
        if page is None or segment.is_kept or self._wal.find(frame.position) is not segment:
            self._asked.popleft()  # Whoever asks again will see.
            return
        self._is_trying = self._was_asked = True
        position = segment.start + page * PAGE_BYTES
        self._wal.try_again(position, PAGE_BYTES, partial(self._asked_tried, segment, page))

    def _asked_tried(self, segment: WalSegment, page: int, bad: Sequence[int]) -> None:
        is_read = page not in segment.bad_pages.failing()
        if not is_read:  # If it was not tried, for another reason, who asks comes again.
            asked, self._asked = self._asked, deque[AskedFrame]()
            for frame in asked:
                if frame.segment is not segment or page not in frame.pages:
                    self._asked.append(frame)
                elif page in bad:
                    self._lose(frame)
        self._has_tried()

    def _tried(self, _: Sequence[int]) -> None:
        now_ms = self._clock()
        assert now_ms is not None
        self._ended_ms = now_ms
        self._has_tried()

    def _has_tried(self) -> None:
        now_ms = self._clock()
        assert now_ms is not None
        self._is_trying = False
        if now_ms > self._began_ms + TRIES_MS:
            self._to_try.clear()
            self._rests_until_ms = now_ms + RETRY_MS
        if not self._goes_on:  # What is done at once would be nested.
            self._go_on()

    def _is_resting(self) -> bool:
        now_ms = self._clock()
        return now_ms is not None and now_ms < self._rests_until_ms
