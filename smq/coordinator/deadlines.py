"""Deadlines by key: moving one, and finding one that has passed, costs O(log n).

A heap has an entry for each key, not later than the key's deadline. Moving a deadline later (each
heartbeat does) leaves the entry in place: when it comes up, it is filed again. So a heartbeat costs
no heap operation, and a check costs only the entries that are due.
"""

import heapq

ALWAYS_MS = 0  # Before any time of a monotonic clock: there is something to do now.
NEVER_MS = 2**63 - 1
VOID_ENTRIES_MAX = 64  # Entries of cleared keys that may stay, beside one for each key.


class Deadlines:
    """A deadline for each key. `steps` counts heap entries added or visited."""

    def __init__(self) -> None:
        self._due_ms: dict[str, int] = {}
        self._filed_ms: dict[str, int] = {}  # The valid entry of each key.
        self._heap: list[tuple[int, str]] = []
        self.steps = 0

    def __contains__(self, key: str) -> bool:
        return key in self._due_ms

    def __len__(self) -> int:
        return len(self._due_ms)

    def set(self, key: str, deadline_ms: int) -> None:
        """Set or move the key's deadline."""
        self._due_ms[key] = deadline_ms
        if deadline_ms < self._filed_ms.get(key, NEVER_MS):
            self._file(key, deadline_ms)
            self._drop_void()

    def clear(self, key: str) -> None:
        """Remove the key's deadline, if it has one."""
        if self._due_ms.pop(key, None) is not None:
            del self._filed_ms[key]
            self._drop_void()

    def next_ms(self) -> int:
        """A lower bound of all deadlines."""
        return self._heap[0][0] if self._heap else NEVER_MS

    def take_due(self, now_ms: int, count_max: int | None = None) -> list[str]:
        """Remove and return the keys whose deadline has passed, the earliest first; at most so
        many."""
        due: list[str] = []
        while self._heap and self._heap[0][0] <= now_ms and len(due) != count_max:
            filed_ms, key = heapq.heappop(self._heap)
            self.steps += 1
            if self._filed_ms.get(key) != filed_ms:
                continue  # Superseded, or the key was cleared.
            del self._filed_ms[key]
            if self._due_ms[key] <= now_ms:
                del self._due_ms[key]
                due.append(key)
            else:
                self._file(key, self._due_ms[key])
        return due

    def _file(self, key: str, deadline_ms: int) -> None:
        self._filed_ms[key] = deadline_ms
        heapq.heappush(self._heap, (deadline_ms, key))
        self.steps += 1

    def _drop_void(self) -> None:
        """Drop invalid entries when there are many. The cost is amortized over the calls."""
        if len(self._heap) > 2 * len(self._filed_ms) + VOID_ENTRIES_MAX:
            self._heap = [(filed_ms, key) for key, filed_ms in self._filed_ms.items()]
            self.steps += len(self._heap)
            heapq.heapify(self._heap)

    def invariants(self) -> None:
        """Assert what holds between any two calls."""
        assert self._filed_ms.keys() == self._due_ms.keys()
        assert set(self._heap) >= {(ms, key) for key, ms in self._filed_ms.items()}
        assert all(ms <= self._due_ms[key] for key, ms in self._filed_ms.items())
        assert all(self.next_ms() <= ms for ms in self._due_ms.values())
        assert len(self._heap) <= 2 * len(self._due_ms) + VOID_ENTRIES_MAX
