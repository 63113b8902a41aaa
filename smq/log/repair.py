"""Failure of a log, and its repair: rewriting doubtful bytes to fresh files.

After a failed write or sync it is unknown what the disk holds of the bytes in doubt: the kernel may
have marked their pages clean. A repair writes them to fresh files and syncs these before they
replace the old ones. It runs in the background; the log refuses appends meanwhile, so the ring does
not move. What the ring has no more, as of `os` topics, which nothing syncs, the page cache has: a
failed log drops nothing. They may be gigabytes: each fresh file replaces the old one before the
next is made, and a repair that fails in the middle is gone on with. What was dropped before is on
the disk, so it is only synced; if a sync has failed, it is written again too.

What cannot be read is not in the page cache, and nothing can be made up for there. Its file is
written over in place: the page cache's bytes are, and the disk may read the others one day.

After a failed sync, the next sync of the same file reports success, also to another process. So a
failed sync leaves a note in the log's directory until the log is repaired. A start that finds the
note rewrites, from the page cache, whatever no sync has covered.
"""

from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from shm.kernels.base.words import (
    DURABILITY_DISK,
    FLAG_READ_ONLY,
    P_FLAGS,
    P_HIGH_WATERMARK,
    P_LOG_START,
    P_SEALED_END,
    WORD_RING_START,
    WORD_SYNCED,
    WORD_TAIL,
    WORD_WRITTEN,
)
from smq.log.files.background import Background, JobLane
from smq.log.files.disk import told
from smq.log.files.segment import UnreadableSegment, UnsyncedName, WalSegment
from smq.log.partitions import show
from smq.log.reading import ReadableLog
from smq.log.sync import Syncs

NOTE = "sync-failed"


class Rewrite(NamedTuple):
    """A segment to rewrite: [start, end) comes from the ring, what lies before from its file. If
    the disk had it when the repair began it is only synced: a drop that ends later says nothing of
    what had failed."""

    segment: WalSegment
    start: int
    end: int
    is_on_disk: bool = False


