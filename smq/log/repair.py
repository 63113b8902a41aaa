"""Writing a log again after a failed write or sync.

Nothing is known of what the disk has of the bytes in doubt: the kernel may have marked their pages
clean. The ring still has them; they go to fresh files, which are synced before they take the places
of the old ones. That is done in the background: nothing is appended meanwhile, so the ring rests.

After a sync that failed the next sync of the same file says that all is well, also to another
process. So a failure that was not repaired leaves a note, and a start that finds it writes anew
what the page cache has of the log and no sync has covered.
"""

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from shm.kernels.base.words import (
    P_HIGH_WATERMARK,
    P_LAST_STABLE,
    P_LOG_START,
    P_SEALED_END,
    WORD_RING_START,
    WORD_SYNCED,
    WORD_TAIL,
    WORD_WRITTEN,
)
from smq.log.reading import ReadableLog
from smq.log.wal import Segment

NOTE = "sync-failed"


class Part(NamedTuple):
    """A segment to be written again: [start, end) from the ring, what lies before from its file."""

    segment: Segment
    start: int
    end: int


class Rewritten(NamedTuple):
    """Descriptors of fresh files, as far as there was no failure."""

    fds: list[int]
    failure: OSError | None


def ring_holds(log: ReadableLog, position: int) -> bool:
    """Whether everything from a position on is still in the ring."""
    words = log.words
    oldest = max(words[WORD_RING_START], words[WORD_TAIL] - log.memory.layout.ring_bytes)
    return position >= oldest


def note_failed_sync(directory: Path, boot_id: bytes) -> None:
    """Leave a note for the next start. On a disk that takes not even this it is not known there.

    It says in which boot: what else is known of the boot may not have been written to this disk.
    """
    with suppress(OSError):
        (directory / NOTE).write_bytes(boot_id)


def forget_failed_sync(directory: Path) -> None:
    """All is synced that was in doubt."""
    with suppress(OSError):
        (directory / NOTE).unlink(missing_ok=True)


def sync_has_failed(directory: Path, boot_id: bytes) -> bool:
    """Whether an earlier life in this boot has left a note, perhaps on a disk that was full."""
    try:
        said = (directory / NOTE).read_bytes()
    except OSError:
        return False
    return said in {boot_id, b""}


def write_files_again(log: ReadableLog, since: int) -> None:
    """Put fresh, synced files in the places of those that hold anything from `since` on, as the
    page cache has them. Raises OSError."""
    for segment in log.wal.segments:
        if segment.end > since:
            stop = min(log.words[WORD_WRITTEN], segment.end)
            log.wal.swap(segment, log.wal.write_again(segment, log.memory.ring_view, stop, stop))


def hide_unsynced(log: ReadableLog, number: int) -> None:
    """Show of a partition that was recovered only what the disk is known to have."""
    offset = log.lookup.first_offset_from(number, log.words[WORD_SYNCED])
    row = log.partitions.table[log.partitions.slots[number]]
    if offset is not None:
        shown = max(int(row[P_LOG_START]), int(row[P_SEALED_END]), offset)
        assert shown <= row[P_HIGH_WATERMARK]
        row[P_HIGH_WATERMARK] = row[P_LAST_STABLE] = shown


def parts_from(log: ReadableLog, since: int) -> list[Part]:
    """What must be written again when all from position `since` on is in doubt."""
    parts = []
    for segment in log.wal.segments:
        if segment.end > since:
            start = max(since, segment.start)
            parts.append(Part(segment, start, max(start, min(log.words[WORD_TAIL], segment.end))))
    return parts


def rewrite(log: ReadableLog, parts: list[Part]) -> Rewritten:
    """Make fresh, synced files and give them the names of the old ones."""
    fds: list[int] = []
    try:
        for segment, start, end in parts:
            fds.append(log.wal.write_again(segment, log.memory.ring_view, start, end))
    except OSError as failure:
        return Rewritten(fds, failure)
    return Rewritten(fds, None)
