"""Workers of the sealer: hired, dying, leaving when idle, and replaced when they hang."""

import inspect
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any, cast

import pytest

from smq.app.sealer import worker as sealer_worker, workers as sealer_hands
from smq.app.sealer.worker import Surroundings
from smq.app.sealer.workers import (
    READERS_MAX,
    SEALERS_MAX,
    Hands,
    JobTimeouts,
    Readers,
    Sealers,
    sealers_of,
)
from smq.filer.location import Location
from smq.model.config import Config
from smq.model.segments import SealedPartition
from smq.model.topic_settings import TopicSettings
from smq.wire.internal.form import Failed, decode_question, encode_answer
from smq.wire.internal.frames import InternalReader
from smq.wire.internal.messages import (
    FOR_WORKER,
    Compact,
    DropUnsealed,
    FindPayloads,
    ForgetUnfinished,
    Seal,
)
from smq.wire.internal.reads import BatchFile, Cold, Inline, MakeInline
from tests.app.fake_peers import TidyLoop, turn_until

Answers = dict[str, Any]
FORGET = ForgetUnfinished(idle={})

PLACE = SealedPartition("kafka", "orders", 0, 1)
SETTINGS = TopicSettings.of({}, Config(shards=1))


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


def test_one_processor_of_two_is_left_to_producers() -> None:
    assert [sealers_of(count) for count in (1, 2, 3, 4, 6, 64)] == [1, 1, 1, 2, 3, SEALERS_MAX]


class LineOfJobs:
    """A worker that only notes what it is to do."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.jobs: list[object] = []

    def do(self, question: object, _answered: object, *, is_urgent: bool = False) -> None:
        self.jobs.append((question, is_urgent))


def test_partitions_are_sealed_side_by_side_and_each_by_one_worker(
    loop: TidyLoop, tmp_path: Path
) -> None:
    def hire(_loop: object, name: str, _at: object, _hung_ms: int) -> Any:
        return LineOfJobs(name)

    sealers = Sealers(loop, "seal", surroundings(tmp_path), 2, hire)
    jobs = {
        number: [
            Seal(1, place, 0, 1, 1),
            Compact(1, place, SETTINGS),
            DropUnsealed(1, place, SETTINGS),
        ]
        for number, place in ((each, PLACE._replace(number=each)) for each in (4, 7))
    }
    for job in (*jobs[4], *jobs[7], FORGET):
        sealers.do(job, lambda _answer: None, is_urgent=isinstance(job, DropUnsealed))
    first, second = cast("list[Any]", sealers.hands)
    assert (first.name, second.name) == ("seal", "seal-2")
    assert [job for job, _ in first.jobs] == [*jobs[4], FORGET]
    assert [job for job, _ in second.jobs] == jobs[7]
    assert [is_urgent for _, is_urgent in second.jobs] == [False, False, True]


def test_a_worker_leaves_when_there_is_nothing_to_do(
    loop: TidyLoop, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealer_hands, "work", lambda sock, at: sealer_worker.work(sock, at, 0.05))
    answers: list[dict[str, int] | Failed] = []
    for _ in range(2):
        hands.do(FORGET, answers.append)
        turn_until(loop, lambda: hands._pid == 0)
    assert answers == [{}, {}]


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
    monkeypatch.setattr(sealer_hands, "processor_ticks", lambda _pid: next(ticks))
    hands._hung_ms = 0
    hands.do(Seal(1, PLACE, 0, 1, 1), answers.append)
    for _ in range(3):
        hands.look()
    assert answers == []
    monkeypatch.setattr(sealer_hands, "processor_ticks", lambda _pid: 0)
    for _ in range(2):
        hands.look()
    assert answers == [Failed("a worker hangs ('seal', partition 1): it is replaced")]


@pytest.fixture
def readers(
    loop: TidyLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Readers]]:
    """Makes them with some patience; what hangs is made by `hangs_on_odd_numbers`."""
    monkeypatch.setattr(sealer_hands, "work", hangs_on_odd_numbers)
    made: list[Readers] = []

    def make(**patience: int) -> Readers:
        made.append(Readers(loop, "cold", surroundings(tmp_path), JobTimeouts(**patience)))
        return made[-1]

    yield make
    for each in made:
        each.stop()


def ask(readers: Readers, answers: Answers, name: str, number: int) -> None:
    readers.do(Cold(number, 0, 1), partial(answers.__setitem__, name))


def looking_until(loop: TidyLoop, readers: Readers, answers: Answers, count: int) -> None:
    def enough() -> bool:
        readers.look()
        return len(answers) == count

    turn_until(loop, enough)


def test_one_worker_reads_while_it_is_quick(loop: TidyLoop, readers: Any) -> None:
    quick, answers = readers(slow_ms=60_000), Answers()
    for number in (2, 4, 6):
        ask(quick, answers, str(number), number)
    looking_until(loop, quick, answers, 3)
    assert answers == {name: read_by("cold", int(name)) for name in ("2", "4", "6")}


def test_a_read_that_hangs_holds_up_its_own_partition_and_no_other(
    loop: TidyLoop, readers: Any
) -> None:
    slow, answers = readers(slow_ms=1), Answers()
    ask(slow, answers, "hangs", 1)
    ask(slow, answers, "the same partition", 1)
    for number in (2, 4, 6):
        ask(slow, answers, str(number), number)
    looking_until(loop, slow, answers, 3)
    assert {name: answer.length for name, answer in answers.items()} == {"2": 2, "4": 4, "6": 6}
    assert {answer.path for answer in answers.values()} <= {"cold-2", "cold-3"}


def test_a_worker_that_hangs_is_replaced(loop: TidyLoop, readers: Any) -> None:
    strict, answers = readers(slow_ms=60_000, hung_ms=200), Answers()
    ask(strict, answers, "hangs", 1)
    pid = strict._hands[0]._pid
    ask(strict, answers, "waits", 2)
    looking_until(loop, strict, answers, 2)
    sentence = "a worker hangs ('cold', partition 1): it is replaced"
    assert answers == {"hangs": Failed(sentence), "waits": read_by("cold", 2)}

    def is_reaped() -> bool:
        strict.look()
        return not strict._hands[0]._dismissed

    turn_until(loop, is_reaped)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_there_are_so_many_workers_and_no_more(loop: TidyLoop, readers: Any) -> None:
    limited, answers = readers(slow_ms=0, wait_ms=200), Answers()
    for number in range(1, 2 * READERS_MAX + 2, 2):
        ask(limited, answers, str(number), number)
    ask(limited, answers, "waits", 2)
    looking_until(loop, limited, answers, 2)
    late = f"partition {2 * READERS_MAX + 1}"
    sentence = f"{late} is not read: other reads are slow"
    assert answers[late.removeprefix("partition ")] == Failed(sentence)
    assert answers["waits"] == Failed("partition 2 is not read: other reads are slow")
    assert len(limited._hands) == READERS_MAX


def test_payloads_and_inline_deliveries_are_read_beside_what_hangs(
    loop: TidyLoop, readers: Any
) -> None:
    slow, answers = readers(slow_ms=1), Answers()
    ask(slow, answers, "hangs", 1)
    slow.do(
        MakeInline(1, PLACE, Inline(PLACE.number, 0, 1, 1)),
        partial(answers.__setitem__, "the same"),
    )
    slow.do(FindPayloads(["a"]), partial(answers.__setitem__, "payload"))
    looking_until(loop, slow, answers, 1)
    assert answers == {"payload": {"cold-2": None}}
