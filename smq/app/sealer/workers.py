"""The sealer's hands: workers that exist while there is work, and are replaced when they hang.

    Hands     one worker, one job after the other
    Sealers   as many as there are processors to spare, each for partitions of its own
    Readers   some, for the shards' questions: no read waits long for a slow one

A worker whose filer hangs, or that was suspended, cannot be told to stop: when it has used no CPU
for a while, it is killed, and waiting jobs go to a new one. Its current job fails; the sealer's
next rounds find it undone.
"""

import os
import signal
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from smq.app.process.child import fork
from smq.app.process.clock import monotonic_ms
from smq.app.process.inheritance import Stop
from smq.app.process.link import Link
from smq.app.process.loop import Loop
from smq.app.process.peers import SEALER_WAIT_MS
from smq.app.sealer.worker import Surroundings, work
from smq.wire.internal.form import Failed, Question, decode_answer, encode_question, name_of
from smq.wire.internal.frames import InternalFrame
from smq.wire.internal.messages import (
    Cold,
    Compact,
    DropUnsealed,
    FindPayloads,
    MakeInline,
    Merge,
    OffsetForTime,
    Retain,
    Seal,
)

JOB_ATTEMPTS_MAX = 2  # A job whose worker dies twice is at fault itself.
SEALERS_MAX = 4  # More would wait for the disk.
READERS_MAX = 3  # Each may hold pyarrow's memory, and a cache of its own.

A = TypeVar("A")


class Patience(NamedTuple):
    """How long work may take."""

    slow_ms: int = 1000
    """Then others need not wait for a read."""
    wait_ms: int = SEALER_WAIT_MS
    """Then the shard has given up what waits here."""
    hung_ms: int = 120_000
    """Without any progress: then it never ends, for S3's own waits are over."""


@dataclass(slots=True, eq=False)
class _Job:
    question: Question[Any]
    answered: Callable[[Any], None]
    attempts: int = 0
    begun_ms: int = 0


@dataclass(slots=True)
class _Progress:
    """A worker's processor time, and since when it has not grown."""

    ticks: int = -1
    since_ms: int = 0


PATIENCE = Patience()


class Jobs(Protocol):
    """Takes jobs; see Hands."""

    def do(
        self,
        question: Question[A],
        answered: Callable[[A | Failed], None],
        *,
        is_urgent: bool = False,
    ) -> None:
        """Have a job done; see Hands."""


class Hand(Jobs, Protocol):
    """Does jobs, one after the other."""

    def taking_ms(self, now_ms: int) -> int:
        """How long the job that is being done takes already; 0: there is none."""

    def look(self) -> None:
        """See whether it has come further; to be called now and then."""

    def stop(self) -> None:
        """End it."""


Hire = Callable[[Loop, str, Surroundings, int], Hand]
"""Makes one: its loop, its name, where everything is, after how many ms it hangs."""


class Hands:
    """One worker, when there is work: jobs in, answers out, in order."""

    def __init__(
        self, loop: Loop, name: str, at: Surroundings, hung_ms: int = PATIENCE.hung_ms
    ) -> None:
        self._loop, self._name, self._at, self._hung_ms = loop, name, at, hung_ms
        self._jobs: deque[_Job] = deque()
        self._link: Link | None = None
        self._pid = 0
        self._progress = _Progress()
        self._dismissed: list[int] = []
        self._stopped = False

    @property
    def busy(self) -> bool:
        return bool(self._jobs)

    def do(
        self,
        question: Question[A],
        answered: Callable[[A | Failed], None],
        *,
        is_urgent: bool = False,
    ) -> None:
        """Have a job done; `answered` gets the answer.

        One that is urgent waits for the one that is being done, and no other.
        """
        place = min(1, len(self._jobs)) if is_urgent else len(self._jobs)
        self._jobs.insert(place, _Job(question, answered))
        if len(self._jobs) == 1:
            self._send()

    def taking_ms(self, now_ms: int) -> int:
        """How long the job that is being done takes already; 0: there is none."""
        return now_ms - self._jobs[0].begun_ms if self._jobs else 0

    def look(self) -> None:
        """See whether the worker has come further; to be called now and then.

        One that hangs is given up, as is what it was at. It may be where no signal reaches it: it
        is not waited for, but the next one is given twice the time, for memory has an end.
        """
        self._dismissed = [pid for pid in self._dismissed if os.waitpid(pid, os.WNOHANG)[0] == 0]
        if not self._jobs:
            return
        now_ms, ticks, progress = monotonic_ms(), processor_ticks(self._pid), self._progress
        if ticks != progress.ticks:
            progress.ticks, progress.since_ms = ticks, now_ms
        elif now_ms - progress.since_ms >= self._hung_ms << len(self._dismissed):
            self._dismiss()
            question = self._jobs[0].question
            what = f"{name_of(type(question))!r}, {_subject(question)}"
            self._settle(Failed(f"a worker hangs ({what}): it is replaced"))

    def stop(self) -> None:
        """End the worker; what it was at is found again by the next start."""
        self._stopped = True
        if self._link is not None:
            self._dismiss()
        for pid in self._dismissed:
            os.waitpid(pid, 0)
        self._dismissed.clear()

    def _send(self) -> None:
        if self._link is None:
            self._hire()
        assert self._link is not None
        self._jobs[0].attempts += 1
        self._jobs[0].begun_ms = self._progress.since_ms = monotonic_ms()
        self._link.send(encode_question(0, self._jobs[0].question))

    def _hire(self) -> None:
        ours, theirs = socket.socketpair()
        stop = Stop()

        def run() -> None:
            ours.close()
            work(theirs, self._at)

        self._pid = fork(self._name, run, stop)
        stop.close()
        theirs.close()
        self._link = Link(self._loop, ours, self._answer, self._left)

    def _answer(self, _link: Link, frame: InternalFrame) -> None:
        self._settle(decode_answer(type(self._jobs[0].question), frame.body))

    def _settle(self, answer: object) -> None:
        """Answer the first job, and go on. While it is there a new one is only put behind it."""
        self._jobs[0].answered(answer)
        self._jobs.popleft()
        if self._jobs:
            self._send()

    def _dismiss(self) -> None:
        assert self._link is not None, "there is a worker"
        self._link.close()
        os.kill(self._pid, signal.SIGKILL)
        self._dismissed.append(self._pid)
        self._pid, self._link = 0, None

    def _left(self, _link: Link) -> None:
        """The worker is gone: for want of work, or in the middle of a job."""
        os.waitpid(self._pid, 0)
        self._pid, self._link = 0, None
        if not self._jobs or self._stopped:
            return
        if self._jobs[0].attempts >= JOB_ATTEMPTS_MAX:
            self._settle(Failed(f"{self._name} died while handling it: {self._jobs[0].question}"))
        else:
            self._send()


