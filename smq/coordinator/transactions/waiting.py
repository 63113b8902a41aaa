"""Requests of a producer's next transaction, which wait until the former one is complete.

EndTxn is answered before the markers are written, so the next transaction's first requests may come
too early. They are handled when the last marker is written, in the order in which they came. After
WAIT_MS they are handled nevertheless, and told CONCURRENT_TRANSACTIONS; if too many wait, at once.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from itertools import count
from typing import NamedTuple

from smq.coordinator.deadlines import ALWAYS_MS, NEVER_MS
from smq.model.now import Now

WAIT_MS = 100  # Kafka's add.partitions.to.txn.retry.backoff.max.ms.
WAITING_MAX, WAITING_BYTES_MAX = 1000, 16 * 1024 * 1024
TAKEN_AT_ONCE = 50  # Some milliseconds.

Again = Callable[[], None]


class StillEnding(NamedTuple):
    """Instead of an answer: the request must wait for the end of this transactional id."""

    transactional_id: str


class _EarlyRequest(NamedTuple):
    transactional_id: str
    again: Again
    size: int
    due_ms: int


class EarlyRequests:
    """The requests that wait; `again` handles one."""

    def __init__(self) -> None:
        self._serials = count()
        self._waiting: OrderedDict[int, _EarlyRequest] = OrderedDict()  # By their deadlines, too.
        self._by_id: dict[str, list[int]] = {}
        self._ready: deque[_EarlyRequest] = deque()
        self._bytes = 0

    def add(self, ending: StillEnding, again: Again, size: int, now: Now) -> bool:
        """Have a request of so many bytes wait; False: too many do."""
        count_now = len(self._waiting) + len(self._ready)
        if count_now >= WAITING_MAX or self._bytes + size > WAITING_BYTES_MAX:
            return False
        serial, key = next(self._serials), ending.transactional_id
        self._waiting[serial] = _EarlyRequest(key, again, size, now.monotonic_ms + WAIT_MS)
        self._by_id.setdefault(key, []).append(serial)
        self._bytes += size
        return True

    def ended(self, transactional_id: str) -> None:
        """The end of this id is complete."""
        for serial in self._by_id.pop(transactional_id, ()):
            self._ready.append(self._waiting.pop(serial))

    def take(self, now: Now) -> list[Again]:
        """Some of those that need not, or cannot, wait any longer."""
        taken = list[Again]()
        while self.next_wake_ms() <= now.monotonic_ms and len(taken) < TAKEN_AT_ONCE:
            request = self._ready.popleft() if self._ready else self._first()
            self._bytes -= request.size
            taken.append(request.again)
        return taken

    def _first(self) -> _EarlyRequest:
        serial, request = self._waiting.popitem(last=False)
        of_id = self._by_id[request.transactional_id]
        of_id.remove(serial)
        if not of_id:
            del self._by_id[request.transactional_id]
        return request

    def next_wake_ms(self) -> int:
        """The earliest time when `take` has some (monotonic)."""
        if self._ready:
            return ALWAYS_MS
        return next((each.due_ms for each in self._waiting.values()), NEVER_MS)

    def invariants(self) -> None:
        """Assert the invariants between any two calls."""
        serials = [serial for of_id in self._by_id.values() for serial in of_id]
        assert sorted(serials) == list(self._waiting)
        assert all(self._by_id.values())
        all_of_them = *self._waiting.values(), *self._ready
        assert self._bytes == sum(each.size for each in all_of_them)
