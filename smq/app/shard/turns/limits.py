"""Which bitmaps the kernel uses for which descriptor (shm.kernels.turn.limited)."""

import numpy as np

from shm.kernels.log.bitmaps import NOBODYS
from shm.kernels.turn.limited import L_ROW, L_USED_NS, LIMIT_WORDS
from shm.kernels.turn.words import ACCESS, ACCESS_VERSION, BITMAP_WORDS, BITMAPS, LIMITS
from smq.app.shard.connections.connection import Connection
from smq.shard.bitmaps import Bitmaps


class Limits:
    """The limits of a shard's clients, by descriptor.

    turn      the words of the kernel's turns
    access    int64: the version of users and rules that was published last
    """

    def __init__(
        self, bitmaps: Bitmaps, turn: np.ndarray, access: np.ndarray, descriptors: int
    ) -> None:
        self._bitmaps, self._turn, self._access = bitmaps, turn, access
        self._limits = np.zeros(descriptors * LIMIT_WORDS, np.int64)
        self._rows = self._limits.reshape(-1, LIMIT_WORDS)[:, L_ROW]
        self._used = self._limits.reshape(-1, LIMIT_WORDS)[:, L_USED_NS]
        self._end = 0  # Behind the largest descriptor that was ever noted.
        for word, array in ((LIMITS, self._limits), (BITMAPS, bitmaps.words), (ACCESS, access)):
            turn[word : word + 2] = array.ctypes.data, len(array)
        turn[BITMAP_WORDS], turn[ACCESS_VERSION] = bitmaps.size, -1
        bitmaps.released = self._release

    def follow(self, version: int) -> None:
        """Rights have changed: from now on bitmaps are those of this version."""
        self._bitmaps.follow()
        self._turn[ACCESS_VERSION] = version

    def note(self, connection: Connection) -> None:
        """The kernel may serve a client by its bitmaps."""
        self._end = max(self._end, connection.fd + 1)
        self._rows[connection.fd] = self._bitmaps.row_of(connection.caller.rights.peer)
        self._used[connection.fd] = connection.last_used_ns

    def last_used_ns(self, fd: int) -> int:
        """When a client has last used its connection."""
        return int(self._used[fd])

    def _release(self, row: int) -> None:
        """A row is another principal's from now on: who had it is served by Python until it is
        noted again."""
        rows = self._rows[: self._end]
        rows[rows == row] = NOBODYS
