"""The room in a log's WAL, as other processes read it in the log's memory."""

from typing import NamedTuple

from shm.kernels.base.words import WORD_SPACE_END, WORD_SPACE_LIMIT, WORD_TAIL


class WalRoom(NamedTuple):
    """How many bytes can be appended, of the WAL's limit: `wal.bytes.max`, or what the disk has
    room for. Unknown for a log that was not opened yet."""

    bytes: int
    limit_bytes: int


def room_of(words: "memoryview[int]") -> WalRoom:
    """The room of the log that has this header."""
    limit = int(words[WORD_SPACE_LIMIT])
    left = int(words[WORD_SPACE_END]) - int(words[WORD_TAIL])
    return WalRoom(max(0, min(limit, left)), limit)
