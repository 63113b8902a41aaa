"""A worker process of the sealer: started when there is work, replaced when it hangs.

A worker whose filer hangs, or that was suspended, cannot be asked to stop. If it uses no CPU time
for a while, it is killed, and a new one takes the waiting jobs. Its current job fails; the sealer's
next rounds schedule it again. One that waits for a core does not hang. One that claims too little
of the cores for what waits is killed, too, and its current job is done again by the next one.
"""

import os
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from smq.app.process.child import fork, kill
from smq.app.process.clock import monotonic_ms
from smq.app.process.inheritance import Stop
from smq.app.process.link import Link
from smq.app.process.loop import Loop
from smq.app.sealer.claims import Claim, Pace
from smq.app.sealer.pause import NEVER, Pause
from smq.app.sealer.surroundings import Surroundings
from smq.app.sealer.worker import subject_of, work
from smq.wire.internal.form import Failed, Question, decode_answer, encode_question, name_of
from smq.wire.internal.frames import InternalFrame

LATE_MS = 60_000  # A job that has waited for idle cores for so long waits no longer.
HUNG_MS = 120_000  # Without any progress a job never ends, for S3's own waits are over.
JOB_ATTEMPTS_MAX = 2  # A job whose worker dies twice is itself at fault.
NICENESS = 10
KEPT_STATES = frozenset("RD")  # Runs or waits for a core; waits for a disk: it has classes, too.

A = TypeVar("A")


class Terms(NamedTuple):
    """What a worker may claim while nothing hurries, and when it is late or hangs."""

    claim: Claim = Claim.FULL
    hung_ms: int = HUNG_MS
    late_ms: int = LATE_MS


USUAL = Terms()


@dataclass(slots=True, eq=False)
class _Job:
    question: Question[Any]
    answered: Callable[[Any], None]
    begun_ms: int = 0
    attempts: int = 0
    kept_ms: int = 0
    """For how long looks have found its worker ready for a core, or paused."""


@dataclass(slots=True)
class _Progress:
    """A worker's CPU time, and since when it has neither grown nor waited for a core."""

    ticks: int = -1
    since_ms: int = 0


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


class Hands:
    """At most one worker process: jobs in, answers out, in order."""

    def __init__(self, loop: Loop, name: str, at: Surroundings, terms: Terms = USUAL) -> None:
        self._loop, self._name, self._at = loop, name, at
        self._hung_ms = terms.hung_ms
        self._pace = Pace(terms.claim, terms.late_ms)
        self._jobs: deque[_Job] = deque()
        self._link: Link | None = None
        self._pid = 0
        self._claim = max(terms.claim, Claim.IDLE)  # The worker's.
        self._pause = Pause()
        self._shards_are_busy = False
        self._looked_ms = 0
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

    def hurry(self, *, is_short: bool) -> None:
        """Whether a log is short of space: from the next look on, nothing waits for idle cores."""
        self._pace.is_short = is_short

    def give_way(self, *, is_busy: bool) -> None:
        """Whether shards are busy: from the next look on, what is not late pauses."""
        self._shards_are_busy = is_busy

    def taking_ms(self, now_ms: int) -> int:
        """How long the current job has been running; 0 without one."""
        return now_ms - self._jobs[0].begun_ms if self._jobs else 0

    def look(self) -> None:
        """Check the current job and its worker's progress; call this periodically.

        A worker that claims too little, and is kept waiting, is replaced; its job is not at fault.
        """
        self._dismissed = [pid for pid in self._dismissed if os.waitpid(pid, os.WNOHANG)[0] == 0]
        if not self._jobs or self._link is None:
            return
        ticks, states = cpu_time(self._pid)
        is_kept = self._note_wait(is_ready=not KEPT_STATES.isdisjoint(states))
        if self._wanted_claim() > self._claim and is_kept:
            self._jobs[0].attempts -= 1
            self._dismiss()
            self._send()
        else:
            self._check_progress(ticks, is_starved=self._pause.is_on or "R" in states)

    def _note_wait(self, *, is_ready: bool) -> bool:
        """Count the time since the last look if others have kept the worker from going on."""
        job, now_ms = self._jobs[0], monotonic_ms()
        is_kept = is_ready or self._pause.is_on
        if is_kept:
            job.kept_ms += now_ms - max(job.begun_ms, self._looked_ms)
        self._looked_ms = now_ms
        return is_kept

    def _wanted_claim(self) -> Claim:
        """What the worker must claim for what waits. It pauses, or goes on, by the same."""
        now_ms = monotonic_ms()
        claim = self._pace.claim(self._jobs[0].kept_ms, now_ms)
        self._pause.set(is_on=claim is Claim.SPARE and self._shards_are_busy)
        return max(claim, Claim.IDLE)

    def _check_progress(self, ticks: int, *, is_starved: bool) -> None:
        """Kill a worker that hangs; its job fails.

        Its end is not awaited, as the kernel may delay the signal. Each further worker gets twice
        the time: dismissed ones may hold memory.
        """
        now_ms, progress = monotonic_ms(), self._progress
        if is_starved or ticks != progress.ticks:
            progress.ticks, progress.since_ms = ticks, now_ms
        elif now_ms - progress.since_ms >= self._hung_ms << len(self._dismissed):
            self._dismiss()
            question = self._jobs[0].question
            what = f"{name_of(type(question))!r}, {subject_of(question)}"
            self._settle(Failed(f"a worker hangs ({what}): it is replaced"))

    def stop(self) -> None:
        """Kill the worker; the next start finds its work undone, and waits for its end: a stop may
        not last as long."""
        self._stopped = True
        self._dismiss()

    def _send(self) -> None:
        job = self._jobs[0]
        job.attempts += 1
        job.begun_ms = self._progress.since_ms = monotonic_ms()
        claim = self._wanted_claim()
        if self._link is not None and claim != self._claim:
            self._dismiss()
        if self._link is None:
            self._hire(claim)
        assert self._link is not None
        self._link.send(encode_question(0, job.question))

    def _hire(self, claim: Claim) -> None:
        ours, theirs = socket.socketpair()
        stop = Stop()

        def run() -> None:
            ours.close()
            take(claim)
            work(theirs, self._at._replace(pause=self._pause if claim is Claim.IDLE else NEVER))

        self._pid, self._claim = fork(self._name, run, stop), claim
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
        """Kill the worker, if there is one."""
        if self._link is not None:
            self._link.close()
            kill(self._pid)
            self._dismissed.append(self._pid)
            self._pid, self._link = 0, None

    def _left(self, _link: Link) -> None:
        """The worker exits: idle, or in the middle of a job. Without idle cores that takes seconds,
        so its end is not awaited."""
        self._dismissed.append(self._pid)
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


def take(claim: Claim) -> None:
    """Lower this process's claim to the cores. Linux derives the priority of its reads and writes
    from it, too."""
    if claim is Claim.IDLE:
        with suppress(OSError):  # A sandbox may know no classes.
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
            return
    if claim is not Claim.FULL:
        os.nice(NICENESS)


def cpu_time(pid: int) -> tuple[int, str]:
    """The CPU time of a process, in ticks of 10 ms; and its threads' states, a letter each."""
    states = ""
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # It has ended.
            states += _stat(task)[1]
    return _stat(Path(f"/proc/{pid}"))[0], states


def _stat(directory: Path) -> tuple[int, str]:
    """The CPU time and the state of a process, or of a thread."""
    fields = (directory / "stat").read_text().rpartition(") ")[2].split()
    return int(fields[11]) + int(fields[12]), fields[0]
