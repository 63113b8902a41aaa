"""Housekeeping in small jobs: one in hand at a time, a seal waits for one of them at most."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from smq.app.sealer.chores import Chores
from smq.model.config import Config
from smq.model.topic_configs import TopicSettings
from smq.sealer.payloads import Owner
from smq.sealer.plan import PartitionState
from smq.sealer.ports import Place

CONFIG = Config(
    data_dir=Path("/nowhere"), shards=1, log_retention_check_interval_ms=1000, filer_sweep_ms=5000
)
SETTINGS = TopicSettings.of({"retention.ms": "100000"}, CONFIG)
OWNERS = [Owner("kafka", "orders", 1, [(1, 1)])]
BEGIN_MS = 1_000_000


class FakeHands:
    """A worker's line of jobs; the test answers the first of them."""

    def __init__(self) -> None:
        self.jobs: list[tuple[dict[str, Any], Callable[[dict[str, Any]], None]]] = []
        self.done: list[dict[str, Any]] = []

    def do(
        self,
        job: dict[str, Any],
        answered: Callable[[dict[str, Any]], None],
        *,
        is_urgent: bool = False,
    ) -> None:
        self.jobs.insert(min(1, len(self.jobs)) if is_urgent else len(self.jobs), (job, answered))

    def answer(self, answer: dict[str, Any] | None = None) -> dict[str, Any]:
        """Do the first job; returns it."""
        job, answered = self.jobs.pop(0)
        self.done.append(job)
        answered(answer or _plain_answer(job["do"]))
        return job


def _plain_answer(do: str) -> dict[str, Any]:
    if do == "retain":
        return {"ok": {"deleted": [], "has_more": False}}
    if do == "forget_unfinished":
        return {"ok": 0}
    return {"ok": 0} if do in {"seal", "drop_unsealed"} else {"ok": {"swept": [], "after": None}}


class FakeKnown:
    def __init__(self, count: int) -> None:
        self.places = {
            number: (Place("kafka", "orders", number, number), SETTINGS, 1)
            for number in range(count)
        }

    def owners(self) -> list[Owner]:
        return OWNERS


class Rig:
    def __init__(self, partitions: int, oldest_ms: int = BEGIN_MS) -> None:
        self.hands, self.known = FakeHands(), FakeKnown(partitions)
        self.states = {
            number: PartitionState(number, 0, 7, 0, 9, 10, oldest_ms)
            for number in range(partitions)
        }
        self.problems: list[dict[str, Any]] = []
        self.chores = Chores(
            self.hands,  # type: ignore[arg-type]
            CONFIG,
            self.known,
            self.states,
            lambda answer: self.problems.append(answer) if "error" in answer else None,
        )

    def look(self, now_ms: int) -> None:
        self.chores.look(now_ms)
        self.chores.invariants()

    def drain(self) -> list[str]:
        """Answer all there is; what was done, in order."""
        self.hands.done.clear()
        while self.hands.jobs:
            self.hands.answer()
            self.chores.invariants()
        return [job["do"] for job in self.hands.done]


@pytest.fixture
def rig() -> Rig:
    return Rig(partitions=3)


def test_one_chore_is_in_hand_and_a_seal_comes_right_behind_it() -> None:
    rig = Rig(partitions=1000)
    rig.look(BEGIN_MS)
    assert len(rig.hands.jobs) == 1
    rig.hands.do({"do": "seal"}, lambda _: None)
    rig.hands.answer()
    assert rig.hands.jobs[0][0]["do"] == "seal"
    assert len(rig.hands.jobs) == 2
    done = rig.drain()
    assert done.count("retain") == 999
    assert {"sweep", "sweep_payloads", "forget_unfinished"} <= set(done)


def test_each_is_due_after_its_interval_and_not_while_the_last_is_not_done(rig: Rig) -> None:
    rig.look(BEGIN_MS)
    rig.look(BEGIN_MS + 60_000)
    sweeps = ["forget_unfinished", "sweep", "sweep_payloads"]
    assert rig.drain() == ["retain"] * 3 + sweeps
    rig.look(BEGIN_MS + 999)
    assert rig.drain() == []
    rig.look(BEGIN_MS + 1000)
    assert rig.drain() == ["retain"] * 3
    rig.look(BEGIN_MS + 5000)
    assert rig.drain() == ["retain"] * 3 + sweeps


def test_a_sweep_goes_on_from_page_to_page_with_other_chores_in_between() -> None:
    rig = Rig(partitions=0)
    rig.look(BEGIN_MS)
    rig.hands.answer()
    assert rig.hands.answer({"ok": {"swept": [], "after": "a"}})["after"] == ""
    rig.states[1] = PartitionState(1, 0, 7, 0, 9, 10, BEGIN_MS)
    rig.known.places[1] = (Place("kafka", "orders", 1, 1), SETTINGS, 1)
    rig.look(BEGIN_MS + 1000)  # Retention is due again, whatever the sweep is at.
    assert rig.hands.answer()["owners"] == OWNERS
    page = rig.hands.answer({"ok": {"swept": [], "after": "b"}})
    assert (page["do"], page["after"], page["before_ms"]) == ("sweep", "a", BEGIN_MS - 5000)
    assert rig.drain() == ["retain", "sweep"]
    assert rig.hands.done[-1]["after"] == "b"


def test_a_sweep_that_fails_is_told_of_and_begun_anew_the_next_time() -> None:
    rig = Rig(partitions=0)
    rig.look(BEGIN_MS)
    rig.hands.answer()
    rig.hands.answer({"error": "the filer is away"})
    assert rig.drain() == ["sweep_payloads"]
    assert rig.problems == [{"error": "the filer is away"}]
    rig.look(BEGIN_MS + 5000)
    rig.drain()
    assert [job["after"] for job in rig.hands.done if job["do"] == "sweep"] == [""]


def test_a_partition_with_more_to_delete_stands_in_line_again(rig: Rig) -> None:
    rig.look(BEGIN_MS)
    first = rig.hands.answer({"ok": {"deleted": ["x"], "has_more": True}})
    rig.states[0] = rig.states[0]._replace(start=8)
    rig.drain()
    retained = [job["place"].number for job in rig.hands.done if job["do"] == "retain"]
    assert retained == [1, 2, 0]
    assert first["shard_start"] == 7
    assert [job["shard_start"] for job in rig.hands.done if job["do"] == "retain"] == [7, 7, 8]


def test_what_is_overdue_is_dropped_at_once_and_before_it_is_retained() -> None:
    rig = Rig(partitions=3, oldest_ms=1)
    rig.hands.do({"do": "seal"}, lambda _: None)
    rig.look(BEGIN_MS)
    dropped = [job["do"] for job, _ in rig.hands.jobs]
    assert dropped == ["seal", "drop_unsealed", "drop_unsealed", "drop_unsealed", "retain"]
    rig.drain()


def test_topics_that_have_gone_meanwhile_are_left_out(rig: Rig) -> None:
    del rig.known.places[0]
    rig.look(BEGIN_MS)
    del rig.known.places[2]
    done = rig.drain()
    assert done.count("retain") == 1
    rig.look(BEGIN_MS + 1000)
    assert rig.drain() == ["retain"]
