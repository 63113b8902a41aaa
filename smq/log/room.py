"""How much room a log's WAL has, as others see it in the log's memory."""

from typing import NamedTuple

from shm.kernels.base.words import WORD_SPACE_END, WORD_TAIL

WORD_SPACE_LIMIT = 43  # A word of the header that no kernel looks at: what all files may take.


class Room(NamedTuple):
    """What can be appended, of what the WAL may take: `wal.bytes.max`, or what the disk has room
    for. In bytes; nothing is known of a log that was not opened yet."""

    bytes: int
    limit_bytes: int


def room_of(words: "memoryview[int]") -> Room:
    """The room of the log that has this header."""
    limit = int(words[WORD_SPACE_LIMIT])
    left = int(words[WORD_SPACE_END]) - int(words[WORD_TAIL])
    return Room(max(0, min(limit, left)), limit)
