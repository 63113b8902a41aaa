"""Housekeeping in small jobs: one in hand at a time, a seal waits for one of them at most."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import pytest

from smq.app.sealer.chores import RETENTIONS_MAX, Chores
from smq.model.config import Config
from smq.model.now import Now
from smq.model.segments import SealedPartition
from smq.model.topic_settings import TopicSettings
from smq.wire.internal.form import Failed, Question
from smq.wire.internal.messages import (
    Compact,
    DropUnsealed,
    FindOrphans,
    FindUnnamed,
    ForgetUnfinished,
    Merge,
    Owner,
    PartitionState,
    Retain,
    Retained,
    Seal,
    Sweep,
    SweepPayloads,
    Unnamed,
)
from tests.garbage import garbage

CONFIG = Config(
    data_dir=Path("/nowhere"), shards=1, log_retention_check_interval_ms=1000, filer_sweep_ms=5000
)
SETTINGS = TopicSettings.of({"retention.ms": "100000"}, CONFIG)
OWNERS = [Owner("kafka", "orders", 1, [(1, 1)])]
BEGIN_MS = 1_000_000
SEAL = Seal(1, SealedPartition("kafka", "orders", 0, 0), 0, 1, 1)

A = TypeVar("A")


class FakeHands:
    """A worker's line of jobs; the test answers the first of them."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Question[Any], Callable[[Any], None]]] = []
        self.done: list[Question[Any]] = []

    def do(
        self,
        job: Question[A],
        answered: Callable[[A | Failed], None],
        *,
        is_urgent: bool = False,
    ) -> None:
        self.jobs.insert(min(1, len(self.jobs)) if is_urgent else len(self.jobs), (job, answered))

    def answer(self, answer: object = None) -> Question[Any]:
        """Do the first job; returns it."""
        job, answered = self.jobs.pop(0)
        self.done.append(job)
        answered(answer or _plain_answer(job))
        return job


def _plain_answer(job: Question[Any]) -> object:
    match job:
        case Retain():
            return Retained(deleted=[], has_more=False)
        case FindUnnamed() | FindOrphans():
            return Unnamed(files=[], after=None)
        case ForgetUnfinished():
            return {}
    return 0


class FakeKnown:
    def __init__(self, count: int) -> None:
        self.places = {
            number: (SealedPartition("kafka", "orders", number, number), SETTINGS, 1)
            for number in range(count)
        }

    def place(self, number: int) -> tuple[SealedPartition, TopicSettings, int] | None:
        return self.places.get(number)

    def owners(self) -> list[Owner]:
        return OWNERS


class Rig:
    def __init__(self, partitions: int, oldest_ms: int = BEGIN_MS) -> None:
        self.hands, self.known = FakeHands(), FakeKnown(partitions)
        self.step_ms = 0  # How far the wall clock is off.
        self.states = {
            number: PartitionState(number, 0, 7, 0, 9, 10, oldest_ms)
            for number in range(partitions)
        }
        self.problems: list[Failed] = []
        self.chores = Chores(
            self.hands,
            CONFIG,
            self.known,
            self.states,
            lambda answer: self.problems.append(answer) if isinstance(answer, Failed) else None,
        )

    def look(self, now_ms: int) -> None:
        self.chores.look(Now(now_ms, now_ms + self.step_ms))
        self.chores.invariants()

    def drain(self) -> list[type]:
        """Answer all there is; what was done, in order."""
        self.hands.done.clear()
        while self.hands.jobs:
            self.hands.answer()
            self.chores.invariants()
        return [type(job) for job in self.hands.done]


@pytest.fixture
def rig() -> Rig:
    return Rig(partitions=3)


def test_one_chore_is_in_hand_and_a_seal_comes_right_behind_it() -> None:
    rig = Rig(partitions=RETENTIONS_MAX)
    rig.look(BEGIN_MS)
    assert len(rig.hands.jobs) == 1
    rig.hands.do(SEAL, lambda _: None)
    rig.hands.answer()
    assert rig.hands.jobs[0][0] == SEAL
    assert len(rig.hands.jobs) == 2
    done = rig.drain()
    assert done.count(Retain) == RETENTIONS_MAX - 1
    assert {FindUnnamed, FindOrphans, ForgetUnfinished} <= set(done)


