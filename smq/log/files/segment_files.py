"""A log's segment files: allocated once, written over and over.

A segment file is named by the position of its first byte, `<20 digits>.wal`. A segment that is no
longer needed is *kept*: it is read like the others, and counts as free space. When the WAL needs
space, it frees the oldest kept segment. Files of freed segments become spares and are renamed into
the next segment before it is needed, the directory synced, so that beginning a segment costs the
loop nothing.
"""

from collections.abc import Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np

from shm.kernels.base.words import FRAME_ALIGNMENT_BYTES, SPACE_UNLIMITED
from smq.log.files.background import Background, JobLane
from smq.log.files.checkpoint import OWN
from smq.log.files.disk import FULL, PAGE_BYTES, Disk, told
from smq.log.files.footprint import Footprint
from smq.log.files.kept import Kept
from smq.log.files.pieces import by_pieces
from smq.log.files.segment import NoSegment, WalSegment

WRITE_AHEAD_BYTES = 4 * 1024 * 1024
READ_BACK_BYTES = 128 * 1024  # Per step, of which two are under way: milliseconds of a slow disk.
SPARES_READY = 2  # A burst fills a segment sooner than a file of its size is allocated.
QUARANTINE = "quarantine"  # The directory of what is damaged.
SPARES_SHARE = 2  # One part in this many of wal.bytes.max: the next burst writes warm pages.


class WalLimits(NamedTuple):
    """How large a log's files become.

    bytes_max          of all files; the log needs less if the disk has less room
    keep_bytes_max     of segments that are sealed as a whole and still there
    cached_bytes_max   of what the page cache keeps; SPACE_UNLIMITED: the system decides
    blocks             how many blocks may hold what is read past the page cache
    """

    segment_bytes: int
    bytes_max: int = SPACE_UNLIMITED
    keep_bytes_max: int = 0
    cached_bytes_max: int = SPACE_UNLIMITED
    blocks: int = 0