class Health:
    """Whether a log accepts appends; if not, whether a repair may end that.

    failed        why the log refuses appends; None: it accepts them
    is_repairing  a repair runs in the background
    has_written   a write has succeeded since the last repair began. Without one, a repair is
                  followed by the same failure: then only tend() allows the next attempt
    """

    def __init__(
        self, log: ReadableLog, syncs: Syncs, background: Background, boot_id: bytes
    ) -> None:
        self._log, self._syncs, self._background = log, syncs, background
        self._boot_id = boot_id
        self.failed: str | None = None
        self.is_repairing = False
        self.has_written = True
        self._in_doubt_from = 0
        self._may_repair = self._is_beyond_repair = False
        self._has_note = False  # Though the log is repaired.
        self._unshown: set[int] = set()  # Partitions recovered by a start whose sync failed.

    def invariants(self) -> None:
        """Raise AssertionError when the flags contradict each other."""
        assert self.failed is not None or not (self.is_repairing or self._is_beyond_repair)
        assert self.failed is not None or not self._unshown

    def fail(self, why: str, in_doubt_from: int) -> None:
        """Refuse appends: every partition of the log answers KAFKA_STORAGE_ERROR."""
        if self.failed is not None:  # Two things may fail; a repair makes up for both.
            in_doubt_from = min(in_doubt_from, self._in_doubt_from)
        self.failed, self._in_doubt_from = why, in_doubt_from
        self._may_repair = self.has_written
        log = self._log
        log.notices.append(f"{log.directory}: {why}; the log is read-only until it is repaired")
        for slot in log.partitions.slots.values():
            log.partitions.table[slot, P_FLAGS] |= FLAG_READ_ONLY

    def fail_sync(self, why: str = "fdatasync of the WAL failed") -> None:
        """A sync or a write-back has failed: whatever no sync has covered is in doubt."""
        self.fail(why, self._log.words[WORD_SYNCED])
        note_failed_sync(self._log.directory, self._boot_id)

    def fail_start(self, why: str) -> None:
        """What earlier starts wrote cannot be synced: the log is read-only until a restart."""
        self.fail(why, self._log.words[WORD_SYNCED])
        self._is_beyond_repair = True
        note_failed_sync(self._log.directory, self._boot_id)
        self._unshown = set(self._log.partitions.slots)

    def adopt(self, number: int, durability: int) -> None:
        """Apply a failure to a partition that the log leads from now on."""
        log = self._log
        if self.failed is not None:
            log.partitions.table[log.partitions.slots[number], P_FLAGS] |= FLAG_READ_ONLY
        if number in self._unshown:
            self._unshown.remove(number)
            if durability == DURABILITY_DISK:
                hide_unsynced(log, number)

    @property
    def may_recover(self) -> bool:
        """Whether a repair runs, or may begin as soon as the running sync ends."""
        return self.failed is not None and (self.is_repairing or self._may_repair)

    def allow_repair(self) -> None:
        """Allow one more attempt at repair."""
        self._may_repair = True
        if self.failed is None:
            self._forget_note()

    def _forget_note(self) -> None:
        """Remove the note of what is repaired. One may be new: a write-back has failed, and we have
        not heard of it. Then it stays, for a start would know nothing else."""
        if self._has_note and not self._log.wal.files.footprint.is_dropping:
            forget_failed_sync(self._log.directory)
            self._has_note = False

    def begin_repair(self) -> bool:
        """Begin a repair of a failed log in the background; False: not now, or not at all."""
        if self.is_repairing or self._syncs.is_running() or not self._may_repair:
            return False
        self._may_repair = self.has_written = False
        if self._is_beyond_repair:
            return False
        log, since = self._log, self._in_doubt_from
        if self._syncs.syncer.failed():
            since = min(since, log.words[WORD_SYNCED])
            for segment in log.wal.segments:  # The next sync of the one that failed would say yes.
                segment.is_on_disk &= segment.end <= since
        self.is_repairing = True
        parts = deque(parts_from(log, since))
        for part in parts:
            part.segment.pins += 1
        self._rewrite(since, since, parts)
        return True

    def _rewrite(self, since: int, written: int, parts: deque[Rewrite]) -> None:
        """Rewrite what is left of [since, …), in the background; up to `written` it is done."""
        if not parts:
            self._end_repair(since, written)
            return
        part = parts[0]

        def done(fd: int | OSError | None) -> None:
            if isinstance(fd, UnsyncedName):
                self._log.wal.swap(part.segment, fd.fd)
            if isinstance(fd, OSError):
                part.segment.is_on_disk = False  # The next sync of the same file would say yes.
                self._give_up_repair(since, written, parts, fd)
                return
            parts.popleft().segment.pins -= 1
            if fd is not None:
                self._log.wal.swap(part.segment, fd)
            self._rewrite(since, max(written, part.end), parts)

        self._background.submit(JobLane.FILES, lambda: rewrite(self._log, part), done)

    def _give_up_repair(
        self, since: int, written: int, parts: deque[Rewrite], failure: OSError
    ) -> None:
        self.is_repairing = False
        for part in parts:
            part.segment.pins -= 1
        self.failed = f"the WAL cannot be written: {told(failure)}"
        self._have_synced(since, written)
        if since <= self._in_doubt_from:  # Else a write-back has failed meanwhile.
            self._in_doubt_from = max(written, self._in_doubt_from)

    def _end_repair(self, since: int, written: int) -> None:
        self.is_repairing = False
        self._have_synced(since, written)
        if since <= self._in_doubt_from:  # Else a write-back has failed meanwhile.
            self._recover()

    def _have_synced(self, since: int, written: int) -> None:
        """Fresh files have [since, written)."""
        words = self._log.words
        words[WORD_WRITTEN] = max(words[WORD_WRITTEN], written)
        if since <= words[WORD_SYNCED] < written:
            words[WORD_SYNCED] = written

    def _recover(self) -> None:
        log, syncer = self._log, self._syncs.syncer
        if syncer.failed():
            syncer.reset()
        self.failed, self._has_note = None, True
        self._forget_note()
        log.notices.append(f"{log.directory}: the WAL is written again")
        for slot in log.partitions.slots.values():
            log.partitions.table[slot, P_FLAGS] &= ~FLAG_READ_ONLY


