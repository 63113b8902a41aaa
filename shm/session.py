"""A session's memory: how a program on this host hands Produce requests to a shard.

    0        64        512       4096          36864             + inbox_bytes
    +--------+---------+---------+-------------+-----------------+----------------+
    | facts  | words   | words   | watch list  | inbox           | answers        |
    |      S |       S |       C |           C |               C |              S |
    +--------+---------+---------+-------------+-----------------+----------------+
    S written by the shard, C by the client; each could write all of it, so the shard trusts nothing
    here. Words are int64; one that the other side waits for has a cache line of its own.

Inbox and answers are rings, their positions only grow. The inbox holds whole Produce requests as on
a socket, a big-endian size before each, every one at a multiple of 8 and in one piece: if the end
is too short for the next, a size of -1 says that it is at the start. The answers' ring is a stream
of bytes, also as on a socket: an answer may wrap, and may come in parts.

A word called …_SLEEP is odd while its side waits for a bell, a byte on the session's socket, and
has another value each time, so that no side rings twice for one sleep.

One session is one memfd (SHRINK, GROW and SEAL are sealed): a client can neither take pages away
under the shard nor seal it against the shard's writing.
"""

import mmap
import os
import sys
from collections.abc import Iterable

import numpy as np

from shm.kernels.base.wire import SIZE_BYTES
from shm.kernels.session.watch import publish_watch, watch_version
from shm.kernels.session.words import (
    IN_BYTES,
    INBOX_AT,
    OUT_AT,
    OUT_BYTES,
    REQUEST_MAX,
    SESSION_ANSWERS_BYTES,
    SESSION_INBOX_BYTES,
    SESSION_MAGIC,
    SESSION_REQUEST_BYTES_MAX,
    SIDE_WORDS,
    WATCH_ALL,
    WATCH_AT,
    WATCH_COUNT,
    WATCH_MAX,
    WATCH_SEEN,
)
from shm.layout import PAGE_BYTES

if sys.platform != "win32":  # Wire-only programs import this file too.
    import fcntl

MAGIC = 0x0001_53_51_4D_53  # "SMQS" and the version of this map, little endian.
HEADER_BYTES = WATCH_AT

assert WATCH_AT % PAGE_BYTES == 0
assert INBOX_AT % PAGE_BYTES == 0


class SessionMemory:
    """One side's mapping of a session. `side` is what this side keeps for itself.

    memory  uint8, everything; what kernels take, with `side`
    words   the int64 words, as a memoryview
    """

    def __init__(self, mapping: mmap.mmap, fd: int) -> None:
        self.fd = fd
        self.memory = np.frombuffer(mapping, np.uint8)
        self.words = memoryview(mapping)[:HEADER_BYTES].cast("q")
        self._watch = memoryview(mapping)[WATCH_AT:INBOX_AT].cast("q")
        self.side = np.zeros(SIDE_WORDS, np.int64)

    @classmethod
    def create(cls, inbox_bytes: int, answers_bytes: int) -> "SessionMemory":
        """New memory, for the shard. A request takes at most half of the inbox."""
        assert inbox_bytes % PAGE_BYTES == answers_bytes % PAGE_BYTES == 0
        total_bytes = INBOX_AT + inbox_bytes + answers_bytes
        fd = os.memfd_create("smq-session", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, total_bytes)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL)
        self = cls(mmap.mmap(fd, total_bytes), fd)
        self.words[SESSION_INBOX_BYTES] = inbox_bytes
        self.words[SESSION_ANSWERS_BYTES] = answers_bytes
        self.words[SESSION_REQUEST_BYTES_MAX] = inbox_bytes // 2 - SIZE_BYTES
        self.words[SESSION_MAGIC] = MAGIC
        self._take_sides(inbox_bytes, answers_bytes)
        return self

    @classmethod
    def attach(cls, fd: int) -> "SessionMemory":
        """The client's mapping. Raises ValueError when it is not a session of this version."""
        total_bytes = os.fstat(fd).st_size
        if total_bytes < INBOX_AT:
            raise ValueError("this descriptor is not the memory of a session")
        self = cls(mmap.mmap(fd, total_bytes), fd)
        sizes = self.words[SESSION_INBOX_BYTES], self.words[SESSION_ANSWERS_BYTES]
        if self.words[SESSION_MAGIC] != MAGIC or INBOX_AT + sum(sizes) != total_bytes:
            raise ValueError("this descriptor is not the memory of a session of this version")
        self._take_sides(*sizes)
        return self

    def _take_sides(self, inbox_bytes: int, answers_bytes: int) -> None:
        self.side[IN_BYTES] = inbox_bytes
        self.side[OUT_AT] = INBOX_AT + inbox_bytes
        self.side[OUT_BYTES] = answers_bytes
        self.side[REQUEST_MAX] = self.words[SESSION_REQUEST_BYTES_MAX]

    @property
    def request_bytes_max(self) -> int:
        """The largest request with its size."""
        return int(self.side[REQUEST_MAX]) + SIZE_BYTES

    # --- the watch list --------------------------------------------------------------------------

    def watch(self, numbers: Iterable[int]) -> None:
        """The client: watch these partitions, by their numbers, from now on.

        The shard reads the list after a bell. A list that changes while it reads is read again,
        for the bell of the change comes after it.
        """
        wanted = np.array(sorted(set(numbers)), np.int64)
        count = WATCH_ALL if len(wanted) > WATCH_MAX else len(wanted)
        publish_watch(self.memory, wanted[:WATCH_MAX], count)

    def watched(self) -> set[int] | None:
        """The shard: the numbers in the list, None for all. Safe whatever the client has
        written."""
        self.side[WATCH_SEEN] = watch_version(self.memory)
        count = self.words[WATCH_COUNT]
        if not 0 <= count <= WATCH_MAX:
            return None
        return set(self._watch[:count].tolist())

    def watch_has_changed(self) -> bool:
        """The shard: whether the client has another list than the one last read."""
        return bool(watch_version(self.memory) != self.side[WATCH_SEEN])
