"""The sessions that a kernel serves (shm.kernels.turn_sessions), as the loop keeps them for it."""

from collections.abc import Iterable, Iterator

from shm.kernels.turn_sessions import (
    S_FD,
    S_MEMORY,
    S_MEMORY_BYTES,
    S_SIDE,
    S_SIDE_WORDS,
    SESSION_WORDS,
    SESSIONS_MAX,
    new_sessions,
)
from smq.app.receive import BUFFER_BYTES
from smq.app.session import Session


class SessionTable:
    """Of one shard. `arrays` is what kernels take; `watch_all`, `awake` are words with a bit a row.

    watch_all  those who watch every partition
    awake      those to look at without a bell
    """

    def __init__(self, slots: int) -> None:
        self.arrays = new_sessions(slots)
        self._table, self._watchers = self.arrays
        self._sessions: list[Session | None] = [None] * SESSIONS_MAX
        self.watch_all = self.awake = 0
        self.spin_until_ns = 0

    def add(self, session: Session) -> None:
        """Give it a row, if there is one and the kernel can take its largest request."""
        if None not in self._sessions or session.memory.request_bytes_max > BUFFER_BYTES:
            return
        row = self._sessions.index(None)
        self._sessions[row], session.row = session, row
        words = self._table[SESSION_WORDS * row :]
        memory, side = session.memory.memory, session.side
        words[S_FD] = session.fd
        words[S_MEMORY], words[S_MEMORY_BYTES] = memory.ctypes.data, len(memory)
        words[S_SIDE], words[S_SIDE_WORDS] = side.ctypes.data, len(side)

    def remove(self, session: Session) -> None:
        """It is gone."""
        if session.row >= 0:
            self.watch(session, ())
            self.awake &= ~(1 << session.row)
            self._sessions[session.row], session.row = None, -1

    def watch(self, session: Session, slots: Iterable[int] | None) -> None:
        """These partitions are what it watches from now on; None: all of them."""
        bit = 1 << session.row
        self._watchers &= ~bit
        self.watch_all = self.watch_all & ~bit if slots is not None else self.watch_all | bit
        for slot in slots or ():
            self._watchers[slot] |= bit

    def all(self) -> Iterator[Session]:
        """Those in the table."""
        return (session for session in self._sessions if session is not None)

    def of(self, rows: int) -> list[Session]:
        """The sessions of a word."""
        return [session for session in self.all() if rows >> session.row & 1]

    def at(self, fd: int) -> Session:
        """Whose socket that is."""
        return next(session for session in self.all() if session.fd == fd)