def sealers_of(processors: int) -> int:
    """How many workers seal: of two processors one is left to those who produce."""
    return max(1, min(SEALERS_MAX, processors // 2))


class Sealers:
    """Workers that seal, so many at most.

    One of them does all jobs of a partition, in order. The first does what concerns no partition.
    """

    def __init__(
        self, loop: Loop, name: str, at: Surroundings, count: int, hire: Hire = Hands
    ) -> None:
        names = [name, *(f"{name}-{number}" for number in range(2, count + 1))]
        self.hands = [hire(loop, each, at, PATIENCE.hung_ms) for each in names]

    def do(
        self,
        question: Question[A],
        answered: Callable[[A | Failed], None],
        *,
        is_urgent: bool = False,
    ) -> None:
        """Have a job done; see Hands."""
        match question:
            case Seal() | DropUnsealed() | Retain() | Merge() | Compact():
                number = question.place.number
            case _:
                number = 0
        self.hands[number % len(self.hands)].do(question, answered, is_urgent=is_urgent)

    def look(self) -> None:
        """See whether they have come further; to be called now and then."""
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
    """Workers that read, `READERS_MAX` at most: the second comes when the first is slow, and so on.

    What concerns one partition is done by one worker at a time: a file that hangs holds up its own
    readers and no others, and nothing is fetched twice at once.
    """

    def __init__(
        self,
        loop: Loop,
        name: str,
        at: Surroundings,
        patience: Patience = PATIENCE,
        hire: Hire = Hands,
    ) -> None:
        self._loop, self._name, self._at, self._patience = loop, name, at, patience
        self._hire = hire
        self._hands: list[Hand] = []
        self._in_hand: dict[Hand, object] = {}
        self._waiting: deque[_Read] = deque()

    def do(self, question: Question[A], answered: Callable[[A | Failed], None]) -> None:
        """Have something read; `answered` gets the answer."""
        self._waiting.append(_Read(question, answered, monotonic_ms()))
        self._hand_out()

    def look(self) -> None:
        """See what takes too long; to be called now and then."""
        now_ms = monotonic_ms()
        for hands in list(self._hands):  # What is given up may have another one hired.
            hands.look()
        while self._waiting and now_ms - self._waiting[0].asked_ms >= self._patience.wait_ms:
            read = self._waiting.popleft()
            read.answered(Failed(f"{_subject(read.question)} is not read: other reads are slow"))
        self._hand_out()

    def stop(self) -> None:
        """End the workers."""
        for hands in self._hands:
            hands.stop()

    def _hand_out(self) -> None:
        for read in list(self._waiting):
            subject = _subject(read.question)
            if subject in self._in_hand.values():
                continue
            hands = self._free()
            if hands is None:
                return
            self._waiting.remove(read)
            self._in_hand[hands] = subject
            hands.do(read.question, partial(self._answered, hands, read))

    def _answered(self, hands: Hand, read: _Read, answer: object) -> None:
        del self._in_hand[hands]
        read.answered(answer)
        self._hand_out()

    def _free(self) -> Hand | None:
        """The worker for the next job. None is hired while a busy one may be free in a moment."""
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
        self._hands.append(self._hire(self._loop, name, at, self._patience.hung_ms))
        return self._hands[-1]


def _subject(question: Question[Any]) -> str:
    """Describe a question in words."""
    match question:
        case FindPayloads():
            return f"payload {question.keys[0]}"
        case Seal() | DropUnsealed() | Retain() | MakeInline():
            return f"partition {question.place.number}"
        case Cold() | OffsetForTime():
            return f"partition {question.number}"
    return "the filer"


def processor_ticks(pid: int) -> int:
    """What all threads of a process have had of the processor, in ticks of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return int(fields[11]) + int(fields[12])
