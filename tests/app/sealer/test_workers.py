"""The sealer's workers: who does which job, and reads beside one that hangs."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from smq.app.sealer import hands as sealer_hands
from smq.app.sealer.workers import (
    READERS_MAX,
    SEALERS_MAX,
    JobTimeouts,
    Readers,
    Sealers,
    sealers_of,
)
from smq.model.config import Config
from smq.model.topic_settings import TopicSettings
from smq.wire.internal.form import Failed
from smq.wire.internal.messages import Compact, DropUnsealed, FindPayloads, Seal
from smq.wire.internal.reads import Cold, Inline, MakeInline
from tests.app.fake_peers import TidyLoop, turn_until
from tests.app.sealer.test_hands import (
    FORGET,
    PLACE,
    Answers,
    hangs_on_odd_numbers,
    read_by,
    surroundings,
)

SETTINGS = TopicSettings.of({}, Config(shards=1))


@pytest.fixture
def loop() -> Iterator[TidyLoop]:
    loop = TidyLoop()
    yield loop
    loop.close()


def test_one_processor_of_two_is_left_to_producers() -> None:
    assert [sealers_of(count) for count in (1, 2, 3, 4, 6, 64)] == [1, 1, 1, 2, 3, SEALERS_MAX]


class LineOfJobs:
    """A worker that only notes what it is to do."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.jobs: list[object] = []
        self.is_short = self.gives_way = False

    def do(self, question: object, _answered: object, *, is_urgent: bool = False) -> None:
        self.jobs.append((question, is_urgent))

    def hurry(self, *, is_short: bool) -> None:
        self.is_short = is_short

    def give_way(self, *, is_busy: bool) -> None:
        self.gives_way = is_busy


def test_partitions_are_sealed_side_by_side_and_each_by_one_worker() -> None:
    def hire(name: str) -> Any:
        return LineOfJobs(name)

    sealers = Sealers("seal", 2, hire)
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
    sealers.hurry(is_short=True)
    sealers.give_way(is_busy=True)
    assert all(each.is_short and each.gives_way for each in (first, second))


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
