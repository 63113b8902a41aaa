"""The sealer: its loop is the real one, its workers do their jobs in this process.

While a worker waits for an answer of a shard or the coordinator, the other processes run. It dies
with the sealer, in the middle of a job.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from smq.app.process.asker import Asker
from smq.app.process.inheritance import SEALER
from smq.app.process.loop import Loop
from smq.app.sealer.claims import Claim
from smq.app.sealer.hands import Hands, Terms
from smq.app.sealer.main import Sealer
from smq.app.sealer.surroundings import Surroundings
from smq.app.sealer.worker import IDLE_S, Worker
from smq.model.segments import ATTEMPT_BITS
from smq.testing.simulation.clock import MS
from smq.testing.simulation.disk import Killed
from smq.testing.simulation.host import Host
from smq.testing.simulation.network import SimulatedSocket
from smq.testing.simulation.processes import SimProcess
from smq.wire.internal.form import (
    Question,
    decode_answer,
    decode_question,
    encode_answer,
    encode_question,
    name_of,
)
from smq.wire.internal.frames import InternalReader
from smq.wire.internal.messages import FOR_WORKER

JOB_MS = 5.0  # The longest time of a job until its first question.
STARVED_SHARE = 0.05  # Of the jobs that wait for idle cores …
STARVED_MS = 20_000.0  # … for as long as this.
ANSWER_WAIT_MS = 10_000
RECEIVE_BYTES = 1 << 16

A = TypeVar("A")


class SteppedAsker(Asker):
    """An Asker that lets the others run while it waits."""

    def __init__(
        self, process: "SealerProcess", is_dismissed: Callable[[], bool], path: Path
    ) -> None:
        super().__init__(path)
        self._process, self._is_dismissed = process, is_dismissed
        self._address = str(path), 0
        self._connection: SimulatedSocket | None = None

    def close(self) -> None:
        """See Asker."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _answer(self, question: Question[Any]) -> bytes:
        process = self._process
        if self._is_dismissed():
            raise Dismissed
        if self._connection is None:
            network = process.host.network
            self._connection = network.connect(self._address, (process.name, 0))
            self._connection.owner = process
        sock, unsent, reader = self._connection, encode_question(0, question), InternalReader()
        ends_ns = process.host.clock.now_ns + ANSWER_WAIT_MS * MS
        while process.host.clock.now_ns < ends_ns:
            try:
                while unsent:
                    unsent = unsent[sock.send(unsent) :]
                for frame in reader.receive(self._received(sock)):
                    process.answered(question)
                    return frame.body
            except BlockingIOError:
                process.wait(min(ends_ns, sock.next_due_ns() or ends_ns))
                if self._is_dismissed():
                    raise Dismissed from None
        raise TimeoutError("timed out")

    @staticmethod
    def _received(sock: SimulatedSocket) -> bytes:
        received = sock.recv(RECEIVE_BYTES)
        if not received:
            raise ConnectionResetError("the connection was closed")
        return received


class EagerWorker(Worker):
    """Merges as soon as it can: a run makes few segments per partition."""

    merge_run_min = 2


class Dismissed(BaseException):
    """A worker was killed in the middle of a job. None of its handlers catches it."""


class SteppedHands(Hands):
    """A worker in this process."""

    def __init__(self, process: "SealerProcess", name: str, at: Surroundings, terms: Terms) -> None:
        super().__init__(process.loop, name, at, terms)
        self._process = process
        self._dismissals = 0
        self._worker = self._start()
        self._idle_ns = 0
        self.due_ns: int | None = None  # None: no job to begin.

    def _start(self) -> EagerWorker:
        draw = partial(self._process.chance.getrandbits, ATTEMPT_BITS)
        dismissals = self._dismissals
        asker = partial(SteppedAsker, self._process, lambda: self._dismissals != dismissals)
        return EagerWorker(self._at, asker, draw)

    def look(self) -> None:
        """See Hands. It never hangs."""
        if self._jobs and self._note_wait(is_ready=True) and self._wanted_claim() > self._claim:
            self._dismiss()
            self._send()

    def stop(self) -> None:
        """See Hands."""

    @property
    def job(self) -> str:
        """The name of the unfinished job."""
        is_begun = self._jobs and self.due_ns is None
        return name_of(type(self._jobs[0].question)) if is_begun else ""

    def step(self) -> None:
        """Run the first job to its end."""
        self.due_ns = None
        question = self._jobs[0].question
        asked, dismissals = _body_of(encode_question(0, question)), self._dismissals
        with suppress(Dismissed):
            answer = self._worker.do(decode_question(asked, FOR_WORKER))
        if self._dismissals != dismissals:
            return
        if not self._process.is_alive:
            raise Killed(self._process.name)
        self._idle_ns = self._process.host.clock.now_ns
        self._settle(decode_answer(type(question), _body_of(encode_answer(0, answer))))

    def _send(self) -> None:
        now_ns, chance, claim = self._process.host.clock.now_ns, self._process.chance, self._claim
        job = self._jobs[0]
        job.begun_ms = now_ns // MS
        self._claim = self._wanted_claim()
        if now_ns - self._idle_ns >= IDLE_S * 1000 * MS or claim != self._claim:
            self._worker = self._start()  # The one before has ended.
        is_starved = self._claim is Claim.IDLE and chance.random() < STARVED_SHARE
        job_ms = STARVED_MS if is_starved else JOB_MS
        self.due_ns = now_ns + int(chance.random() * job_ms * MS)

    def _dismiss(self) -> None:
        self._dismissals += 1
        self._worker, self.due_ns = self._start(), None


def _body_of(encoded: bytes) -> bytes:
    [frame] = InternalReader().receive(encoded)
    return frame.body


class SealerProcess(SimProcess):
    """Like smq.app.sealer.main. `let_others` runs while a worker waits."""

    def __init__(self, host: Host, let_others: Callable[[int], None]) -> None:
        super().__init__(host, SEALER)
        self._let_others = let_others
        self._hands: list[SteppedHands] = []
        self._sealer = Sealer(self.loop, host.inheritance, self._hire, sealers=2)
        self._sealer.listen(self.listener(SEALER))
        self._sealer.begin()

    def _hire(self, _loop: Loop, name: str, at: Surroundings, terms: Terms) -> SteppedHands:
        self._hands.append(SteppedHands(self, name, at, terms))
        return self._hands[-1]

    def press(self) -> None:
        """A log is short of space."""
        self._sealer.press()
        self.is_woken = True

    def at_work(self) -> list[str]:
        """See SimProcess."""
        return [job for hand in self._hands if (job := hand.job)]

    def answered(self, question: Question[Any]) -> None:
        """A worker has an answer: some may die before the next one."""
        if self.host.after_answer is not None:
            self.host.after_answer(question)

    def wait(self, until_ns: int) -> None:
        """A worker waits, at most until then: let the others run. Raises Killed if this process
        died meanwhile."""
        self._let_others(until_ns)
        if not self.is_alive:
            raise Killed(self.name)

    def next_due_ns(self) -> int | None:
        """See SimProcess."""
        dues = [super().next_due_ns(), *(hand.due_ns for hand in self._hands)]
        return min((due for due in dues if due is not None), default=None)

    def step_threads(self, now_ns: int) -> None:
        """See SimProcess."""
        for hand in list(self._hands):
            if hand.due_ns is not None and hand.due_ns <= now_ns and self.is_alive:
                hand.step()
                self.is_woken = True