def oldest_in_ring(log: ReadableLog) -> int:
    """From which position on the ring has everything."""
    words = log.words
    return max(words[WORD_RING_START], words[WORD_TAIL] - log.memory.layout.ring_bytes)


def note_failed_sync(directory: Path, boot_id: bytes) -> None:
    """Leave a note for the next start.

    If the disk refuses even this, that start will not know. The note names the boot: the file that
    normally names it may not have reached this disk.
    """
    with suppress(OSError):
        (directory / NOTE).write_bytes(boot_id)


def forget_failed_sync(directory: Path) -> None:
    """Remove the note: all doubtful bytes are synced."""
    with suppress(OSError):
        (directory / NOTE).unlink(missing_ok=True)


def sync_has_failed(directory: Path, boot_id: bytes) -> bool:
    """Whether an earlier start in this boot has left a note. On a full disk the note is empty; one
    that cannot be read may be of this boot."""
    try:
        said = (directory / NOTE).read_bytes()
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return said in {boot_id, b""}


def write_files_again(log: ReadableLog, since: int) -> None:
    """Replace the files that hold bytes from `since` on by fresh, synced ones.

    Their content comes from the page cache; of what former lives dropped from it nobody knows.
    Raises OSError.
    """
    for segment in log.wal.segments:
        if segment.end > since:
            stop = min(log.words[WORD_WRITTEN], segment.end)
            try:
                fd = write_segment_again(log, Rewrite(segment, stop, stop))
            except UnsyncedName as error:
                log.wal.swap(segment, error.fd)
                raise
            log.wal.swap(segment, fd)


def make_durable(log: ReadableLog, boot_id: bytes, *, has_disk_frames: bool) -> None:
    """At a start: sync what earlier lives have written, if that was promised (frames of `disk`
    topics) or one of their syncs has failed. Raises OSError."""
    words = log.words
    is_in_doubt = sync_has_failed(log.directory, boot_id)
    if is_in_doubt:
        write_files_again(log, words[WORD_SYNCED])
    elif has_disk_frames:
        log.wal.sync_from(words[WORD_SYNCED])
    if is_in_doubt or has_disk_frames:
        words[WORD_SYNCED] = words[WORD_WRITTEN]
    forget_failed_sync(log.directory)


def hide_unsynced(log: ReadableLog, number: int) -> None:
    """Lower a recovered partition's high watermark to what is known to be on disk."""
    offset = log.lookup.first_offset_from(number, log.words[WORD_SYNCED])
    row = log.partitions.table[log.partitions.slots[number]]
    if offset is not None:
        shown = max(int(row[P_LOG_START]), int(row[P_SEALED_END]), offset)
        assert shown <= row[P_HIGH_WATERMARK]
        show(row, shown)


def parts_from(log: ReadableLog, since: int) -> list[Rewrite]:
    """What to rewrite when everything from position `since` on is in doubt.

    What the ring no longer has comes from the page cache, as at a start.
    """
    parts, held = [], oldest_in_ring(log)
    for segment in log.wal.segments:
        if segment.end > since:
            start = min(max(since, segment.start, held), segment.end)
            end = max(start, min(log.words[WORD_TAIL], segment.end))
            parts.append(Rewrite(segment, start, end, segment.is_on_disk))
    return parts


def rewrite(log: ReadableLog, part: Rewrite) -> int | None:
    """Make a segment durable: the descriptor of its file if that was written again. Raises
    OSError."""
    if not part.is_on_disk:
        return write_segment_again(log, part)
    log.wal.sync(part.segment)
    return None


def write_segment_again(log: ReadableLog, part: Rewrite) -> int:
    """Write a fresh, synced file and rename it over the old one; its descriptor. Raises OSError."""
    ring = log.memory.ring_view
    try:
        return log.wal.write_again(part.segment, ring, part.start, part.end)
    except UnreadableSegment:
        return log.wal.write_over(part.segment, ring, part.start, part.end)
