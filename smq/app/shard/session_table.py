"""The sessions that a kernel serves (shm.kernels.turn.sessions), as the loop keeps them for it."""

from collections.abc import Callable, Iterator

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
from smq.app.shard.receive import BUFFER_BYTES
from smq.app.shard.session import Session

SlotOf = Callable[[int], int | None]


class SessionTable:
    """The sessions of one shard. `arrays` is what kernels take.

    `watch_all` and `awake` are words with a bit for each row.

    watch_all  the sessions that watch every partition
    awake      the sessions to check without a bell

    A partition's watchers are kept by its number, and written at its slot, for the kernel, as long
    as it has one here. The cost of a change depends on the partitions that it names, not on the
    number of slots.
    """

    def __init__(self, slots: int) -> None:
        self.arrays = new_sessions(slots)
        self._table, self._watchers = self.arrays
        self._sessions: list[Session | None] = [None] * SESSIONS_MAX
        self._watched: list[set[int]] = [set() for _ in range(SESSIONS_MAX)]  # By row: numbers.
        self._rows_of: dict[int, int] = {}  # By number, the rows of its watchers.
        self._slots: dict[int, int] = {}  # By number, the slot where that is written.
        self.watch_all = self.awake = 0
        self.spin_until_ns = 0

    def add(self, session: Session) -> None:
        """Give it a row, if one is free and the kernel can take its largest request."""
        if None not in self._sessions or session.memory.request_bytes_max > BUFFER_BYTES:
            return
        row = self._sessions.index(None)
        assert not self._watched[row]
        self._sessions[row], session.row = session, row
        words = self._table[SESSION_WORDS * row :]
        memory, side = session.memory.memory, session.side
        words[S_FD] = session.fd
        words[S_MEMORY], words[S_MEMORY_BYTES] = memory.ctypes.data, len(memory)
        words[S_SIDE], words[S_SIDE_WORDS] = side.ctypes.data, len(side)

    def remove(self, session: Session) -> None:
        """Remove a closed session."""
        if session.row >= 0:
            for number in list(self._watched[session.row]):
                self.unwatch(session, number)
            self.watch_everything(session, wanted=False)
            self.awake &= ~(1 << session.row)
            self._sessions[session.row], session.row = None, -1

    # What they watch

    def watch_everything(self, session: Session, *, wanted: bool) -> None:
        """Whether it watches all partitions, whatever else it watches."""
        if session.row >= 0:
            bit = 1 << session.row
            self.watch_all = self.watch_all | bit if wanted else self.watch_all & ~bit

    def watch(self, session: Session, number: int, slot: int | None) -> None:
        """Watch this partition too; None: it has no slot here, or not yet."""
        if session.row < 0:
            return
        self._watched[session.row].add(number)
        rows = self._rows_of.get(number, 0) | 1 << session.row
        self._rows_of[number] = rows
        if slot is not None:
            assert self._slots.get(number, slot) == slot, "a slot that moved was not told of"
            self._slots[number] = slot
            self._watchers[slot] = rows

    def unwatch(self, session: Session, number: int) -> None:
        """Stop watching this partition."""
        if session.row < 0 or number not in self._watched[session.row]:
            return
        self._watched[session.row].discard(number)
        rows = self._rows_of[number] & ~(1 << session.row)
        slot = self._slots.get(number)
        if slot is not None:
            self._watchers[slot] = rows
        if rows:
            self._rows_of[number] = rows
        else:
            del self._rows_of[number]
            self._slots.pop(number, None)

    def place(self, slot_of: SlotOf) -> None:
        """Update the slots of watched partitions after partitions were added or removed."""
        moved = [
            (number, slot)
            for number in self._rows_of
            if (slot := slot_of(number)) != self._slots.get(number)
        ]
        for number, _ in moved:  # Clear all first: a slot may belong to another partition now.
            if number in self._slots:
                self._watchers[self._slots.pop(number)] = 0
        for number, slot in moved:
            if slot is not None:
                self._slots[number] = slot
                self._watchers[slot] = self._rows_of[number]

    def all(self) -> Iterator[Session]:
        """The sessions in the table."""
        return (session for session in self._sessions if session is not None)

    def of(self, rows: int) -> list[Session]:
        """The sessions in a word."""
        return [session for session in self.all() if rows >> session.row & 1]

    def at(self, fd: int) -> Session:
        """The session with this socket."""
        return next(session for session in self.all() if session.fd == fd)

    def invariants(self) -> None:
        """Check the invariants that hold between any two calls. Examines all slots."""
        rows_of: dict[int, int] = {}
        for row, numbers in enumerate(self._watched):
            assert not numbers or self._sessions[row] is not None
            for number in numbers:
                rows_of[number] = rows_of.get(number, 0) | 1 << row
        assert rows_of == self._rows_of
        assert self._slots.keys() <= rows_of.keys()
        assert len(set(self._slots.values())) == len(self._slots)
        written = {slot: rows_of[number] for number, slot in self._slots.items()}
        assert {
            int(slot): int(self._watchers[slot]) for slot in self._watchers.nonzero()[0]
        } == written
