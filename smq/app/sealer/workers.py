"""The sealer's worker processes: started when there is work, replaced when they hang.

    Hands     one worker, one job at a time
    Sealers   one for every two processors, each for its own partitions
    Readers   some, for the shards' questions: a slow read does not block the others

A worker whose filer hangs, or that was suspended, cannot be asked to stop. If it uses no CPU time
for a while, it is killed, and a new one takes the waiting jobs. Its current job fails; the sealer's
next rounds schedule it again.
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
from smq.app.sealer.worker import Surroundings, subject_of, work
from smq.wire.internal.form import Failed, Question, decode_answer, encode_question, name_of
from smq.wire.internal.frames import InternalFrame
from smq.wire.internal.messages import Compact, DropUnsealed, Merge, Retain, Seal

JOB_ATTEMPTS_MAX = 2  # A job whose worker dies twice is itself at fault.
SEALERS_MAX = 4  # More would wait for the disk.
READERS_MAX = 3  # Each may hold pyarrow's memory, and a cache of its own.

A = TypeVar("A")


class JobTimeouts(NamedTuple):
    """Timeouts of work."""

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
    """A worker's CPU time, and since when it has not grown."""

    ticks: int = -1
    since_ms: int = 0


PATIENCE = JobTimeouts()


class Jobs(Protocol):
    """Accepts jobs; see Hands."""

    def do(
        self,
        question: Question[A],
        answered: Callable[[A | Failed], None],
        *,
        is_urgent: bool = False,
    ) -> None:
        """Queue a job; see Hands."""


class Hand(Jobs, Protocol):
    """Does one job at a time."""

    def taking_ms(self, now_ms: int) -> int:
        """How long the current job has been running; 0 without one."""

    def look(self) -> None:
        """Check for progress; call this periodically."""

    def stop(self) -> None:
        """Kill the worker."""


Hire = Callable[[Loop, str, Surroundings, int], Hand]
"""Makes one: its loop, its name, where everything is, after how many ms it hangs."""


class Hands:
    """At most one worker process: jobs in, answers out, in order."""

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
        """Queue a job; `answered` gets the answer.

        An urgent job waits only for the current job.
        """
        place = min(1, len(self._jobs)) if is_urgent else len(self._jobs)
        self._jobs.insert(place, _Job(question, answered))
        if len(self._jobs) == 1:
            self._send()

    def taking_ms(self, now_ms: int) -> int:
        """How long the current job has been running; 0 without one."""
        return now_ms - self._jobs[0].begun_ms if self._jobs else 0

    def look(self) -> None:
        """Check the worker's progress; call this periodically.

        A worker that hangs is killed, and its job fails. Its end is not awaited, as the kernel may
        delay the signal. Each further worker gets twice the time: dismissed ones may hold memory.
        """
        self._dismissed = [pid for pid in self._dismissed if os.waitpid(pid, os.WNOHANG)[0] == 0]
        if not self._jobs or self._link is None:
            return
        now_ms, ticks, progress = monotonic_ms(), processor_ticks(self._pid), self._progress
        if ticks != progress.ticks:
            progress.ticks, progress.since_ms = ticks, now_ms
        elif now_ms - progress.since_ms >= self._hung_ms << len(self._dismissed):
            self._dismiss()
            question = self._jobs[0].question
            what = f"{name_of(type(question))!r}, {subject_of(question)}"
            self._settle(Failed(f"a worker hangs ({what}): it is replaced"))

    def stop(self) -> None:
        """Kill the worker; the next start finds its work undone."""
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
        """Answer the first job, then send the next. Jobs added meanwhile queue up behind it."""
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
        """The worker has exited: idle, or in the middle of a job."""
        os.waitpid(self._pid, 0)
        self._pid, self._link = 0, None
        self._loop.call_later(0, self._go_on)  # It may have left while it was given a job.

    def _go_on(self) -> None:
        """Give the first job to another worker, unless it has cost enough of them."""
        if not self._jobs or self._stopped or self._link is not None:
            return
        if self._jobs[0].attempts >= JOB_ATTEMPTS_MAX:
            self._settle(Failed(f"{self._name} died while handling it: {self._jobs[0].question}"))
        else:
            self._send()


def sealers_of(processors: int) -> int:
    """The number of sealing workers: half the processors, so that producers keep the rest."""
    return max(1, min(SEALERS_MAX, processors // 2))


class Sealers:
    """A fixed number of workers that seal.

    One worker does all jobs of a partition, in order. The first does the jobs without a partition.
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
        """Queue a job; see Hands."""
        match question:
            case Seal() | DropUnsealed() | Retain() | Merge() | Compact():
                number = question.place.number
            case _:
                number = 0
        self.hands[number % len(self.hands)].do(question, answered, is_urgent=is_urgent)

    def look(self) -> None:
        """Check for progress; call this periodically."""
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
        self._hands: list[Hand] = []
        self._in_hand: dict[Hand, object] = {}
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

    def _answered(self, hands: Hand, read: _Read, answer: object) -> None:
        del self._in_hand[hands]
        read.answered(answer)
        self._hand_out()

    def _free(self) -> Hand | None:
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
        self._hands.append(self._hire(self._loop, name, at, self._patience.hung_ms))
        return self._hands[-1]


def processor_ticks(pid: int) -> int:
    """The CPU time of all threads of a process, in ticks of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return int(fields[11]) + int(fields[12])
