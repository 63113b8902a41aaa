"""Waiting requests: fetches with too little to read, until there is enough or their deadline
passes.

When high watermarks move, a poll examines only the partitions that moved; when the catalog changes,
all polls start from scratch.
"""

from collections.abc import Callable, Collection

import numpy as np

from gateway.context import Ask, LogSlot, Message, Wait, WaitForAny
from smq.app.process.loop import Loop, Timer

_NARROW, _WIDE = np.uint8(1), np.uint8(2)  # The kinds of polls that watch a slot.
_SLOT_MASK = 2**32 - 1


class LongPoll:
    """A waiting request. `settle(result)` is called once, unless the poll is dropped."""

    __slots__ = ("places", "settle", "timer", "wait")

    def __init__(self, wait: Wait, settle: Callable[[Message | Ask], None]) -> None:
        self.wait, self.settle = wait, settle
        self.places: tuple[LogSlot, ...] = ()
        self.timer: Timer | None = None


class WidePoll:
    """A poll of many partitions. `settle()` is called once, unless the poll is dropped."""

    __slots__ = ("settle", "timer", "wait")

    def __init__(self, wait: WaitForAny, settle: Callable[[], None]) -> None:
        self.wait, self.settle = wait, settle
        self.timer: Timer | None = None


class LongPolls:
    """All polls of a shard.

    Invariant: until it ends, a poll is registered under the current places of its partitions, and
    under no others. A poll of many partitions keeps their codes in an array, and is registered
    under none of them.

    watched   uint8 by slot: not 0 where a request waits, for kernels that serve a shard of one log
    """

    def __init__(self, loop: Loop, slots: int) -> None:
        self._loop, self.watched = loop, np.zeros(slots, np.uint8)
        self._by_place: dict[LogSlot, set[LongPoll]] = {}
        self._all: dict[LongPoll, None] = {}
        self._logs: set[int] = set()  # Logs with a partition that a poll has ever waited for.
        self._wide: dict[WidePoll, None] = {}

    def invariants(self) -> None:
        """Raise AssertionError if a wake-up would reach the wrong polls."""
        for poll in self._all:
            assert set(poll.places) == set(poll.wait.places), "its partitions have moved"
            assert all(poll in self._by_place[place] for place in poll.places)
            assert poll.timer is not None
            assert poll.timer.action is not None, "it would never end"
        for place, polls in self._by_place.items():
            assert polls, "a place that nobody waits for is forgotten"
            assert all(poll in self._all and place in poll.places for poll in polls)
        if len(self._logs) <= 1:  # Else slots of several logs coincide.
            watched = set(np.flatnonzero(self.watched & _NARROW))
            assert {slot for _, slot in self._by_place} == watched
        codes = {int(code) & _SLOT_MASK for wide in self._wide for code in wide.wait.codes}
        assert codes == set(np.flatnonzero(self.watched & _WIDE))
        for wide in self._wide:
            assert wide.timer is not None
            assert wide.timer.action is not None, "it would never end"

    def add(self, wait: Wait, settle: Callable[[Message | Ask], None]) -> LongPoll:
        """Wait for enough to read."""
        poll = LongPoll(wait, settle)
        poll.timer = self._loop.call_later(wait.timeout_ms, lambda: self.end(poll))
        self._all[poll] = None
        self._stand(poll)
        return poll

    def _stand(self, poll: LongPoll) -> None:
        """Register it under the places of its partitions."""
        poll.places = tuple(poll.wait.places)
        for place in poll.places:
            self._by_place.setdefault(place, set()).add(poll)
            self.watched[place[1]] |= _NARROW
            self._logs.add(place[0])

    def _leave(self, poll: LongPoll) -> None:
        for place in poll.places:
            polls = self._by_place[place]
            polls.discard(poll)
            if not polls:
                del self._by_place[place]
                self.watched[place[1]] &= ~_NARROW

    def moved(self, places: Collection[LogSlot]) -> None:
        """The HWM of these places has moved."""
        concerned: dict[LongPoll, list[LogSlot]] = {}
        for place in self._by_place.keys() & places:  # Cheap if no poll waits for any.
            for poll in self._by_place[place]:
                concerned.setdefault(poll, []).append(place)
        for poll, its_places in concerned.items():
            if poll in self._all:
                self._settle(poll, poll.wait.moved(its_places))
        if self._wide:
            codes = np.array([log << 32 | slot for log, slot in places], np.int64)
            for wide in [each for each in self._wide if _meet(each.wait.codes, codes)]:
                self.go_on(wide)

    def look_again(self) -> None:
        """The catalog has changed: partitions may be deleted, or created again elsewhere."""
        for poll in list(self._all):
            if poll not in self._all:
                continue
            self._settle(poll, poll.wait.attempt(is_last=False))
            if poll in self._all and poll.places != tuple(poll.wait.places):
                self._leave(poll)
                self._stand(poll)
        for wide in list(self._wide):
            if wide in self._wide:
                self.go_on(wide)

    def add_wide(self, wait: WaitForAny, due_ns: int, settle: Callable[[], None]) -> "WidePoll":
        """Wait for any of many partitions, until a monotonic time."""
        poll = WidePoll(wait, settle)
        poll.timer = self._loop.call_at(due_ns, lambda: self.end(poll))
        self._wide[poll] = None
        self.watched[wait.codes & _SLOT_MASK] |= _WIDE
        return poll

    def go_on(self, poll: "WidePoll") -> None:
        """Continue: there may be enough."""
        settle = poll.settle
        self._drop_wide(poll)
        settle()

    def _drop_wide(self, poll: "WidePoll") -> None:
        assert poll.timer is not None
        poll.timer.cancel()
        poll.settle = lambda: _nobody(None)
        del self._wide[poll]
        self.watched &= ~_WIDE
        for other in self._wide:
            self.watched[other.wait.codes & _SLOT_MASK] |= _WIDE

    def end(self, poll: "LongPoll | WidePoll") -> None:
        """Answer with what is available."""
        if isinstance(poll, WidePoll):
            poll.wait.is_over = True
            self.go_on(poll)
            return
        self._settle(poll, poll.wait.attempt(is_last=True))

    def drop(self, poll: "LongPoll | WidePoll") -> None:
        """Forget a poll whose client is gone."""
        if isinstance(poll, WidePoll):
            self._drop_wide(poll)
            return
        assert poll.timer is not None
        poll.timer.cancel()
        poll.settle = _nobody  # They refer to each other: only the collector would free both.
        del self._all[poll]
        self._leave(poll)

    def _settle(self, poll: LongPoll, result: Message | Ask | None) -> None:
        if result is not None:
            settle = poll.settle
            self.drop(poll)
            settle(result)


def _meet(ascending: np.ndarray, codes: np.ndarray) -> bool:
    """Whether one of some codes is among ascending ones."""
    at = np.searchsorted(ascending, codes)
    inside = at < len(ascending)
    return bool((ascending[at[inside]] == codes[inside]).any())


def _nobody(_: Message | Ask) -> None:
    raise AssertionError("a poll is settled once")
