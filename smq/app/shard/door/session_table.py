"""The sessions that a kernel serves (shm.kernels.turn.sessions), as the loop keeps them for it."""

from collections.abc import Iterator

from shm.kernels.turn.sessions import (
    S_FD,
    S_MEMORY,
    S_MEMORY_BYTES,
    S_SIDE,
    S_SIDE_WORDS,
    SESSION_WORDS,
    SESSIONS_MAX,
    new_sessions,
)
from smq.app.shard.connections.receive import BUFFER_BYTES
from smq.app.shard.door.session import Session


class SessionTable:
    """The sessions of one shard. `arrays` is what kernels take.

    `watch_all` and `awake` are words with a bit for each row.

    watch_all  the sessions that watch every partition: see Watchers
    awake      the sessions to check without a bell
    """

    def __init__(self, slots: int) -> None:
        self.arrays = new_sessions(slots)
        self._table = self.arrays[0]
        self._sessions: list[Session | None] = [None] * SESSIONS_MAX
        self.watch_all = self.awake = 0
        self.spin_until_ns = 0

    def add(self, session: Session) -> None:
        """Give it a row, if one is free and the kernel can take its largest request."""
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
        """Remove a closed session."""
        if session.row >= 0:
            assert not session.watched
            assert not self.watch_all >> session.row & 1
            self.awake &= ~(1 << session.row)
            self._sessions[session.row], session.row = None, -1

    def all(self) -> Iterator[Session]:
        """The sessions in the table."""
        return (session for session in self._sessions if session is not None)

    def of(self, rows: int) -> list[Session]:
        """The sessions in a word."""
        return [session for session in self.all() if rows >> session.row & 1]

    def at(self, fd: int) -> Session:
        """The session with this socket."""
        return next(session for session in self.all() if session.fd == fd)
