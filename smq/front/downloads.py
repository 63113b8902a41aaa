"""Places of long downloads, each of which keeps tens of megabytes until its client has read them.

    place(whose) ──▶ line ──▶ held ──▶ the block ends, or another needs the place
                      └─▶ Busy

While others wait in line, a place is lost by a client who reads slowly, or after HELD_S. So whoever
gets into the line gets a place, unless many wait: the line is short, as who waits keeps his records
too. It is left by whoever came last of the user who has most places and waits most.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

PLACES, LINE_MAX = 4, 2
HELD_S = 30.0  # So long a client who reads keeps his place, whoever waits.
GRACE_S = 5.0  # Before a client counts as slow: the first bytes may take some time.
PACE_BYTES_S = 1 << 18  # Who reads less is slow.
WAIT_S = HELD_S + GRACE_S  # In line. All places have become free by then.


class Busy(Exception):
    """There is no place for a while."""


@dataclass(eq=False, slots=True)
class DownloadPlace:
    """Of one download. `since_s` is the loop's time; None: it waits in line."""

    whose: str
    patience: asyncio.Timeout
    given: asyncio.Event = field(default_factory=asyncio.Event)
    since_s: float | None = None
    sent_bytes: int = 0

    def sent(self, byte_count: int) -> None:
        """The client has read most of what came before these bytes."""
        self.sent_bytes += byte_count

    @property
    def safe_until_s(self) -> float:
        """When it may be lost to another, if nothing more is sent."""
        assert self.since_s is not None
        return self.since_s + min(HELD_S, GRACE_S + self.sent_bytes / PACE_BYTES_S)

    def end(self) -> None:
        """Have its block raise TimeoutError."""
        if not self.patience.expired():
            self.patience.reschedule(asyncio.get_running_loop().time())


class Downloads:
    """All places. Invariant: no more are held or wait than may, and nobody waits while one is
    free."""

    def __init__(self, places: int = PLACES, line_max: int = LINE_MAX) -> None:
        self._places, self._line_max = places, line_max
        self._held, self._line = list[DownloadPlace](), list[DownloadPlace]()  # The oldest first.
        self._timer: asyncio.TimerHandle | None = None

    def invariants(self) -> None:
        """Assert the class's invariant."""
        assert len(self._held) <= self._places
        assert len(self._line) <= self._line_max
        assert not self._line or len(self._held) == self._places
        assert (self._timer is not None) == bool(self._line)

    @asynccontextmanager
    async def place(self, whose: str) -> AsyncIterator[DownloadPlace]:
        """Have a place within the block. Raises Busy before it; within it TimeoutError, if another
        gets the place."""
        place: DownloadPlace | None = None
        try:
            async with asyncio.timeout(WAIT_S) as patience:
                place = DownloadPlace(whose, patience)
                self._line.append(place)
                try:
                    self._look()
                    await place.given.wait()
                    yield place
                finally:
                    self._forget(place)
                    self._look()
        except TimeoutError:
            if place is not None and place.since_s is None:
                raise Busy from None
            raise

    def _forget(self, place: DownloadPlace) -> None:
        for each in (self._held, self._line):
            if place in each:
                each.remove(place)

    def _look(self) -> None:
        """Give places, take them away, shorten the line."""
        now_s = asyncio.get_running_loop().time()
        self._give(now_s)
        while self._line and (lost := self._lost(now_s)) is not None:
            self._forget(lost)
            lost.end()
            self._give(now_s)
        while len(self._line) > self._line_max:
            claims = Counter(each.whose for each in [*self._held, *self._line])
            last = max(reversed(self._line), key=lambda each: claims[each.whose])
            self._forget(last)
            last.end()
        self._set_timer()

    def _give(self, now_s: float) -> None:
        """Give free places: first to whoever has fewest."""
        while self._line and len(self._held) < self._places:
            held = Counter(each.whose for each in self._held)
            place = min(self._line, key=lambda each: held[each.whose])
            self._line.remove(place)
            if place.patience.expired():  # Its task has not been told yet.
                continue
            place.patience.reschedule(None)
            place.since_s = now_s
            place.given.set()
            self._held.append(place)

    def _lost(self, now_s: float) -> DownloadPlace | None:
        """Who loses his place: of whoever has most the one who has been slow or there longest."""
        held = Counter(each.whose for each in self._held)
        over = [each for each in self._held if each.safe_until_s <= now_s]
        return max(over, key=lambda each: (held[each.whose], -each.safe_until_s), default=None)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._line:
            at_s = min(each.safe_until_s for each in self._held)
            self._timer = asyncio.get_running_loop().call_at(at_s, self._look)