class SegmentFiles:
    """The segments of one log, oldest first, and the files that become the next ones.

    Invariant: segments do not overlap and are in order; the last one is being written.

    bytes_max   the configured size of all files; `limit` is less if the disk has less room
    """

    def __init__(
        self, directory: Path, disk: Disk, background: Background, limits: WalLimits
    ) -> None:
        self.directory, self.disk, self.background = directory, disk, background
        self.segment_bytes, self.bytes_max = limits.segment_bytes, limits.bytes_max
        self._disk_bytes_max = SPACE_UNLIMITED
        self.segments: list[WalSegment] = []
        self.kept = Kept(limits.keep_bytes_max)
        self.footprint = Footprint(disk, background, limits.cached_bytes_max)
        self._next: WalSegment | None = None
        self._spares: list[Path] = []
        self._preparing_next = self._preparing_spare = False
        self._recycling = 0  # Files of freed segments that are neither spares nor deleted yet.
        self._spare_numbers = count(1)
        self.writes_ahead = False  # Worth its cost when requests wait for syncs.
        self.must_stay = _is_free  # Whether a segment is not to be freed.
        self.syncer_may_use = _is_idle  # Whether it has not passed what ends there.
        self._unclosed: list[tuple[int, int]] = []  # Of what was freed: its end and fd.
        self._is_awaited = False  # The next segment's file: the loop waits for it.
        disk.make_directory(directory)

    def invariants(self) -> None:
        """Raise AssertionError when the segments are not as the class says."""
        for before, after in zip(self.segments, self.segments[1:], strict=False):
            assert before.start < before.end <= after.start
        assert all(segment.pins >= 0 <= segment.loans for segment in self.segments)
        assert self._next is None or self._next.start == self.segments[-1].end
        assert self.kept.segments == [segment for segment in self.segments if segment.is_kept]
        self.kept.invariants()
        self.footprint.invariants()

    # --- opening ----------------------------------------------------------------------------------

    def open_existing(self) -> list[str]:
        """Open the existing segments; returns sentences on what is put aside: segments that begin
        where no log begins one. Files that are not ours are left alone."""
        misplaced, end = list[str](), 0
        for path in sorted(self.directory.glob("*.wal")):
            if not path.stem.isdigit():
                continue
            start, size = int(path.stem), path.stat().st_size
            size -= size % FRAME_ALIGNMENT_BYTES  # The log goes on behind it, where a frame may be.
            if not size:
                self.disk.remove(path)
            elif start % FRAME_ALIGNMENT_BYTES or not end <= start <= OWN.place_max:
                misplaced.append(self._put_aside(path))
            else:
                end = start + size
                self.segments.append(WalSegment(start, end, self.disk.open(path), path))
        self._clean()
        return misplaced

    def _put_aside(self, path: Path) -> str:
        to = self.directory / QUARANTINE / path.name
        self.disk.make_directory(to.parent)
        self.disk.rename(path, to)
        return f"{path} begins where no segment of this log can, and is set aside as {to}"

    def _clean(self) -> None:
        """Delete leftovers of an interrupted life, and spares of another size."""
        for path in sorted(self.directory.glob("*.spare")):
            is_whole = path.stem.isdigit() and path.stat().st_size == self.segment_bytes
            if is_whole and not self.disk.is_shared(path):
                self._spares.append(path)
            else:
                self.disk.remove(path)
        self._trim_spares()
        self._spare_numbers = count(max((int(path.stem) for path in self._spares), default=0) + 1)
        indexed = {segment.index_path for segment in self.segments}
        for path in (*self.directory.glob("*.new"), *self.directory.glob("*.index")):
            if path not in indexed:
                self.disk.remove(path)

    def adopt(self) -> None:
        """At a start, once all is read: what the page cache has of it counts."""
        self.footprint.adopt(self.segments)

    def forget_from(self, position: int) -> None:
        """Recycle the segments that begin at or after the log's end: nothing in them counts.

        If a power loss brings them back, a later start refuses them by their generation. Raises
        OSError if files remain under their names; they are forgotten all the same, or the log would
        be written before the first byte of its last segment.
        """
        failure: OSError | None = None
        while self.segments and self.segments[-1].start >= position:
            segment = self.segments.pop()
            self.disk.close(segment.fd)
            try:
                spare = self._recycle(segment, self._spare_for(segment))
            except OSError as error:
                failure = error
            else:
                self._spares += [spare] if spare else []
        if failure is not None:
            raise failure

    # --- how many bytes ---------------------------------------------------------------------------

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

    # --- the next one -----------------------------------------------------------------------------

    def begin(self, start: int) -> WalSegment:
        """Begin the segment at `start`. Raises NoSegment."""
        self._is_awaited = True
        try:
            segment = self._ready(start)
        finally:
            self._is_awaited = False
        assert segment.start == start
        if self.segments:
            self.footprint.enter(self.segments[-1])
        self.segments.append(segment)
        self.prepare_next()
        return segment

    def _ready(self, start: int) -> WalSegment:
        """The file of the segment at `start`. Raises NoSegment."""
        segment = self._take_next()
        while segment is None:
            spare = self._spares.pop() if self._spares else None
            try:
                segment = self._prepare(start, spare)
            except OSError as error:
                self._put_back(spare)
                if not self.kept.reclaim(even_lent=True):
                    raise NoSegment(error.errno, f"beginning a segment: {told(error)}") from error
                segment = self._take_next()
        return segment

    def _take_next(self) -> WalSegment | None:
        """The file that is ready or being made; None: there is none."""
        if self._next is None:
            self.make_room()
        while self._preparing_next or (self._next is None and self._recycling):
            self.background.wait_a_job(JobLane.FILES)
        segment, self._next = self._next, None
        return segment

    def _prepare(self, start: int, spare: Path | None) -> WalSegment:
        """The file of the segment at `start`, made of a spare if there is one. Raises OSError."""
        path = self.directory / f"{start:020d}.wal"
        fd = None if spare is None else self._open_spare(spare)
        is_new = spare is None or fd is None
        if spare is None or fd is None:
            spare = self.new_path()
            fd = self.disk.create(spare, self.segment_bytes)
        segment = WalSegment(start, start + self.segment_bytes, fd, path)
        try:
            self.footprint.open(segment, spare)  # Once it is renamed, nothing may fail.
            self.disk.rename(spare, path)
        except OSError:
            self.disk.close(fd)
            self.footprint.close(segment)
            if is_new:  # Nobody knows of it.
                self.disk.remove(spare)
            raise
        return segment

    def _open_spare(self, spare: Path) -> int | None:
        """A descriptor of a file to use again; None: it was deleted, and its room is free. Raises
        OSError."""
        fd = self.disk.open(spare)
        try:
            has_blocks = self._make_writable(fd)
        except OSError:
            self.disk.close(fd)
            raise
        if has_blocks:
            return fd
        self.disk.close(fd)
        self.disk.remove(spare)
        return None

    def _make_writable(self, fd: int) -> bool:
        """Have no write to a part of a page wait for the rest of it, where the page cache lacks
        some of what the file held before. False: it may have lost blocks. Raises OSError."""
        if self._is_cached(fd) or (self.writes_ahead and self._read_back(fd)):
            return True
        try:
            self.disk.clear(fd, self.segment_bytes)
        except OSError as error:  # Not every file system can. Then writes wait for reads.
            return error.errno not in FULL
        return True

    def _read_back(self, fd: int) -> bool:
        """Bring a file's pages back: a sync of blocks that were never written would cost more than
        of these. False: some cannot be read, so that a write to a part of one would fail; or the
        loop has come to wait for the file, which a slow disk may read for seconds."""
        size = self.segment_bytes
        try:
            for piece in by_pieces(size, READ_BACK_BYTES):
                if self._is_awaited:
                    return False
                ahead_bytes = min(READ_BACK_BYTES, size - piece.stop)
                self.disk.will_read(fd, ahead_bytes, piece.stop)
                # Waits for it: clearing would wait for all that is under way.
                self.disk.read(fd, piece.stop - piece.start, piece.start)
        except OSError:
            return False
        return True

    def _is_cached(self, fd: int) -> bool:
        """Whether the page cache has all that was written of a file; where the system does not
        tell, whether it has its end."""
        size = min(PAGE_BYTES, self.segment_bytes)
        at, cached = self.segment_bytes - size, self.disk.cached_pages(fd, self.segment_bytes)
        if cached is not None:
            if cached.all():
                return True
            at = int(np.argmin(cached)) * PAGE_BYTES
            size = min(PAGE_BYTES, self.segment_bytes - at)
        # What was never written, which is behind what was, is read without the disk.
        return self.disk.read_cached(fd, size, at) is not None

    def _put_back(self, spare: Path | None) -> None:
        """Keep a spare that could not be used, if it still has its name: what fails last is the
        sync of its directory."""
        if spare is not None and spare.exists():
            self._spares.append(spare)

    def new_path(self) -> Path:
        """The path of a file that is no segment yet."""
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

        def done(result: WalSegment | OSError) -> None:
            self._preparing_next = False
            if isinstance(result, WalSegment):
                self._next = result
                self._prepare_spare()
            elif spare is not None:
                self._put_back(spare)
            else:  # The disk has no room for a new file: a kept segment's will do.
                self.kept.reclaim(even_lent=True)

        self.background.submit(JobLane.FILES, lambda: self._prepare(start, spare), done)

    def _prepare_spare(self) -> None:
        if len(self._spares) >= SPARES_READY or self._preparing_spare:
            return
        if self.files_bytes + self.segment_bytes > self.limit:
            return
        path = self.new_path()
        self._preparing_spare = True

        def make() -> None:
            self.disk.close(self.disk.create(path, self.segment_bytes))

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
            self.background.submit(
                JobLane.FILES,
                lambda: self.disk.fill(path, at, size),
                lambda failure: write(at + size) if failure is None else made(None),
            )

        self.background.submit(
            JobLane.FILES, make, lambda failure: write(0) if failure is None else made(failure)
        )

    # --- freeing ----------------------------------------------------------------------------------

    def make_room(self) -> None:
        """Free kept segments until there is room for the next one."""
        self._close_unused()
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
            self.background.submit(JobLane.FILES, partial(self.disk.remove, path), lambda _: None)

    def free(self, segment: WalSegment) -> None:
        """Give up a segment that is not needed: its file becomes a spare, in the background."""
        assert segment.pins == 0
        assert not self.must_stay(segment)
        assert segment is not self.segments[-1]
        if segment.is_kept:
            self.kept.remove(segment)
        self.segments.remove(segment)
        self.footprint.forget(segment)
        spare = self._spare_for(segment)
        self._recycling += 1

        def done(result: Path | OSError | None) -> None:
            self._recycling -= 1
            if isinstance(result, Path):  # Else it was deleted, or the next start finds it.
                self._spares.append(result)
            self.prepare_next()

        self.background.submit(JobLane.FILES, lambda: self._recycle(segment, spare), done)
        self._unclosed.append((segment.end, segment.fd))
        self._close_unused()

    def _spare_for(self, segment: WalSegment) -> Path | None:
        """The name under which an unneeded file becomes a spare; None: delete it."""
        fits = segment.end - segment.start == self.segment_bytes
        fits &= self.files_bytes + self.segment_bytes <= self.limit
        return self.new_path() if fits and self._may_keep_a_spare() else None

    def _close_unused(self) -> None:
        """Close what the syncer has done with. To sync a file that is used again harms nobody."""
        fds = [fd for end, fd in self._unclosed if not self.syncer_may_use(end)]
        if fds:
            self._unclosed = [each for each in self._unclosed if each[1] not in fds]
            self.background.submit(JobLane.FILES, lambda: self._close(fds), lambda _: None)

    def _close(self, fds: Sequence[int]) -> None:
        for fd in fds:
            self.disk.close(fd)

    def _recycle(self, segment: WalSegment, spare: Path | None) -> Path | None:
        self.footprint.close(segment)
        self.disk.remove(segment.index_path)
        if spare is None:
            self.disk.remove(segment.path)
            return None
        # No snapshot can link it under its new name: is_shared is final from now on.
        try:
            self.disk.rename(segment.path, spare)
        except OSError:  # It has either name, and after a power cut may have the old one again.
            self.disk.remove(spare)
            self.disk.remove(segment.path)
            return None
        if self.disk.is_shared(spare):
            self.disk.remove(spare)
            return None
        return spare

    def _may_keep_a_spare(self) -> bool:
        bytes_max = max(self.limit // SPARES_SHARE, SPARES_READY * self.segment_bytes)
        spares = len(self._spares) + self._recycling
        return (spares + 1) * self.segment_bytes <= bytes_max

    def _trim_spares(self) -> None:
        """Delete spares beyond their share, or beyond the limit for all files."""
        while self._spares and (self.files_bytes > self.limit or not self._may_keep_a_spare()):
            self.disk.remove(self._spares.pop())

    def close(self) -> None:
        """Close all descriptors. A second call does nothing."""
        for segment in (*self.segments, self._next):
            if segment is not None and segment.fd >= 0:
                self.disk.close(segment.fd)
                self.footprint.close(segment)
                segment.fd = -1
        self._close([fd for _, fd in self._unclosed])
        self._unclosed.clear()


def _is_free(segment: WalSegment) -> bool:  # noqa: ARG001
    return False


def _is_idle(end: int) -> bool:  # noqa: ARG001
    return False
