"""The answers to one of our processes, made no faster than it reads them.

A small request may have an answer of megabytes, and a process relays the requests of all its
clients. So the work that makes answers waits, in order, until the process has read the earlier
ones. Answers that are made in parts take turns while they are small together; otherwise only the
oldest one grows.
"""

from collections import deque
from collections.abc import Callable
from itertools import chain

from gateway.parts import Parts
from smq.app.process.link import Link

MiB = 1024 * 1024
ROOM_BYTES = 4 * MiB  # Sent and not taken, with what this turn has made; one answer goes beyond.
MAKING_BYTES_MAX = 8 * MiB  # Of answers in parts.

Work = Callable[[], object]


class Outlet:
    """The answers to a link; `may_relay` says whether its requests may be those of clients.

    Invariant: parts that are held have not been dropped, and each is counted with its size.
    """

    def __init__(self, link: Link, *, may_relay: bool = True) -> None:
        self.link, self.may_relay = link, may_relay
        self._frames: list[tuple[bytes, ...]] = []
        self._made_bytes = self._making_bytes = 0
        self._waiting: deque[Work] = deque()
        self._making: dict[Parts, int] = {}
        self._held: dict[Parts, Work] = {}

    @property
    def has_room(self) -> bool:
        """Whether another answer may be made now."""
        return self.link.unsent_bytes + self._made_bytes < ROOM_BYTES

    @property
    def has_work(self) -> bool:
        """Whether some work that waits can be done."""
        return self.has_room and bool(self._waiting or self._released())

    def put(self, *frame: bytes) -> None:
        """Send a frame at the end of the turn: its pieces."""
        self._frames.append(frame)
        self._made_bytes += sum(map(len, frame))

    def do(self, work: Work) -> None:
        """Do some work that makes an answer: now, or once there is room."""
        if not self.link.closed:
            self._waiting.append(work)
            self.go_on()

    def go_on(self) -> None:
        """Do what waits, as far as there is room."""
        for parts in self._released() if self.has_room else ():
            self._held.pop(parts)()
        while self._waiting and self.has_room and not self.link.closed:
            self._waiting.popleft()()

    def send(self) -> None:
        """Send the frames of the turn."""
        frames, self._frames, self._made_bytes = self._frames, [], 0
        if frames:
            self.link.send(*chain.from_iterable(frames))

    def drop(self) -> None:
        """The link is closed: drop all. What waits refers to this, and nobody looks for cycles."""
        self._frames.clear()
        self._waiting.clear()
        self._making.clear()
        self._held.clear()
        self._made_bytes = self._making_bytes = 0

    # Answers in parts

    def may_grow(self, parts: Parts) -> bool:
        """Whether an answer gets its next part now; if not, `hold` it."""
        oldest = next(iter(self._making), parts)
        return self.has_room and (self._making_bytes < MAKING_BYTES_MAX or parts is oldest)

    def hold(self, parts: Parts, work: Work) -> None:
        """Do the work once an answer may grow."""
        self._making.setdefault(parts, 0)
        self._held[parts] = work

    def grown(self, parts: Parts) -> None:
        """An answer has got a part."""
        self._making_bytes += parts.size - self._making.get(parts, 0)
        self._making[parts] = parts.size

    def ended(self, parts: Parts) -> None:
        """An answer is whole, or given up."""
        self._making_bytes -= self._making.pop(parts, 0)

    def _released(self) -> list[Parts]:
        """Those held that may grow."""
        if self._making_bytes < MAKING_BYTES_MAX:
            return list(self._held)
        oldest = next(iter(self._making))
        return [oldest] if oldest in self._held else []
