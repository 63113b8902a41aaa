"""Waiting requests: fetches with too little to read, until there is enough or their deadline
passes.

When high watermarks move, a poll examines only the partitions that moved; when the catalog or
rights change, all polls start from scratch, some of them a turn.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np

from gateway.context import Ask, LogSlot, Message, Step, Wait
from smq.app.process.loop import Loop, Timer
from smq.app.process.steps import Steps

_SLOT_MASK = 2**32 - 1
LOOKS_A_TURN = 500  # Of partitions; microseconds each.


class LongPoll:
    """A waiting request. `settle(result)` is called once, unless the poll is dropped.

    codes   see Wait.find_codes
    """

    __slots__ = ("codes", "settle", "timer", "wait")

    def __init__(self, wait: Wait, settle: Callable[[Message | Ask | Step], None]) -> None:
        self.wait, self.settle = wait, settle
        self.codes: Sequence[int] | np.ndarray = ()
        self.timer: Timer | None = None


class LongPolls:
    """All polls of a shard.

    Invariant: until it ends, a poll is registered under the current places of its partitions, and
    under no others, or it is outdated. One with an array of codes is registered under none of them,
    and compared. An outdated poll starts from scratch before it tells anything.

    watched        int32 by slot: how many polls wait there, for kernels that serve a shard of one
                   log
    looks_a_turn   of how many partitions those may be that start again in a turn
    """

    def __init__(self, loop: Loop, slots: int) -> None:
        self._loop, self.watched = loop, np.zeros(slots, np.int32)
        self._counts = self.watched.data
        self._by_code: dict[int, set[LongPoll]] = {}
        self._all: dict[LongPoll, None] = {}
        self._many: dict[LongPoll, None] = {}  # Those of many partitions.
        self._outdated: dict[LongPoll, None] = {}  # The catalog has changed since they looked.
        self._steps = Steps(loop)
        self.looks_a_turn = LOOKS_A_TURN

    def invariants(self) -> None:
        """Raise AssertionError if a wake-up would reach the wrong polls."""
        watched = np.zeros_like(self.watched)
        for poll in self._all:
            is_current = set(poll.codes) == set(poll.wait.find_codes())
            assert is_current or poll in self._outdated, "its partitions have moved"
            assert poll in self._many or all(poll in self._by_code[each] for each in poll.codes)
            assert poll.timer is not None
            assert poll.timer.action is not None, "it would never end"
            slots = np.array(poll.codes, np.int64) & _SLOT_MASK
            np.add.at(watched, np.unique(slots) if poll in self._many else slots, 1)
        for code, polls in self._by_code.items():
            assert polls, "a place that nobody waits for is forgotten"
            assert all(poll in self._all and code in poll.codes for poll in polls)
        assert (self.watched == watched).all()
        assert self._many.keys() | self._outdated.keys() <= self._all.keys()
        assert not self._outdated or len(self._steps), "it would not be looked at"

    def add(self, wait: Wait, settle: Callable[[Message | Ask | Step], None]) -> LongPoll:
        """Wait for enough to read."""
        poll = LongPoll(wait, settle)
        poll.timer = self._loop.call_at(wait.due_ns, lambda: self.end(poll))
        self._all[poll] = None
        self._stand(poll)
        return poll

    def _stand(self, poll: LongPoll) -> None:
        """Register it where its partitions are now."""
        codes = poll.codes = poll.wait.find_codes()
        if isinstance(codes, np.ndarray):
            self._many[poll] = None
            self.watched[codes & _SLOT_MASK] += 1
            return
        for code in codes:
            self._by_code.setdefault(code, set()).add(poll)
            self._counts[code & _SLOT_MASK] += 1

    def _leave(self, poll: LongPoll) -> None:
        if isinstance(poll.codes, np.ndarray):
            del self._many[poll]
            self.watched[poll.codes & _SLOT_MASK] -= 1
            return
        for code in poll.codes:
            self._counts[code & _SLOT_MASK] -= 1
            polls = self._by_code[code]
            polls.discard(poll)
            if not polls:
                del self._by_code[code]

    def moved(self, places: Collection[LogSlot]) -> None:
        """The HWM of these places has moved."""
        if not self._all:
            return
        codes = [log << 32 | slot for log, slot in places]
        concerned: dict[LongPoll, list[int]] = {}
        for code in self._by_code.keys() & codes:
            for poll in self._by_code[code]:
                concerned.setdefault(poll, []).append(code)
        if self._many:
            moved = np.array(codes, np.int64)
            common = ((poll, _common(poll.codes, moved)) for poll in self._many)
            concerned |= {poll: its_codes for poll, its_codes in common if its_codes}
        for poll, its_codes in concerned.items():
            if poll in self._outdated:
                self._start_again(poll)
            elif poll in self._all:
                self._settle(poll, poll.wait.look(its_codes))

    def look_again(self) -> None:
        """The catalog or rights have changed: partitions may be deleted, or elsewhere, or read no
        more. Some polls look now, the others in the next turns."""
        self.outdate(self._all)

    def outdate(self, polls: Iterable[LongPoll]) -> None:
        """These have to look again, after a change: now, or behind those that are to."""
        is_under_way = bool(self._outdated)
        self._outdated |= dict.fromkeys(polls)
        if not is_under_way and self._look_at_some():
            self._steps.add(self._look_at_some)

    def _look_at_some(self) -> bool:
        """Have outdated polls start again; returns whether some are left."""
        looks = 0
        while self._outdated and looks < self.looks_a_turn:
            poll = next(iter(self._outdated))
            looks += 1 + len(poll.codes)
            self._start_again(poll)
        return bool(self._outdated)

    def _start_again(self, poll: LongPoll) -> None:
        del self._outdated[poll]
        self._settle(poll, poll.wait.attempt(is_last=False))
        if poll in self._all:
            self._leave(poll)
            self._stand(poll)

    def end(self, poll: LongPoll) -> None:
        """Answer with what is available."""
        self._settle(poll, poll.wait.attempt(is_last=True))

    def drop(self, poll: LongPoll) -> None:
        """Forget a poll whose client is gone."""
        assert poll.timer is not None
        poll.timer.cancel()
        poll.settle = _nobody  # They refer to each other: only the collector would free both.
        del self._all[poll]
        self._outdated.pop(poll, None)
        self._leave(poll)

    def _settle(self, poll: LongPoll, result: Message | Ask | Step | None) -> None:
        if result is not None:
            settle = poll.settle
            self.drop(poll)
            settle(result)


def _common(ascending: Sequence[int] | np.ndarray, codes: np.ndarray) -> list[int]:
    """Those of some codes that are among ascending ones."""
    at = np.searchsorted(ascending, codes)
    inside = at < len(ascending)
    at, codes = at[inside], codes[inside]
    return [int(code) for code in codes[np.asarray(ascending)[at] == codes]]


def _nobody(_: Message | Ask | Step) -> None:
    raise AssertionError("a poll is settled once")