def test_a_look_queues_some_of_many_partitions_and_the_next_ones_the_rest() -> None:
    rig = Rig(partitions=2 * RETENTIONS_MAX + 1)
    counts = []
    for look in range(4):
        rig.look(BEGIN_MS + look)
        counts.append(rig.drain().count(Retain))
    assert counts == [RETENTIONS_MAX, RETENTIONS_MAX, 1, 0]


def test_chores_that_are_done_have_no_cycles(rig: Rig) -> None:
    """The collector looks only at what is young (smq.app.process.collector)."""
    rig.look(BEGIN_MS)
    rig.drain()
    with garbage() as left:
        for look in range(1, 101):
            rig.look(BEGIN_MS + 1000 * look)
            assert rig.drain().count(Retain) == 3
    assert len(left) < 100


@pytest.mark.parametrize("step_ms", [0, -3_600_000, 3_600_000])
def test_each_is_due_after_its_interval_and_not_while_the_last_is_not_done(
    rig: Rig, step_ms: int
) -> None:
    """Data fault 5: after an hour back all rounds slept until the wall clock had caught up."""
    rig.look(BEGIN_MS)
    rig.step_ms = step_ms
    rig.look(BEGIN_MS + 1000)
    sweeps = [ForgetUnfinished, FindUnnamed, FindOrphans]
    assert rig.drain() == [Retain] * 3 + sweeps + [Merge] * 3
    rig.look(BEGIN_MS + 1999)  # The sweep is over: the next one is due an interval later.
    assert rig.drain() == []
    rig.look(BEGIN_MS + 2000)
    assert rig.drain() == [Retain] * 3 + [Merge] * 3
    rig.look(BEGIN_MS + 6998)
    assert rig.drain() == [Retain] * 3 + [Merge] * 3
    rig.look(BEGIN_MS + 6999)
    assert rig.drain() == sweeps


def test_a_sweep_goes_on_from_page_to_page_with_other_chores_in_between() -> None:
    rig = Rig(partitions=0)
    rig.look(BEGIN_MS)
    rig.hands.answer()
    assert rig.hands.answer(Unnamed([], "a")) == FindUnnamed(BEGIN_MS - 5000, "")
    rig.states[1] = PartitionState(1, 0, 7, 0, 9, 10, BEGIN_MS)
    rig.known.places[1] = (SealedPartition("kafka", "orders", 1, 1), SETTINGS, 1)
    rig.look(BEGIN_MS + 1000)  # Retention is due again, whatever the sweep is at.
    assert rig.hands.answer() == FindOrphans(OWNERS, BEGIN_MS - 5000, "")
    assert rig.hands.answer(Unnamed([], "b")) == FindUnnamed(BEGIN_MS - 5000, "a")
    assert rig.drain() == [Retain, FindUnnamed, Merge]
    assert rig.hands.done[-2] == FindUnnamed(BEGIN_MS - 5000, "b")


def test_a_file_is_deleted_when_two_sweeps_an_interval_apart_have_seen_it_unnamed() -> None:
    """Data fault 8: a file's own time says nothing, as a clock may be set."""
    rig = Rig(partitions=0)

    def sweep(now_ms: int, *files: str) -> list[Sweep]:
        rig.look(now_ms)
        rig.hands.done.clear()
        while rig.hands.jobs:
            is_find = isinstance(rig.hands.jobs[0][0], FindUnnamed)
            rig.hands.answer(Unnamed(list(files), None) if is_find else None)
        rig.look(now_ms)
        return [job for job in rig.hands.done if isinstance(job, Sweep)]

    assert sweep(BEGIN_MS, "a", "b") == []
    assert sweep(BEGIN_MS + 4999, "a", "b") == [], "it is not due"
    assert sweep(BEGIN_MS + 5000, "a", "c") == [Sweep(["a"], BEGIN_MS)]
    assert sweep(BEGIN_MS + 10_000, "b", "c") == [Sweep(["c"], BEGIN_MS + 5000)]


