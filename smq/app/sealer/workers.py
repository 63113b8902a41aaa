"""The sealer's workers: who does which job.

Sealers   one for every two processors, each for its own partitions
Readers   some, for the shards' questions: a slow read does not block the others
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

from smq.app.process.clock import monotonic_ms
from smq.app.process.loop import Loop
from smq.app.process.peers import SEALER_WAIT_MS
from smq.app.sealer.claims import Claim
from smq.app.sealer.hands import HUNG_MS, Hands, Terms
from smq.app.sealer.surroundings import Surroundings
from smq.app.sealer.worker import subject_of
from smq.wire.internal.form import Failed, Question
from smq.wire.internal.messages import Compact, DropUnsealed, Merge, Retain, Seal

SEALERS_MAX = 4  # More would wait for the disk.
READERS_MAX = 3  # Each may hold pyarrow's memory, and a cache of its own.

A = TypeVar("A")


class JobTimeouts(NamedTuple):
    """Timeouts of work."""

    slow_ms: int = 1000
    """Then others need not wait for a read."""
    wait_ms: int = SEALER_WAIT_MS
    """Then the shard has given up what waits here."""
    hung_ms: int = HUNG_MS


PATIENCE = JobTimeouts()

Hire = Callable[[Loop, str, Surroundings, Terms], Hands]
"""Makes one: its loop, its name, where everything is, its terms."""


def sealers_of(processors: int) -> int:
    """The number of sealing workers: half the processors, so that producers keep the rest."""
    return max(1, min(SEALERS_MAX, processors // 2))


class Sealers:
    """A fixed number of workers that seal.

    One worker does all jobs of a partition, in order. The first does the jobs without a partition.
    """

    def __init__(self, name: str, count: int, hire: Callable[[str], Hands]) -> None:
        names = [name, *(f"{name}-{number}" for number in range(2, count + 1))]
        self.hands = [hire(each) for each in names]

    def do(
        self,
        question: Question[A],
        answered: Callable[[A | Failed], None],
        *,
        is_urgent: bool = False,
    ) -> None:
        """Queue a job; see Hands."""
        match question:
            case Seal() | DropUnsealed() | Retain() | Merge() | Compact():
                number = question.place.number
            case _:
                number = 0
        self.hands[number % len(self.hands)].do(question, answered, is_urgent=is_urgent)

    def hurry(self, *, is_short: bool) -> None:
        """Whether a log is short of space; see Hands."""
        for hands in self.hands:
            hands.hurry(is_short=is_short)

    def give_way(self, *, is_busy: bool) -> None:
        """Whether shards are busy; see Hands."""
        for hands in self.hands:
            hands.give_way(is_busy=is_busy)

    def look(self) -> None:
        """See Hands; call this periodically."""
        for hands in self.hands:
            hands.look()

    def stop(self) -> None:
        """End the workers."""
        for hands in self.hands:
            hands.stop()


@dataclass(slots=True, eq=False)
class _Read:
    question: Question[Any]
    answered: Callable[[Any], None]
    asked_ms: int


class Readers:
    """Workers that read, `READERS_MAX` at most; another starts only while the others are slow.

    One worker at a time does all jobs of a partition: a file that hangs delays only its own
    readers, and nothing is fetched twice at once.
    """

    def __init__(
        self,
        loop: Loop,
        name: str,
        at: Surroundings,
        patience: JobTimeouts = PATIENCE,
        hire: Hire = Hands,
    ) -> None:
        self._loop, self._name, self._at, self._patience = loop, name, at, patience
        self._hire = hire
        self._hands: list[Hands] = []
        self._in_hand: dict[Hands, object] = {}
        self._waiting: deque[_Read] = deque()

    def do(self, question: Question[A], answered: Callable[[A | Failed], None]) -> None:
        """Queue a read; `answered` gets the answer."""
        self._waiting.append(_Read(question, answered, monotonic_ms()))
        self._hand_out()

    def look(self) -> None:
        """Check for hanging reads; call this periodically."""
        now_ms = monotonic_ms()
        for hands in list(self._hands):  # Giving one up may start another.
            hands.look()
        while self._waiting and now_ms - self._waiting[0].asked_ms >= self._patience.wait_ms:
            read = self._waiting.popleft()
            read.answered(Failed(f"{subject_of(read.question)} is not read: other reads are slow"))
        self._hand_out()

    def stop(self) -> None:
        """End the workers."""
        for hands in self._hands:
            hands.stop()

    def _hand_out(self) -> None:
        for read in list(self._waiting):
            subject = subject_of(read.question)
            if subject in self._in_hand.values():
                continue
            hands = self._free()
            if hands is None:
                return
            self._waiting.remove(read)
            self._in_hand[hands] = subject
            hands.do(read.question, partial(self._answered, hands, read))

    def _answered(self, hands: Hands, read: _Read, answer: object) -> None:
        del self._in_hand[hands]
        read.answered(answer)
        self._hand_out()

    def _free(self) -> Hands | None:
        """A worker for the next job. Starts no new one while a busy one may soon be free."""
        now_ms = monotonic_ms()
        for hands in self._hands:
            if hands not in self._in_hand:
                return hands
            if hands.taking_ms(now_ms) < self._patience.slow_ms:
                return None
        if len(self._hands) == READERS_MAX:
            return None
        name = f"{self._name}-{len(self._hands) + 1}" if self._hands else self._name
        at = self._at._replace(cache_dir=self._at.cache_dir / name)
        terms = Terms(Claim.LITTLE, self._patience.hung_ms)
        self._hands.append(self._hire(self._loop, name, at, terms))
        return self._hands[-1]
