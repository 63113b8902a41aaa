"""Writing a log again after a failed write or sync.

Nothing is known of what the disk has of the bytes in doubt: the kernel may have marked their pages
clean. The ring still has them; they go to fresh files, which are synced before they take the places
of the old ones.
"""

from shm.kernels.words import WORD_RING_START, WORD_TAIL
from smq.log.reading import ReadableLog


def ring_holds(log: ReadableLog, position: int) -> bool:
    """Whether everything from a position on is still in the ring."""
    words = log.words
    oldest = max(words[WORD_RING_START], words[WORD_TAIL] - log.memory.layout.ring_bytes)
    return position >= oldest


def write_again(log: ReadableLog, since: int) -> int:
    """Put fresh, synced files in the places of the segments from position `since` on.

    Returns up to where they have the log; what lies beyond needs a new segment. Raises OSError.
    """
    tail, written = log.words[WORD_TAIL], since
    for segment in [s for s in log.wal.segments if s.end > since]:
        start = max(since, segment.start)
        written = min(tail, segment.end)
        log.wal.replace(segment, log.memory.ring_view, start, max(start, written))
    return written
