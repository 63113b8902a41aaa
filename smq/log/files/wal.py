"""The write-ahead log: the bytes of a log by position, in its segment files (segment_files.py).

Byte i of a segment's file is position start + i.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

import numpy as np

from smq.log.files.background import JobLane
from smq.log.files.bad_pages import pages_of
from smq.log.files.disk import PAGE_BYTES
from smq.log.files.past_cache import PastCache
from smq.log.files.salvage import BAD_PAGES_MAX, Salvaged, is_of_disk, salvage, salvage_some
from smq.log.files.segment import UnreadableSegment, UnsyncedName, WalSegment
from smq.log.files.segment_files import WRITE_AHEAD_BYTES, SegmentFiles

T = TypeVar("T")

LOANS_END_BELOW = 0.375  # Of wal.bytes.max, free; see space.py.
READ_AHEAD_BYTES = 4 * 1024 * 1024  # Read ahead past uncached bytes: most readers continue.
LOADS_MAX = 4  # Reads under way at once: each pins a segment and holds its bytes.
STARTS_A_TURN = 4  # Of loads that waited: of each a MB may be there, and is copied and sent.


class Wal:
    """Reads and writes one log. `segments` are those of its files.

    Invariants: a position below `segments[-1].end` is readable if and only if a segment covers it;
    at most LOADS_MAX pins are of loads.
    """

    def __init__(self, files: SegmentFiles, blocks: int) -> None:
        self.files, self.segments = files, files.segments
        self._disk, self._background = files.disk, files.background
        self.past_cache = PastCache(
            self._disk, self._background, blocks, self.find, files.footprint
        )
        self._loads: deque[Callable[[], None]] = deque()  # That wait for one under way to end.
        self._loading = 0
        self._may_try = True
        self._is_starting = False  # Those that wait; in this turn or the next one.

    def invariants(self) -> None:
        """Raise AssertionError when the log is not as the class says."""
        self.files.invariants()
        self.past_cache.invariants()
        assert 0 <= self._loading <= LOADS_MAX
        assert self._loading == LOADS_MAX or not self._loads or self._is_starting

    def close(self) -> None:
        """Close all descriptors. A second call does nothing."""
        self.files.close()

    # --- reading --------------------------------------------------------------------------------

    def find(self, position: int) -> WalSegment | None:
        """The segment that covers a position; None: it was freed, or not begun."""
        i = bisect_right(self.segments, position, key=lambda segment: segment.start) - 1
        if i >= 0 and position < self.segments[i].end:
            return self.segments[i]
        return None

    def covering(self, positions: np.ndarray) -> list[WalSegment]:
        """The segments that cover any of these positions (int64, ascending)."""
        first = self.find(int(positions[0])) if len(positions) else None
        if first is not None and positions[-1] < first.end:
            return [first]
        starts = [segment.start for segment in self.segments]
        indices = np.unique(np.searchsorted(starts, positions, "right") - 1).tolist()
        return [self.segments[i] for i in indices if i >= 0]

    def read(self, position: int, length: int) -> np.ndarray:
        """Bytes of the log; fewer, or none, where no segment covers them; zeros for unreadable
        pages."""
        segment = self.find(position)
        if segment is None:
            return np.empty(0, np.uint8)
        length = min(length, segment.end - position)
        at = position - segment.start
        found = salvage(self._disk, segment.fd, length, at)
        segment.note_read(at, length, found.bad_pages, found.untried)
        return found.data

    def read_cached(
        self, position: int, length: int, out: np.ndarray | None = None
    ) -> np.ndarray | None:
        """As read(); None if it would have to wait.

        With `out` (uint8) they are in it if that is long enough, or lent: see PastCache.read().
        """
        segment = self.find(position)
        if segment is None:
            return np.empty(0, np.uint8)
        length, at = min(length, segment.end - position), position - segment.start
        if segment.is_cached:
            data = self._disk.read_cached(segment.fd, length, at, out)
        else:
            data = self.past_cache.read(segment, length, at, out)
        if data is not None:
            segment.note_read(at, length, ())
        return data

    def load(self, position: int, length: int, done: Callable[[np.ndarray], None]) -> None:
        """As read(), in the background; zeros at once for pages of which it is known that they
        fail: see try_again().

        A load that waits for its turn pins nothing: if its segment is freed meanwhile, it yields no
        bytes.
        """
        self._queue(partial(self._load, position, length, done))

    def try_again(self, position: int, length: int, done: Callable[[Sequence[int]], None]) -> None:
        """Read pages that may fail, one by one, only to know which of them do; as load()."""
        self._queue(partial(self._try, position, length, done))

    def stop_trying(self) -> None:
        """The log stops: of a try that is under way only the page that is being read is waited
        for."""
        self._may_try = False

    def aside(self, job: Callable[[], T], done: Callable[[T], None]) -> None:
        """Have a job done between the reads, which raises no OSError."""

        def given(result: T | OSError) -> None:
            assert not isinstance(result, OSError)
            done(result)

        self._background.submit(JobLane.READS, job, given)

    def _queue(self, begin: Callable[[], None]) -> None:
        if self._loading < LOADS_MAX and not self._loads:
            begin()
        else:
            self._loads.append(begin)

    def _load(self, position: int, length: int, done: Callable[[np.ndarray], None]) -> None:
        segment = self.find(position)
        if segment is None:
            done(np.empty(0, np.uint8))
            return
        at, length = position - segment.start, min(length, segment.end - position)
        loaded = self._begun(segment, length, at, lambda found: done(found.data))
        if not segment.is_cached:
            self.past_cache.load(segment, length, at, loaded)
            return
        fd, unread = segment.fd, segment.bad_pages.unread(at, length)
        end, failing = at + length + READ_AHEAD_BYTES, segment.bad_pages.first_failing(at)
        ahead_bytes = end - at if failing is None else max(0, min(end, failing) - at)

        def read() -> Salvaged:
            with suppress(OSError):  # Then the rest is read when it is needed.
                self._disk.will_read(fd, ahead_bytes, at)
            return salvage_some(partial(self._disk.read, fd), length, at, unread)

        self._background.submit(JobLane.READS, read, loaded)

    def _try(self, position: int, length: int, done: Callable[[Sequence[int]], None]) -> None:
        segment = self.find(position)
        if segment is None:
            done(())
            return
        at, length = position - segment.start, min(length, segment.end - position)
        loaded = self._begun(segment, length, at, lambda found: done(found.bad_pages))
        fd, bad, untried, others = segment.fd, list[int](), list[int](), list[OSError]()
        read = partial(self._read_alone, segment, is_cached=segment.is_cached)
        pages = [page for page in pages_of(at, length) if not self._is_there(segment, page)]

        def try_each() -> None:
            for page in pages:
                start = page * PAGE_BYTES
                if not self._may_try:
                    untried.append(page)
                    continue
                try:
                    read(min(PAGE_BYTES, at + length - start), start)
                except OSError as error:
                    (bad if is_of_disk(error) else untried).append(page)
                    others.extend(() if is_of_disk(error) else (error,))

        def tried(_: object) -> None:
            none = Salvaged(np.empty(0, np.uint8), 0, None)
            segment.other_error = None
            if segment.fd == fd:
                failure = others[0] if others else None
                loaded(none._replace(failure=failure, bad_pages=bad, untried=untried))
            else:  # Another file has taken its place, of which this says nothing.
                loaded(none._replace(left_out=pages_of(at, length)))

        self._background.submit(JobLane.READS, try_each, tried)

    def _is_there(self, segment: WalSegment, page: int) -> bool:
        """Whether readers are given a page without the disk."""
        return not segment.is_cached and self.past_cache.has(segment, page * PAGE_BYTES)

    def _read_alone(self, segment: WalSegment, length: int, at: int, *, is_cached: bool) -> None:
        if is_cached:
            self._disk.read(segment.fd, length, at)
        else:
            self.past_cache.read_bytes(segment, length, at)

    def _begun(
        self, segment: WalSegment, length: int, at: int, done: Callable[[Salvaged], None]
    ) -> Callable[[Salvaged | OSError], None]:
        """Begin a read of a segment; what is called with its result."""
        segment.pins += 1
        self._loading += 1
        was_cached = segment.is_cached

        def loaded(found: Salvaged | OSError) -> None:
            assert not isinstance(found, OSError)  # What cannot be read is zeros.
            assert segment.pins > 0
            segment.pins -= 1
            self._loading -= 1
            segment.note_read(at, length, found.bad_pages, found.untried, found.left_out)
            if found.failure is not None:
                segment.other_error = None if is_of_disk(found.failure) else found.failure
            if was_cached and not segment.is_cached and segment.may_be_dropped:
                self._drop_again(segment)
            done(found)
            if not self._is_starting:  # What is there is loaded at once: this would be nested.
                self._is_starting = True
                self._start_loads(None)

        return loaded

    def _drop_again(self, segment: WalSegment) -> None:
        """A segment was dropped from the page cache while a read of it was under way, which may
        have brought some of it back. All of it is on the disk."""
        segment.pins += 1

        def dropped(_: OSError | None) -> None:
            segment.pins -= 1

        drop = partial(self._disk.drop, segment.fd, segment.end - segment.start)
        self._background.submit(JobLane.READS, drop, dropped)

    def _start_loads(self, _: object) -> None:
        """Start those that wait, the first one first; after a few the loop has a turn."""
        for _ in range(STARTS_A_TURN):
            if not self._loads or self._loading == LOADS_MAX:
                self._is_starting = False
                return
            self._loads.popleft()()
        self._background.submit(JobLane.READS, lambda: None, self._start_loads)

    def is_held(self, segment: WalSegment, space_left: int) -> bool:
        """Whether a segment that is no longer needed must stay. A loan counts only while there is
        space: after that the log takes it, and its reader finds nothing."""
        is_lent = segment.loans > 0 and space_left >= LOANS_END_BELOW * self.files.limit
        return segment.pins > 0 or is_lent

    # --- writing --------------------------------------------------------------------------------

    def write(self, ring: memoryview, start: int, end: int) -> None:
        """Write the ring's bytes [start, end) to the segments, beginning new ones as needed.

        Raises NoSegment; after any other OSError it is unknown what reached the file.
        """
        while start < end:
            segment = self.segments[-1] if self.segments else None
            if segment is None or start >= segment.end:
                segment = self.files.begin(start)
            assert segment.start <= start, "what is full is never written again"
            stop = min(end, segment.end)
            self.copy(ring, segment.fd, segment.start, start, stop)
            start = stop

    def copy(self, ring: memoryview, fd: int, first_position: int, start: int, end: int) -> None:
        """Write the ring's bytes [start, end) to a file whose first byte has `first_position`."""
        while start < end:
            place = start % len(ring)
            stop = min(end, start - place + len(ring))
            self._disk.write(fd, ring[place : place + stop - start], start - first_position)
            start = stop

    def write_again(self, segment: WalSegment, ring: memoryview, start: int, end: int) -> int:
        """Replace a segment's file by a fresh, synced one: [start, end) from the ring, the bytes
        before from the old file. Returns its descriptor, for swap(). Runs in the background.

        Raises OSError, UnreadableSegment: the old file then still stands; UnsyncedName: the fresh
        one has its place, but a power cut may bring back the old one.
        """
        assert segment.start <= start <= end <= segment.end
        path = self.files.new_path()
        fd = self._disk.create(path, segment.end - segment.start)
        try:
            for at in range(0, start - segment.start, WRITE_AHEAD_BYTES):
                size = min(WRITE_AHEAD_BYTES, start - segment.start - at)
                self._disk.write(fd, self._read_again(segment, size, at).data, at)
            self.copy(ring, fd, segment.start, start, end)
            self._disk.sync(fd)
            self._disk.rename(path, segment.path)
        except OSError as error:
            if not path.exists():  # The directory was not synced: what has the name is this file.
                raise UnsyncedName(error, fd) from error
            self._disk.close(fd)
            self._disk.remove(path)
            raise
        return fd

    def _read_again(self, segment: WalSegment, size: int, at: int) -> np.ndarray:
        try:
            return self._disk.read(segment.fd, size, at)
        except OSError as error:
            raise UnreadableSegment(error.errno, error.strerror) from error

    def write_over(self, segment: WalSegment, ring: memoryview, start: int, end: int) -> int:
        """As write_again(), in place, for a file of which some bytes cannot be read: the page cache
        does not have these. What it has is written again; they stay as they are. Raises OSError.

        A disk may need seconds for each bad page. So after many only what is known to be cached is
        read; where the system does not tell, all is.
        """
        with suppress(OSError):  # It may tell of the failure that is being made up for.
            self._disk.sync(segment.fd)
        cached, bad_pages = self._disk.cached_pages(segment.fd, segment.end - segment.start), 0
        for at in range(0, start - segment.start, PAGE_BYTES):
            size = min(PAGE_BYTES, start - segment.start - at)
            may_be_cached = cached is None or cached[at // PAGE_BYTES]
            page = self._disk.read_cached(segment.fd, size, at)
            if page is None and (may_be_cached or bad_pages < BAD_PAGES_MAX):
                try:
                    page = self._disk.read(segment.fd, size, at)
                except OSError:
                    bad_pages += 1
            if page is not None:
                self._disk.write(segment.fd, page.data, at)
        self.copy(ring, segment.fd, segment.start, start, end)
        self._disk.sync(segment.fd)
        return segment.fd

    def swap(self, segment: WalSegment, fd: int) -> None:
        """Use the fresh file, or the old one again if that is `fd`. An old one is closed after the
        reads that may still use it."""
        old, segment.fd = segment.fd, fd
        segment.is_on_disk = segment.has_last_copy = False
        self.past_cache.forget(segment)
        self.files.footprint.forget(segment)
        self.files.footprint.reopen(segment)
        if segment is not self.segments[-1]:
            self.files.footprint.enter(segment)
        if fd != old:
            self._background.submit(JobLane.READS, lambda: self._disk.close(old), lambda _: None)

    def own_last(self, end: int) -> None:
        """Before a new life writes after the log's `end`: if a snapshot shares the last file,
        replace it by a copy. Raises OSError."""
        segment = self.find(end)
        if segment is not None and self._disk.is_shared(segment.path):
            self.swap(segment, self.write_again(segment, memoryview(b""), end, end))

    def sync(self, segment: WalSegment) -> None:
        """Sync a segment. Raises OSError."""
        self._disk.sync(segment.fd)

    def sync_from(self, position: int) -> None:
        """Sync the segments that reach beyond a position. Raises OSError."""
        for segment in self.segments:
            if segment.end > position:
                self.sync(segment)
