"""Records that subscribers have, and have not acknowledged: redelivery, refusals, dead letters.

    available ──acquire──▶ acquired ──acknowledge──▶ acknowledged
        ▲                     │
        ├──release, time-out──┤
                              └──reject, or the last delivery──▶ archiving ──archive──▶ archived

A delivery that is released, or not acknowledged in time, is repeated, until a record has been
delivered DELIVERIES_MAX times: then it is archiving until its dead letter is written, and archived.
`commit` is the lowest offset that is neither acknowledged nor archived: a subscriber that resumes
there misses nothing, and gets nothing again but records above one that was not acknowledged.

Share groups (KIP-932) have these states and rules, and no more than one instance per record.
"""

from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum
from typing import NamedTuple

WINDOW_DEFAULT, WINDOW_MAX = 128, 65_536
ACK_TIMEOUT_MS = 30_000
DELIVERIES_MAX = 5
STEP = 1000  # Deliveries that are ended without a pause: a window of them takes 80 ms.
STALE_STEP = 8  # What an ended stream has left is forgotten by so many at each delivery.


class FlightState(Enum):
    """Of a record in flight."""

    AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED = range(5)


S = FlightState
TRANSITIONS: dict[FlightState, dict[str, FlightState]] = {
    S.AVAILABLE: {"acquire": S.ACQUIRED},
    S.ACQUIRED: {"acknowledge": S.ACKNOWLEDGED, "release": S.AVAILABLE, "reject": S.ARCHIVING},
    S.ACKNOWLEDGED: {},
    S.ARCHIVING: {"archive": S.ARCHIVED},
    S.ARCHIVED: {},
}
FINAL = frozenset({S.ACKNOWLEDGED, S.ARCHIVED})
assert TRANSITIONS.keys() == set(FlightState)
assert all(not TRANSITIONS[each] for each in FINAL)


class RecordIdentity(NamedTuple):
    """What an acknowledgement names a record by."""

    ts_ns: int
    key: bytes


class WindowLimits(NamedTuple):
    """How many records may be in flight, for how long, and how often."""

    window: int = WINDOW_DEFAULT
    ack_timeout_ms: int = ACK_TIMEOUT_MS
    deliveries_max: int = DELIVERIES_MAX


def window_of(asked: int) -> int:
    """The window for what a client asks for."""
    return WINDOW_DEFAULT if asked <= 0 else min(asked, WINDOW_MAX)


class _InFlight:
    __slots__ = ("deliveries", "identity", "state", "why")

    def __init__(self, identity: RecordIdentity) -> None:
        self.identity = identity
        self.state = S.AVAILABLE
        self.deliveries = 0
        self.why = ""


