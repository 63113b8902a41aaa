"""The write-ahead log's files: segments allocated once, written over and over.

A segment file is named by the position of its first byte, `<20 digits>.wal`; byte i of the file is
position start + i. A segment that is no longer needed is *kept*: it is read like the others, and
counts as free space. When the WAL needs space, it frees the oldest kept segment. Files of freed
segments become spares and are renamed into the next segment before it is needed, the directory
synced, so that beginning a segment costs the loop nothing.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np

from shm.kernels.base.words import SPACE_UNLIMITED
from smq.log.files.background import Background, Lane
from smq.log.files.disk import Disk, told
from smq.log.files.kept import Kept
from smq.log.files.salvage import salvage
from smq.log.files.segment import NoSegment, Segment

WRITE_AHEAD_BYTES = 4 * 1024 * 1024
SPARES_READY = 2  # A burst fills a segment sooner than a file of its size is allocated.
SPARES_SHARE = 2  # One part in this many of wal.bytes.max: the next burst writes warm pages.
LOANS_END_BELOW = 0.375  # Of wal.bytes.max, free; see space.py.
READ_AHEAD_BYTES = 4 * 1024 * 1024  # Read ahead past uncached bytes: most readers continue.
LOADS_MAX = 4  # Reads under way at once: each pins a segment and holds its bytes.


class Wal:
    """The segment files of one log, oldest first; the last one is being written.

    Invariants: segments do not overlap and are in order; a position below `segments[-1].end` is
    readable if and only if a segment covers it; at most LOADS_MAX pins are of loads.

    bytes_max   the configured size of all files; `limit` is less if the disk has less room
    """

    def __init__(  # noqa: PLR0913, PLR0917  (its ports, and its limits)
        self,
        directory: Path,
        disk: Disk,
        background: Background,
        segment_bytes: int,
        bytes_max: int = SPACE_UNLIMITED,
        keep_bytes_max: int = 0,
    ) -> None:
        self.directory, self._disk, self._background = directory, disk, background
        self.segment_bytes, self.bytes_max = segment_bytes, bytes_max
        self._disk_bytes_max = SPACE_UNLIMITED
        self.segments: list[Segment] = []
        self.kept = Kept(keep_bytes_max)
        self._next: Segment | None = None
        self._spares: list[Path] = []
        self._preparing_next = self._preparing_spare = False
        self._loads: deque[Callable[[], None]] = deque()  # That wait for one under way to end.
        self._loading = 0
        self._recycling = 0  # Files of freed segments that are neither spares nor deleted yet.
        self._spare_numbers = count(1)
        self.writes_ahead = False  # Worth its cost when requests wait for syncs.
        disk.make_directory(directory)

    def invariants(self) -> None:
        """Raise AssertionError when the segments are not as the class says."""
        for before, after in zip(self.segments, self.segments[1:], strict=False):
            assert before.start < before.end <= after.start
        assert all(segment.pins >= 0 <= segment.loans for segment in self.segments)
        assert self._loading == LOADS_MAX if self._loads else 0 <= self._loading <= LOADS_MAX
        assert self._next is None or self._next.start == self.segments[-1].end
        assert self.kept.segments == [segment for segment in self.segments if segment.is_kept]
        self.kept.invariants()

    # --- opening --------------------------------------------------------------------------------

    def open_existing(self) -> None:
        """Open the existing segments. Files that are not ours are left alone."""
        for path in sorted(self.directory.glob("*.wal")):
            if not path.stem.isdigit():
                continue
            start, size = int(path.stem), path.stat().st_size
            if size:
                self.segments.append(Segment(start, start + size, self._disk.open(path), path))
            else:
                self._disk.remove(path)
        self._clean()

    def _clean(self) -> None:
        """Delete leftovers of an interrupted life, and spares of another size."""
        for path in sorted(self.directory.glob("*.spare")):
            is_whole = path.stem.isdigit() and path.stat().st_size == self.segment_bytes
            if is_whole and not self._disk.is_shared(path):
                self._spares.append(path)
            else:
                self._disk.remove(path)
        self._trim_spares()
        self._spare_numbers = count(max((int(path.stem) for path in self._spares), default=0) + 1)
        indexed = {segment.index_path for segment in self.segments}
        for path in (*self.directory.glob("*.new"), *self.directory.glob("*.index")):
            if path not in indexed:
                self._disk.remove(path)

    def forget_from(self, position: int) -> None:
        """Recycle the segments that begin at or after the log's end: nothing in them counts.

        If a power loss brings them back, a later start refuses them by their generation. Raises
        OSError if files remain under their names; they are forgotten all the same, or the log would
        be written before the first byte of its last segment.
        """
        failure: OSError | None = None
        while self.segments and self.segments[-1].start >= position:
            segment = self.segments.pop()
            try:
                spare = self._recycle(segment, self._spare_for(segment))
            except OSError as error:
                failure = error
            else:
                self._spares += [spare] if spare else []
        if failure is not None:
            raise failure

    def own_last(self, end: int) -> None:
        """Before a new life writes after the log's `end`: if a snapshot shares the last file,
        replace it by a copy. Raises OSError."""
        segment = self.find(end)
        if segment is not None and self._disk.is_shared(segment.path):
            self.swap(segment, self.write_again(segment, memoryview(b""), end, end))

    # --- finding --------------------------------------------------------------------------------

    def find(self, position: int) -> Segment | None:
        """The segment that covers a position; None: it was freed, or not begun."""
        i = bisect_right(self.segments, position, key=lambda segment: segment.start) - 1
        if i >= 0 and position < self.segments[i].end:
            return self.segments[i]
        return None

    def covering(self, positions: np.ndarray) -> list[Segment]:
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
        return salvage(self._disk, segment.fd, length, position - segment.start)[0]

    def read_cached(
        self, position: int, length: int, out: np.ndarray | None = None
    ) -> np.ndarray | None:
        """As read(), into `out` if that is long enough; None if it would have to wait."""
        segment = self.find(position)
        if segment is None:
            return np.empty(0, np.uint8)
        length = min(length, segment.end - position)
        return self._disk.read_cached(segment.fd, length, position - segment.start, out)

    def load(self, position: int, length: int, done: Callable[[np.ndarray], None]) -> None:
        """As read(), in the background.

        A load that waits for its turn pins nothing: if its segment is freed meanwhile, it yields no
        bytes.
        """
        if self._loading < LOADS_MAX:
            self._load(position, length, done)
        else:
            self._loads.append(lambda: self._load(position, length, done))

    def _load(self, position: int, length: int, done: Callable[[np.ndarray], None]) -> None:
        segment = self.find(position)
        if segment is None:
            done(np.empty(0, np.uint8))
            return
        fd, at = segment.fd, position - segment.start
        length = min(length, segment.end - position)
        segment.pins += 1
        self._loading += 1

        def loaded(data: np.ndarray | OSError) -> None:
            assert not isinstance(data, OSError)  # What cannot be read is zeros.
            assert segment.pins > 0
            segment.pins -= 1
            self._loading -= 1
            while self._loads and self._loading < LOADS_MAX:
                self._loads.popleft()()
            done(data)

        def read() -> np.ndarray:
            with suppress(OSError):  # Then the rest is read when it is needed.
                self._disk.will_read(fd, length + READ_AHEAD_BYTES, at)
            return salvage(self._disk, fd, length, at)[0]

        self._background.submit(Lane.READS, read, loaded)

    @property
    def limit(self) -> int:
        """How many bytes all files may take."""
        return min(self.bytes_max, self._disk_bytes_max)

    @property
    def allocated_bytes(self) -> int:
        """The bytes of the segments, without spares."""
        return sum(segment.end - segment.start for segment in self.segments)

    @property
    def written_segments(self) -> tuple[int, int]:
        """Where the last segment begins, and how many are needed: callers compare it to notice
        changes."""
        segments = self.segments
        return segments[-1].start if segments else -1, len(segments) - len(self.kept.segments)

    @property
    def needed_bytes(self) -> int:
        """The bytes of the segments that are not kept."""
        return self.allocated_bytes - self.kept.bytes

    @property
    def files_bytes(self) -> int:
        """The bytes of all files: the segments, the next one and the spares."""
        ahead = len(self._spares) + self._recycling + self._preparing_spare
        ahead += self._preparing_next or self._next is not None
        return self.allocated_bytes + ahead * self.segment_bytes

    def space_end(self, written: int) -> int:
        """Up to which position files may be made; `written` is where the first one would begin."""
        end = self.segments[-1].end if self.segments else written
        more = max(0, self.limit - self.needed_bytes) // self.segment_bytes
        return end + more * self.segment_bytes

    # --- writing --------------------------------------------------------------------------------

    def write(self, ring: memoryview, start: int, end: int) -> None:
        """Write the ring's bytes [start, end) to the segments, beginning new ones as needed.

        Raises NoSegment; after any other OSError it is unknown what reached the file.
        """
        while start < end:
            segment = self.segments[-1] if self.segments else None
            if segment is None or start >= segment.end:
                segment = self._begin(start)
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

    def _begin(self, start: int) -> Segment:
        segment = self._take_next()
        while segment is None:
            try:
                segment = self._prepare(start, self._spares[-1] if self._spares else None)
                self._spares = self._spares[:-1]
            except OSError as error:
                if not self.kept.reclaim(even_lent=True):
                    raise NoSegment(error.errno, f"beginning a segment: {told(error)}") from error
                segment = self._take_next()
        assert segment.start == start
        self.segments.append(segment)
        self.prepare_next()
        return segment

    def _take_next(self) -> Segment | None:
        """The file that is ready or being made; None: there is none."""
        if self._next is None:
            self.make_room()
        while self._preparing_next or (self._next is None and self._recycling):
            self._background.wait_a_job(Lane.FILES)
        segment, self._next = self._next, None
        return segment

    def _prepare(self, start: int, spare: Path | None) -> Segment:
        """The file of the segment at `start`, made of a spare if there is one."""
        path = self.directory / f"{start:020d}.wal"
        if spare is None:
            spare = self._new_spare()
            fd = self._disk.create(spare, self.segment_bytes)
        else:
            fd = self._disk.open(spare)
        try:
            self._disk.rename(spare, path)
        except OSError:
            self._disk.close(fd)
            raise
        return Segment(start, start + self.segment_bytes, fd, path)

    def _new_spare(self) -> Path:
        return self.directory / f"{next(self._spare_numbers)}.spare"

    def prepare_next(self) -> None:
        """Have the next segment's file made, and spares after it."""
        self.make_room()
        if not self.segments or self._next is not None or self._preparing_next:
            return
        if self.allocated_bytes + self.segment_bytes > self.limit:
            return  # Producers are refused before it is needed.
        if self._recycling and not self._spares:
            return  # It is made once one of them is a spare.
        start = self.segments[-1].end
        spare = self._spares.pop() if self._spares else None
        self._preparing_next = True

        def done(result: Segment | OSError) -> None:
            self._preparing_next = False
            if isinstance(result, Segment):
                self._next = result
                self._prepare_spare()
            elif spare is not None:
                self._spares.append(spare)
            else:  # The disk has no room for a new file: a kept segment's will do.
                self.kept.reclaim(even_lent=True)

        self._background.submit(Lane.FILES, lambda: self._prepare(start, spare), done)

    def _prepare_spare(self) -> None:
        if len(self._spares) >= SPARES_READY or self._preparing_spare:
            return
        if self.files_bytes + self.segment_bytes > self.limit:
            return
        path = self._new_spare()
        self._preparing_spare = True

        def make() -> None:
            self._disk.close(self._disk.create(path, self.segment_bytes))

        def made(failure: OSError | None) -> None:
            self._preparing_spare = False
            if failure is None:
                self._spares.append(path)
                self._prepare_spare()

        def write(at: int) -> None:
            """Write one piece, then let other jobs run."""
            if not self.writes_ahead or at >= self.segment_bytes:
                made(None)
                return
            size = min(WRITE_AHEAD_BYTES, self.segment_bytes - at)
            self._background.submit(
                Lane.FILES,
                lambda: self._disk.fill(path, at, size),
                lambda failure: write(at + size) if failure is None else made(None),
            )

        self._background.submit(
            Lane.FILES, make, lambda failure: write(0) if failure is None else made(failure)
        )

    def write_again(self, segment: Segment, ring: memoryview, start: int, end: int) -> int:
        """Replace a segment's file by a fresh, synced one: [start, end) from the ring, the bytes
        before from the old file. Returns its descriptor, for swap(). Runs in the background.

        Raises OSError; the old file then still stands.
        """
        assert segment.start <= start <= end <= segment.end
        path = self._new_spare()
        fd = self._disk.create(path, segment.end - segment.start)
        try:
            for at in range(0, start - segment.start, WRITE_AHEAD_BYTES):
                size = min(WRITE_AHEAD_BYTES, start - segment.start - at)
                self._disk.write(fd, self._disk.read(segment.fd, size, at).data, at)
            self.copy(ring, fd, segment.start, start, end)
            self._disk.sync(fd)
            self._disk.rename(path, segment.path)
        except OSError:
            self._disk.close(fd)
            self._disk.remove(path)
            raise
        return fd

    def swap(self, segment: Segment, fd: int) -> None:
        """Use the fresh file. The old one is closed after the reads that may still use it."""
        old, segment.fd = segment.fd, fd
        self._background.submit(Lane.READS, lambda: self._disk.close(old), lambda _: None)

    def sync_from(self, position: int) -> None:
        """Sync the segments that reach beyond a position. Raises OSError."""
        for segment in self.segments:
            if segment.end > position:
                self._disk.sync(segment.fd)

    # --- freeing --------------------------------------------------------------------------------

    def is_held(self, segment: Segment, space_left: int) -> bool:
        """Whether a segment that is no longer needed must stay. A loan counts only while there is
        space: after that the log takes it, and its reader finds nothing."""
        is_lent = segment.loans > 0 and space_left >= LOANS_END_BELOW * self.limit
        return segment.pins > 0 or is_lent

    def make_room(self) -> None:
        """Free kept segments until there is room for the next one."""
        ahead_bytes = (1 + SPARES_READY) * self.segment_bytes
        while self.kept.bytes and self.allocated_bytes + ahead_bytes > self.limit:
            if not self.kept.reclaim(even_lent=True):
                break
        self.kept.trim()

    def fit(self, free_bytes: int, reserve_bytes: int) -> None:
        """Adapt to the disk's free bytes: leave a reserve, and give space back if less than that is
        left. Files that are needed stay."""
        room = self.files_bytes + free_bytes - reserve_bytes
        self._disk_bytes_max = max(room, self.needed_bytes)
        self.prepare_next()
        while self._spares and self.files_bytes > self.limit:
            path = self._spares.pop()
            self._background.submit(Lane.FILES, partial(self._disk.remove, path), lambda _: None)

    def free(self, segment: Segment) -> None:
        """Give up a segment that is not needed: its file becomes a spare, in the background."""
        assert segment.pins == 0
        assert segment is not self.segments[-1]
        if segment.is_kept:
            self.kept.remove(segment)
        self.segments.remove(segment)
        spare = self._spare_for(segment)
        self._recycling += 1

        def done(result: Path | OSError | None) -> None:
            self._recycling -= 1
            if isinstance(result, Path):  # Else it was deleted, or the next start finds it.
                self._spares.append(result)
            self.prepare_next()

        self._background.submit(Lane.FILES, lambda: self._recycle(segment, spare), done)

    def _spare_for(self, segment: Segment) -> Path | None:
        """The name under which an unneeded file becomes a spare; None: delete it."""
        fits = segment.end - segment.start == self.segment_bytes
        fits &= self.files_bytes + self.segment_bytes <= self.limit
        return self._new_spare() if fits and self._may_keep_a_spare() else None

    def _recycle(self, segment: Segment, spare: Path | None) -> Path | None:
        self._disk.close(segment.fd)
        self._disk.remove(segment.index_path)
        if spare is None:
            self._disk.remove(segment.path)
            return None
        # No snapshot can link it under its new name: is_shared is final from now on.
        self._disk.rename(segment.path, spare)
        if self._disk.is_shared(spare):
            self._disk.remove(spare)
            return None
        return spare

    def _may_keep_a_spare(self) -> bool:
        bytes_max = max(self.limit // SPARES_SHARE, SPARES_READY * self.segment_bytes)
        spares = len(self._spares) + self._recycling
        return (spares + 1) * self.segment_bytes <= bytes_max

    def _trim_spares(self) -> None:
        """Delete spares beyond their share, or beyond the limit for all files."""
        while self._spares and (self.files_bytes > self.limit or not self._may_keep_a_spare()):
            self._disk.remove(self._spares.pop())

    def close(self) -> None:
        """Close all descriptors. A second call does nothing."""
        for segment in (*self.segments, self._next):
            if segment is not None and segment.fd >= 0:
                self._disk.close(segment.fd)
                segment.fd = -1