def test_payloads_are_swept_when_two_sweeps_have_found_them_to_be_orphans() -> None:
    """Data fault 8: a clock that is ahead for a moment makes all payloads look old."""
    rig = Rig(partitions=0)
    for now_ms, swept in ((BEGIN_MS, False), (BEGIN_MS + 5000, True)):
        rig.look(now_ms)
        rig.hands.done.clear()
        while rig.hands.jobs:
            is_find = isinstance(rig.hands.jobs[0][0], FindOrphans)
            rig.hands.answer(Unnamed(["a"], None) if is_find else None)
        assert (SweepPayloads(OWNERS, ["a"], 5000) in rig.hands.done) == swept
        rig.look(now_ms)


def test_an_unfinished_write_is_idle_when_nothing_touched_it_by_our_clock() -> None:
    """Data fault 8: a day of the wall clock's ended uploads that went on."""
    rig = Rig(partitions=0)
    idle_ms = CONFIG.filer_unfinished_ms

    def sweep(now_ms: int, there: dict[str, int]) -> dict[str, int]:
        rig.look(now_ms)
        job = rig.hands.answer(there)
        rig.drain()
        rig.look(now_ms)
        assert isinstance(job, ForgetUnfinished)
        return job.idle

    rig.step_ms = 10 * idle_ms
    assert sweep(BEGIN_MS, {"a": 1, "b": 1}) == {}
    assert sweep(BEGIN_MS + idle_ms - 1, {"a": 1, "b": 2}) == {}
    assert sweep(BEGIN_MS + idle_ms - 1 + 5000, {"b": 2}) == {"a": 1}
    assert sweep(BEGIN_MS + 2 * idle_ms + 10_000, {}) == {"b": 2}


def test_a_failed_sweep_is_reported_and_starts_over_at_the_next_look() -> None:
    rig = Rig(partitions=0)
    rig.look(BEGIN_MS)
    rig.hands.answer()
    rig.hands.answer(Failed("the filer is away"))
    assert rig.drain() == [FindOrphans]
    assert rig.problems == [Failed("the filer is away")]
    rig.look(BEGIN_MS)
    rig.look(BEGIN_MS + 5000)
    rig.drain()
    assert [job.after for job in rig.hands.done if isinstance(job, FindUnnamed)] == [""]


def test_a_partition_with_more_to_delete_stands_in_line_again(rig: Rig) -> None:
    rig.look(BEGIN_MS)
    first = rig.hands.answer(Retained(["x"], has_more=True))
    rig.states[0] = rig.states[0]._replace(start=8)
    rig.drain()
    state = PartitionState(0, 0, 7, 0, 9, 10, BEGIN_MS)
    assert first == Retain(1, rig.known.places[0][0], SETTINGS, state)
    retained = [job for job in rig.hands.done if isinstance(job, Retain)]
    assert [job.place.number for job in retained] == [1, 2, 0]
    assert [job.state.start for job in retained] == [7, 7, 8]


def test_a_partition_with_more_to_merge_stands_in_line_again(rig: Rig) -> None:
    rig.look(BEGIN_MS)
    while not isinstance(rig.hands.jobs[0][0], Merge):
        rig.hands.answer()
    assert rig.hands.answer(5) == Merge(rig.known.places[0][0], SETTINGS)
    rig.drain()
    merged = [job.place.number for job in rig.hands.done if isinstance(job, Merge)]
    assert merged == [1, 2, 0]


def compact(rig: Rig, *numbers: int) -> list[Compact]:
    """Make these partitions compacted ones; returns the steps of their passes."""
    compacted = TopicSettings.of({"cleanup.policy": "compact"}, CONFIG)
    for number in numbers:
        place, _, node = rig.known.places[number]
        rig.known.places[number] = place, compacted, node
    return [Compact(1, rig.known.places[number][0], compacted) for number in numbers]


def until(rig: Rig, kind: type) -> None:
    while not isinstance(rig.hands.jobs[0][0], kind):
        rig.hands.answer()