class PartitionWindow:
    """The records of one partition that are with one subscriber; those below `end` were taken.

    `commit` and `end` never go back. All records in flight lie between them.
    """

    def __init__(self, begin: int, limits: WindowLimits = WindowLimits()) -> None:  # noqa: B008  (immutable)
        self._limits = limits
        self._records: dict[int, _InFlight] = {}  # In the order of offsets.
        self._locks: deque[tuple[int, int, int]] = deque()  # When, whose, and which delivery.
        self._again: deque[int] = deque()
        self._archiving: deque[int] = deque()
        self.end = begin
        self._commit = begin

    @property
    def commit(self) -> int:
        """The lowest offset that is not done with."""
        return self._commit

    @property
    def room(self) -> int:
        """How many more records may be taken from the log."""
        return max(0, self._limits.window - len(self._records))

    def __len__(self) -> int:
        return len(self._records)

    def skip_to(self, offset: int) -> None:
        """There is nothing to deliver below this offset but what is in flight."""
        self.end = max(self.end, offset)
        self._advance()

    def take(self, offset: int, identity: RecordIdentity, now_ms: int) -> None:
        """The next record of the log is delivered for the first time."""
        assert offset >= self.end
        self._records[offset] = _InFlight(identity)
        self.end = offset + 1
        self._acquire(offset, now_ms)
        self._advance()  # Over a gap before it.

    def take_done(self, offset: int) -> None:
        """The next record of the log is delivered, and counts as acknowledged."""
        assert offset >= self.end
        self.skip_to(offset + 1)

    def take_again(self, now_ms: int) -> int | None:
        """The next record that is to be delivered once more, if there is one."""
        if not self._again:
            return None
        offset = self._again.popleft()
        self._acquire(offset, now_ms)
        return offset

    def deliveries(self, offset: int) -> int:
        """How often a record in flight has been delivered."""
        return self._records[offset].deliveries

    def identity(self, offset: int) -> RecordIdentity:
        """What acknowledgements call a record in flight."""
        return self._records[offset].identity

    def identities(self) -> Iterator[RecordIdentity]:
        """What acknowledgements call the records in flight."""
        return (each.identity for each in self._records.values())

    def is_acquired(self, offset: int) -> bool:
        """Whether its subscriber may acknowledge it."""
        record = self._records.get(offset)
        return record is not None and record.state is S.ACQUIRED

    def acknowledge(self, offset: int) -> bool:
        """A record is done with. False: the subscriber does not have it."""
        if not self.is_acquired(offset):
            return False
        self._move(offset, "acknowledge")
        self._advance()
        return True

    def release(self, offset: int, why: str) -> bool:
        """A record failed: it is delivered again, or it was the last time. False: as above."""
        if not self.is_acquired(offset):
            return False
        self._end_delivery(offset, why)
        return True

    def expire(self, now_ms: int) -> None:
        """End the deliveries that were not acknowledged in time; of many some, and `due_ms` is
        over."""
        for _ in range(STEP):
            if not self._locks or self._locks[0][0] > now_ms:
                return
            _, offset, delivery = self._locks.popleft()
            if self.is_acquired(offset) and self._records[offset].deliveries == delivery:
                seconds = self._limits.ack_timeout_ms / 1000
                self._end_delivery(offset, f"it was not acknowledged in {seconds:g} s")

    def due_ms(self) -> int | None:
        """When `expire` may have something to do."""
        while self._locks:
            due_ms, offset, delivery = self._locks[0]
            if self.is_acquired(offset) and self._records[offset].deliveries == delivery:
                return due_ms
            self._locks.popleft()
        return None

    def dead(self) -> Iterator[tuple[int, str]]:
        """The records whose dead letters are to be written now, and why; each once."""
        while self._archiving:
            offset = self._archiving.popleft()
            yield offset, self._records[offset].why

    def archive(self, offset: int) -> None:
        """A record's dead letter is written."""
        self._move(offset, "archive")
        self._advance()

    def _acquire(self, offset: int, now_ms: int) -> None:
        self._move(offset, "acquire")
        record = self._records[offset]
        record.deliveries += 1
        self._locks.append((now_ms + self._limits.ack_timeout_ms, offset, record.deliveries))

    def _end_delivery(self, offset: int, why: str) -> None:
        record = self._records[offset]
        record.why = why
        if record.deliveries >= self._limits.deliveries_max:
            self._move(offset, "reject")
            self._archiving.append(offset)
        else:
            self._move(offset, "release")
            self._again.append(offset)

    def _move(self, offset: int, event: str) -> None:
        record = self._records[offset]
        record.state = TRANSITIONS[record.state][event]

    def _advance(self) -> None:
        """Forget the lowest records that are done with."""
        while self._records:
            offset = next(iter(self._records))
            if self._records[offset].state not in FINAL:
                self._commit = offset
                return
            del self._records[offset]
        self._commit = self.end

    def invariants(self) -> None:
        offsets = [*self._records]
        assert offsets == sorted(offsets)
        assert all(self._commit <= each < self.end for each in offsets)
        assert not offsets or offsets[0] == self._commit
        assert len(offsets) <= self._limits.window
        assert {*self._again} == {
            each for each, record in self._records.items() if record.state is S.AVAILABLE
        }
        for record in self._records.values():
            assert 0 < record.deliveries <= self._limits.deliveries_max


class InstanceWindows:
    """The windows of one instance of a group: an acknowledgement may come on any of its streams.

    One by time and key means the oldest delivery of such a record.
    """

    def __init__(self, count_unknown: Callable[[], object] = lambda: None) -> None:
        self.count_unknown = count_unknown
        """An acknowledgement was of no record that the instance has."""
        self._windows: set[PartitionWindow] = set()
        self._named: dict[RecordIdentity, list[tuple[PartitionWindow, int]]] = {}  # Mostly of one.
        self._stale: deque[RecordIdentity] = deque()  # Of streams that have ended.

    def add(self, window: PartitionWindow) -> None:
        """A stream begins."""
        self._windows.add(window)

    def remove(self, window: PartitionWindow) -> None:
        """A stream has ended: what it had in flight is another's."""
        self._windows.discard(window)
        if self._windows:
            self._stale.extend(window.identities())
        else:
            self._named, self._stale = {}, deque()

    def delivered(self, window: PartitionWindow, offset: int) -> None:
        """A record was delivered, and can be acknowledged."""
        self._forget_some()
        identity = window.identity(offset)
        self._named.setdefault(identity, []).append((window, offset))

    def find(self, identity: RecordIdentity) -> tuple[PartitionWindow, int] | None:
        """The oldest delivery of such a record; None, which is counted: there is none."""
        self._drop_stale(identity)
        named = self._named.get(identity)
        if not named:
            self.count_unknown()
            return None
        return named[0]

    def settle(self, identity: RecordIdentity) -> None:
        """A delivery of such a record has ended, however it was named."""
        self._drop_stale(identity)

    def _forget_some(self) -> None:
        for _ in range(min(STALE_STEP, len(self._stale))):
            self._drop_stale(self._stale.popleft())

    def _drop_stale(self, identity: RecordIdentity) -> None:
        named = self._named.get(identity, ())
        stale = next((at for at, each in enumerate(named) if self._is_current(*each)), len(named))
        if stale and stale == len(named):
            del self._named[identity]
        elif stale:
            del self._named[identity][:stale]

    def _is_current(self, window: PartitionWindow, offset: int) -> bool:
        return window in self._windows and window.is_acquired(offset)
