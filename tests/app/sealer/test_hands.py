"""Worker processes of the sealer: hired, dying, leaving, hanging, starving, and replaced."""

import inspect
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from smq.app.process.clock import monotonic_ms
from smq.app.sealer import hands as sealer_hands, worker as sealer_worker
from smq.app.sealer.claims import Claim, Pace
from smq.app.sealer.hands import JOB_ATTEMPTS_MAX, NICENESS, Hands, Terms, cpu_time
from smq.app.sealer.surroundings import Surroundings
from smq.filer.location import Location
from smq.model.segments import SealedPartition
from smq.wire.internal.form import Failed, decode_question, encode_answer
from smq.wire.internal.frames import InternalReader
from smq.wire.internal.messages import (
    FOR_WORKER,
    FindOrphans,
    FindUnnamed,
    ForgetUnfinished,
    Seal,
    Unnamed,
)
from smq.wire.internal.reads import BatchFile, Cold
from tests.app.busy_core import busy_core
from tests.app.fake_peers import TidyLoop, turn_until

Answers = dict[str, Any]
IDLE_CLASS = -1
USUAL_CLASS = os.nice(0)
LITTLE_CLASS = min(19, USUAL_CLASS + NICENESS)
FORGET = ForgetUnfinished(idle={})
PLACE = SealedPartition("kafka", "orders", 0, 1)


def surroundings(directory: Path) -> Surroundings:
    filer = Location(str(directory / "filer"))
    return Surroundings(directory, filer, directory, directory / "cache")


@pytest.fixture
def loop() -> Iterator[TidyLoop]:
    loop = TidyLoop()
    yield loop
    loop.close()


@pytest.fixture
def hands(loop: TidyLoop, tmp_path: Path) -> Iterator[Hands]:
    hands = Hands(loop, "test", surroundings(tmp_path))
    yield hands
    hands.stop()