def test_a_compacted_partition_is_compacted_to_the_end_before_another_one(rig: Rig) -> None:
    job, other = compact(rig, 0, 1)
    rig.look(BEGIN_MS)
    for answer in (True, True, Failed("it is damaged")):
        until(rig, Compact)
        assert rig.hands.answer(answer) == job
    rig.drain()
    assert [each for each in rig.hands.done if isinstance(each, Compact)] == [other]
    assert sorted(job.place.number for job in rig.hands.done if isinstance(job, Merge)) == [0, 1, 2]


def test_others_are_retained_merged_and_swept_between_two_steps_of_a_compaction(rig: Rig) -> None:
    """data fault 15: the next step of a pass stood at the front of the line, so all others waited
    for its end, and no round began before."""
    job, waiting = compact(rig, 0, 1)
    rig.look(BEGIN_MS)
    rig.hands.done.clear()
    now_ms, steps = BEGIN_MS, 40
    for _ in range(steps):
        until(rig, Compact)
        now_ms += 1000
        rig.look(now_ms)
        assert rig.hands.answer(answer=True) == job
        rig.chores.invariants()
    kinds = [type(each) for each in rig.hands.done]
    assert kinds.count(FindUnnamed) >= 2
    retained = [each.place.number for each in rig.hands.done if isinstance(each, Retain)]
    merged = {each.place.number for each in rig.hands.done if isinstance(each, Merge)}
    assert retained.count(1) >= 4  # It waits for its pass, and is retained meanwhile.
    assert retained.count(2) >= 4
    assert merged == {2}
    assert all(Compact in pair for pair in pairwise(kinds[10:]))  # By turns.
    rig.drain()
    assert waiting in rig.hands.done


def test_a_round_over_thousands_of_deleted_topics_ends() -> None:
    """data fault 31: a chore that found its topic gone called the one that had called it."""
    rig = Rig(partitions=20_000)
    rig.look(BEGIN_MS)
    rig.known.places.clear()
    assert rig.drain() == [Retain, ForgetUnfinished, FindUnnamed, FindOrphans]


def test_jobs_that_fail_at_once_do_not_pile_up() -> None:
    """data fault 31, with a worker that answers while it is asked."""

    class Broken(FakeHands):
        def do(
            self,
            job: Question[A],
            answered: Callable[[A | Failed], None],
            *,
            is_urgent: bool = False,
        ) -> None:
            self.done.append(job)
            answered(Failed("no worker starts"))

    rig = Rig(partitions=0)
    hands = Broken()
    known = FakeKnown(RETENTIONS_MAX)
    chores = Chores(hands, CONFIG, known, rig.states, lambda _: None)
    rig.states |= {n: PartitionState(n, 0, 7, 0, 9, 10, BEGIN_MS) for n in known.places}
    chores.look(Now(BEGIN_MS, BEGIN_MS))
    chores.invariants()
    assert [type(job) for job in hands.done].count(Retain) == RETENTIONS_MAX


def test_a_failed_retain_or_merge_is_reported_and_tried_at_the_next_look(rig: Rig) -> None:
    rig.look(BEGIN_MS)
    rig.hands.answer(Failed("the filer is away"))
    while not isinstance(rig.hands.jobs[0][0], Merge):
        rig.hands.answer()
    rig.hands.answer(Failed("it is damaged"))
    assert rig.drain() == [Merge]
    assert rig.problems == [Failed("the filer is away"), Failed("it is damaged")]
    rig.look(BEGIN_MS + 1000)
    assert rig.drain() == [Retain] * 3 + [Merge] * 3


def test_overdue_records_are_dropped_before_retention() -> None:
    rig = Rig(partitions=3, oldest_ms=1)
    rig.hands.do(SEAL, lambda _: None)
    rig.look(BEGIN_MS)
    dropped = [type(job) for job, _ in rig.hands.jobs]
    assert dropped == [Seal, DropUnsealed, DropUnsealed, DropUnsealed, Retain]
    rig.drain()


def test_topics_that_have_gone_meanwhile_are_left_out(rig: Rig) -> None:
    del rig.known.places[0]
    rig.look(BEGIN_MS)
    del rig.known.places[2]
    done = rig.drain()
    assert done.count(Retain) == 1
    rig.look(BEGIN_MS + 1000)
    assert rig.drain() == [Retain, Merge]
