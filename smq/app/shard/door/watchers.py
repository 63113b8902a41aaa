"""Who reads which partitions in the logs' memory itself, and is rung when one of them moves.

A partition's watchers are kept by its number. Those that a kernel serves are also written at its
slot, for the kernel, as a word with a bit for each row of their table, as long as it has one here.
The cost of a change depends on the partitions that it names, not on the number of slots.
"""

from collections.abc import Iterable, Mapping

from shm.kernels.base.words import P_NUMBER
from smq.app.shard.door.session import Session
from smq.app.shard.door.session_table import SessionTable
from smq.log.log import Log


class Watchers:
    """The watching sessions of one shard."""

    def __init__(self, logs: Mapping[int, Log], table: SessionTable) -> None:
        self._logs, self._table, self._words = logs, table, table.arrays[1]
        self._by_number: dict[int, set[Session]] = {}
        self._everything: set[Session] = set()
        self._slots: dict[int, int] = {}  # By number, the slot where its watchers are written.

    def __bool__(self) -> bool:
        return bool(self._by_number or self._everything)

    def read_list(self, session: Session) -> None:
        """Apply a session's published list."""
        self.watch(session, session.memory.watched())
        session.tell_event()  # It may have moved between the client's check and ours.

    def forget(self, session: Session) -> None:
        """A session is closed."""
        self.watch(session, set())

    def watch(self, session: Session, numbers: set[int] | None) -> None:
        """From now on a session watches these partitions, and no others; None: all."""
        if numbers is None:
            self._everything.add(session)
        else:
            self._everything.discard(session)
        self._table.watch_all = _rows(self._everything)
        wanted = numbers or set()
        for number in session.watched - wanted:
            self._by_number[number].remove(session)
            self._write(number)
            if not self._by_number[number]:
                del self._by_number[number]
                self._slots.pop(number, None)
        for number in wanted - session.watched:
            self._by_number.setdefault(number, set()).add(session)
            if (slot := self._slot_of(number)) is not None:
                assert self._slots.get(number, slot) == slot, "a slot that moved was not told of"
                self._slots[number] = slot
            self._write(number)
        session.watched = wanted

    def _write(self, number: int) -> None:
        if (slot := self._slots.get(number)) is not None:
            self._words[slot] = _rows(self._by_number[number])

    def _slot_of(self, number: int) -> int | None:
        """The slot of a partition led here. (A kernel serves one log only.)"""
        for log in self._logs.values():
            if (slot := log.partitions.slots.get(number)) is not None:
                return slot
        return None

    def moved(self, places: Iterable[tuple[int, int]]) -> None:
        """Ring the readers of these (log, slot), which have moved."""
        if not (self._by_number or self._everything):
            return
        concerned = set(self._everything)
        for log, slot in places:
            number = int(self._logs[log].partitions.table[slot, P_NUMBER])
            concerned.update(self._by_number.get(number, ()))
        for session in concerned:
            session.tell_event()

    def catalog_changed(self) -> None:
        """Partitions were added or removed: write the watchers at their slots, ring all readers."""
        found = {number: self._slot_of(number) for number in self._by_number}
        moved = [number for number, slot in found.items() if slot != self._slots.get(number)]
        for number in moved:  # Clear all first: a slot may belong to another partition now.
            if number in self._slots:
                self._words[self._slots.pop(number)] = 0
        for number in moved:
            if (slot := found[number]) is not None:
                self._slots[number] = slot
                self._write(number)
        for session in self._everything.union(*self._by_number.values()):
            session.tell_event()

    def invariants(self) -> None:
        """Check the invariants that hold between any two calls. Examines all slots."""
        for number, watchers in self._by_number.items():
            assert watchers
            assert all(number in session.watched for session in watchers)
        assert self._slots.keys() <= self._by_number.keys()
        assert len(set(self._slots.values())) == len(self._slots)
        written = {slot: _rows(self._by_number[number]) for number, slot in self._slots.items()}
        found = {int(slot): int(self._words[slot]) for slot in self._words.nonzero()[0]}
        assert found == {slot: word for slot, word in written.items() if word}


def _rows(sessions: Iterable[Session]) -> int:
    """A word of these sessions, without those that no kernel serves."""
    return sum(1 << session.row for session in sessions if session.row >= 0)