def test_a_job_that_kills_its_workers_is_given_up(
    loop: TidyLoop, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(_socket: socket.socket, _at: Surroundings) -> None:
        os._exit(9)

    monkeypatch.setattr(sealer_hands, "work", die)
    answers: list[dict[str, int] | Failed] = []
    hands.do(FORGET, answers.append)
    hands.do(FORGET, answers.append)
    turn_until(loop, lambda: len(answers) == 2)
    assert isinstance(answers[0], Failed)
    assert "died while handling it" in answers[0].error


def test_workers_that_leave_while_they_are_given_a_job_do_not_pile_up(
    loop: TidyLoop, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """data fault 31: the end of a worker gave the next job, whose worker had ended already."""

    def leave(*_: object) -> int:
        pid = os.fork()
        if pid == 0:
            os._exit(9)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        return pid

    monkeypatch.setattr(sealer_hands, "work", lambda *_: signal.pause())
    answers: list[object] = []
    for _ in range(60):
        hands.do(FORGET, answers.append)
    monkeypatch.setattr(sealer_hands, "fork", leave)
    os.kill(hands._pid, signal.SIGKILL)
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(_depth() + 150)
    try:
        turn_until(loop, lambda: len(answers) == 60)
    finally:
        sys.setrecursionlimit(before)
    assert all(isinstance(each, Failed) for each in answers)


def _depth() -> int:
    frame, depth = inspect.currentframe(), 0
    while frame is not None:
        frame, depth = frame.f_back, depth + 1
    return depth


def _note(order: list[str], name: str, _answer: object) -> None:
    order.append(name)


def test_an_urgent_job_goes_before_those_that_wait(loop: TidyLoop, hands: Hands) -> None:
    order: list[str] = []
    for name, is_urgent in (("first", False), ("second", False), ("urgent", True)):
        hands.do(FORGET, partial(_note, order, name), is_urgent=is_urgent)
    turn_until(loop, lambda: len(order) == 3)
    assert order == ["first", "urgent", "second"]


def test_a_worker_leaves_when_there_is_nothing_to_do(
    loop: TidyLoop, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealer_hands, "work", lambda sock, at: sealer_worker.work(sock, at, 0.05))
    answers: list[dict[str, int] | Failed] = []
    for _ in range(2):
        hands.do(FORGET, answers.append)
        turn_until(loop, lambda: hands._pid == 0)
    assert answers == [{}, {}]


def test_the_end_of_a_worker_that_leaves_is_not_awaited(
    loop: TidyLoop, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that waits for idle cores took seconds from its last word to its end, and held the loop
    through which cold reads go."""

    def leave(sock: socket.socket, _at: Surroundings) -> None:
        sock.close()
        signal.alarm(3)
        signal.pause()

    monkeypatch.setattr(sealer_hands, "work", leave)
    answers: list[dict[str, int] | Failed] = []
    hands.do(FORGET, answers.append)
    turn_until(loop, lambda: len(answers) == 1)
    leaving = list(hands._dismissed)
    assert [os.waitpid(pid, os.WNOHANG) for pid in leaving] == [(0, 0)] * JOB_ATTEMPTS_MAX
    for pid in leaving:
        os.kill(pid, signal.SIGKILL)


def test_a_stop_does_not_await_the_end_of_a_worker(
    loop: TidyLoop, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    def last(_socket: socket.socket, _at: Surroundings) -> None:
        signal.alarm(3)
        signal.pause()

    monkeypatch.setattr(sealer_hands, "work", last)
    monkeypatch.setattr(sealer_hands, "kill", lambda _pid: None)  # It waits for an idle core.
    hands.do(FORGET, lambda _: None)
    pid = hands._pid
    hands.stop()
    assert os.waitpid(pid, os.WNOHANG) == (0, 0)
    os.kill(pid, signal.SIGKILL)


def test_a_worker_that_was_stopped_is_killed_and_replaced(loop: TidyLoop, hands: Hands) -> None:
    hands._hung_ms = 200
    answers: list[dict[str, int] | Failed] = []
    hands.do(FORGET, answers.append)
    turn_until(loop, lambda: bool(answers))
    stopped = hands._pid
    os.kill(stopped, signal.SIGSTOP)
    for _ in range(2):
        hands.do(FORGET, answers.append)

    def looked(is_over: Callable[[], bool]) -> bool:
        hands.look()
        return is_over()

    turn_until(loop, partial(looked, lambda: len(answers) == 3))
    hung = Failed("a worker hangs ('forget_unfinished', the filer): it is replaced")
    assert answers == [{}, hung, {}]
    turn_until(loop, partial(looked, lambda: not hands._dismissed))
    with pytest.raises(ProcessLookupError):
        os.kill(stopped, 0)


def read_by(worker: str, number: int) -> BatchFile:
    """What a worker of `hangs_on_odd_numbers` has read."""
    return BatchFile(worker, at=0, length=number, next_offset=0)


def hangs_on_odd_numbers(sock: socket.socket, at: Surroundings) -> None:
    """A worker whose filer hangs, for some of what is in it."""
    reader = InternalReader()
    while received := sock.recv(1 << 16):
        for frame in reader.receive(received):
            question = decode_question(frame.body, FOR_WORKER)
            number = question.number if isinstance(question, Cold) else 0
            if isinstance(question, Seal) or number % 2:
                Event().wait()
            answer = (
                {at.cache_dir.name: None} if number == 0 else read_by(at.cache_dir.name, number)
            )
            sock.sendall(encode_answer(frame.id, answer))


def test_a_worker_that_comes_further_may_take_as_long_as_it_wants(
    hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealer_hands, "work", hangs_on_odd_numbers)
    ticks, answers = count(), list[int | Failed]()
    monkeypatch.setattr(sealer_hands, "cpu_time", lambda _pid: (next(ticks), "S"))
    hands._hung_ms = 0
    hands.do(Seal(1, PLACE, 0, 1, 1), answers.append)
    for _ in range(3):
        hands.look()
    assert answers == []
    monkeypatch.setattr(sealer_hands, "cpu_time", lambda _pid: (0, "SR"))  # It waits for a core.
    for _ in range(3):
        hands.look()
    assert answers == []
    monkeypatch.setattr(sealer_hands, "cpu_time", lambda _pid: (0, "SD"))
    for _ in range(2):
        hands.look()
    assert answers == [Failed("a worker hangs ('seal', partition 1): it is replaced")]


Hiring = Callable[[Terms], Hands]


@pytest.fixture
def hire(loop: TidyLoop, tmp_path: Path) -> Iterator[Hiring]:
    hired: list[Hands] = []

    def hire(terms: Terms) -> Hands:
        hired.append(Hands(loop, "test", surroundings(tmp_path), terms))
        return hired[-1]

    yield hire
    for each in hired:
        each.stop()


def says_its_class(sock: socket.socket, _at: Surroundings) -> None:
    """A worker that answers its class. It seals only if it need not wait for idle cores."""
    reader, is_idle = InternalReader(), os.sched_getscheduler(0) == os.SCHED_IDLE
    found = IDLE_CLASS if is_idle else os.nice(0)
    while received := sock.recv(1 << 16):
        for frame in reader.receive(received):
            is_seal = isinstance(decode_question(frame.body, FOR_WORKER), Seal)
            while is_seal and is_idle:
                pass
            sock.sendall(encode_answer(frame.id, found if is_seal else {"class": found}))


def looking(hands: Hands, is_over: Callable[[], bool]) -> Callable[[], bool]:
    def looked() -> bool:
        hands.look()
        return is_over()

    return looked


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        (Claim.SPARE, {"class": IDLE_CLASS}),
        (Claim.IDLE, {"class": IDLE_CLASS}),
        (Claim.LITTLE, {"class": LITTLE_CLASS}),
        (Claim.FULL, {"class": USUAL_CLASS}),
    ],
)
def test_a_worker_takes_its_claim(
    loop: TidyLoop, hire: Hiring, monkeypatch: pytest.MonkeyPatch, claim: Claim, expected: Answers
) -> None:
    monkeypatch.setattr(sealer_hands, "work", says_its_class)
    answers: list[object] = []
    hire(Terms(claim)).do(FORGET, answers.append)
    turn_until(loop, lambda: bool(answers))
    assert answers == [expected]


def test_a_sandbox_without_classes_gives_a_low_priority(
    loop: TidyLoop, hire: Hiring, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(sealer_hands, "work", says_its_class)
    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    answers: list[object] = []
    hire(Terms(Claim.SPARE)).do(FORGET, answers.append)
    turn_until(loop, lambda: bool(answers))
    assert answers == [{"class": LITTLE_CLASS}]


def test_while_space_is_short_the_next_job_and_one_that_starves_get_another_worker(
    loop: TidyLoop, hire: Hiring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealer_hands, "work", says_its_class)
    hands, answers = hire(Terms(Claim.SPARE)), list[object]()
    hands.do(FORGET, answers.append)
    turn_until(loop, lambda: bool(answers))
    idle_pid = hands._pid
    for question in (Seal(1, PLACE, 0, 1, 1), FORGET):
        hands.do(question, answers.append)
    hands.hurry(is_short=True)
    turn_until(loop, looking(hands, lambda: len(answers) == 3))
    hurried_pid = hands._pid
    hands.hurry(is_short=False)
    hands.do(FORGET, answers.append)
    turn_until(loop, lambda: len(answers) == 4)
    assert answers == [
        {"class": IDLE_CLASS},
        USUAL_CLASS,
        {"class": USUAL_CLASS},
        {"class": IDLE_CLASS},
    ]
    assert len({idle_pid, hurried_pid, hands._pid}) == 3
    turn_until(loop, looking(hands, lambda: not hands._dismissed))


def test_a_job_that_has_waited_for_idle_cores_for_too_long_waits_no_longer(
    loop: TidyLoop, hire: Hiring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealer_hands, "work", says_its_class)
    hands, answers = hire(Terms(Claim.SPARE, late_ms=300)), list[Any]()
    for _ in range(JOB_ATTEMPTS_MAX + 1):  # Replacing its worker is no fault of a job.
        answers.clear()
        hands._pace = Pace(Claim.SPARE, 300)
        hands.do(Seal(1, PLACE, 0, 1, 1), answers.append)
        turn_until(loop, looking(hands, lambda: bool(answers)))
        assert answers[0] in {USUAL_CLASS, LITTLE_CLASS}


def pausing(sock: socket.socket, at: Surroundings) -> None:
    """A worker that pauses before it answers its class."""
    at.pause.wait()
    says_its_class(sock, at)


def test_a_worker_pauses_while_shards_are_busy_and_does_not_hang(
    loop: TidyLoop, hire: Hiring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealer_hands, "work", pausing)
    hands, answers = hire(Terms(Claim.SPARE, hung_ms=50, late_ms=600_000)), list[object]()
    hands.give_way(is_busy=True)
    begun_ms = monotonic_ms()
    hands.do(FORGET, answers.append)
    turn_until(loop, looking(hands, lambda: monotonic_ms() - begun_ms > 300))
    assert not answers
    hands.give_way(is_busy=False)
    turn_until(loop, looking(hands, lambda: bool(answers)))
    assert answers == [{"class": IDLE_CLASS}], "it was neither replaced nor given up"


def test_a_pause_ends_when_a_job_gets_late_or_space_short(
    loop: TidyLoop, hire: Hiring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealer_hands, "work", pausing)
    late, answers = hire(Terms(Claim.SPARE, late_ms=300)), list[object]()
    short = hire(Terms(Claim.SPARE, late_ms=600_000))
    for hands in (late, short):
        hands.give_way(is_busy=True)
        hands.do(FORGET, answers.append)
    turn_until(loop, looking(late, lambda: len(answers) == 1))
    short.hurry(is_short=True)
    turn_until(loop, looking(short, lambda: len(answers) == 2))
    assert answers[1] == {"class": USUAL_CLASS}


def test_a_job_that_waits_for_a_slow_store_is_left_to_its_worker(
    loop: TidyLoop, hire: Hiring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealer_hands, "work", hangs_on_odd_numbers)
    hands, answers = hire(Terms(Claim.SPARE, late_ms=60)), list[object]()
    hands.do(Seal(1, PLACE, 0, 1, 1), answers.append)
    pid, begun_ms = hands._pid, monotonic_ms()
    turn_until(loop, lambda: cpu_time(pid)[1] == "S")
    hands._jobs[0].kept_ms = 0
    turn_until(loop, looking(hands, lambda: monotonic_ms() - begun_ms > 400))
    assert (hands._pid, hands._wanted_claim()) == (pid, Claim.IDLE)


def test_a_sweep_comes_to_its_end_beside_cores_that_are_never_idle(
    loop: TidyLoop, hire: Hiring
) -> None:
    with busy_core():
        hands, answers = hire(Terms(Claim.SPARE, late_ms=400)), list[object]()
        hands.do(FORGET, answers.append)
        for page in (FindUnnamed(0, ""), FindOrphans([], 0, "")):
            hands.do(page, answers.append)
        turn_until(loop, looking(hands, lambda: len(answers) == 3))
    assert answers[0] == {}
    assert all(isinstance(each, Unnamed | Failed) for each in answers[1:])


def test_a_process_is_ready_while_one_of_its_threads_wants_a_core(loop: TidyLoop) -> None:
    stop = Event()

    def spin() -> None:
        while not stop.is_set():
            pass

    def ready_of_a_child() -> bool:
        return any("R" in cpu_time(pid)[1] for _ in range(100))

    pid = os.fork()
    if pid == 0:
        Thread(target=spin).start()
        Event().wait()
    try:
        turn_until(loop, ready_of_a_child)
        os.kill(pid, signal.SIGSTOP)
        turn_until(loop, lambda: "R" not in cpu_time(pid)[1])
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
