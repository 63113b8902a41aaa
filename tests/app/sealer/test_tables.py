"""Lake tables are published as segments land, one at a time, and failures are retried later."""

from dataclasses import dataclass, field

from smq.app.sealer.tables import INTERVAL_MS, RETRY_MS, RETRY_MS_MAX, TableKey, Tables
from smq.wire.internal.form import Failed
from smq.wire.internal.messages import PublishTable, WithdrawTable
from tests.app.sealer.test_chores import FakeHands

ORDERS, CLICKS = TableKey("kafka", "orders", "delta"), TableKey("kafka", "clicks", "iceberg")
BEGIN_MS, CHECK_MS = 1_000_000, 600_000


def job_of(name: TableKey, number: int) -> PublishTable:
    return PublishTable("id", *name, [number], 1000)


@dataclass
class FakeKnown:
    version: int = 1
    tables: dict[TableKey, PublishTable] = field(default_factory=dict)
    table_of: dict[int, TableKey] = field(default_factory=dict)


class Setting:
    """Two topics with tables, and the time."""

    def __init__(self) -> None:
        self.hands, self.now_ms = FakeHands(), BEGIN_MS
        self.known = FakeKnown(
            tables={ORDERS: job_of(ORDERS, 1), CLICKS: job_of(CLICKS, 2)},
            table_of={1: ORDERS, 2: CLICKS},
        )
        self.published: list[TableKey] = []
        self.problems: list[object] = []
        self.tables = Tables(
            self.hands, self.known, lambda: self.published, self.problems.append, CHECK_MS
        )

    def look(self, later_ms: int = 0) -> None:
        self.now_ms += later_ms
        self.tables.look(self.now_ms)

    def answer(self, answer: object) -> str:
        """Answer the job in hand; the topic that it was for."""
        job = self.hands.answer(answer)
        assert isinstance(job, PublishTable | WithdrawTable)
        return job.topic

    def settle(self) -> None:
        """Have all done, and wait until a table may be published again."""
        self.look()
        while self.hands.jobs:
            self.hands.jobs[0][1](False)
            self.hands.jobs.pop(0)
            self.look()
        self.now_ms += INTERVAL_MS


def test_a_start_checks_every_table_one_after_the_other() -> None:
    at = Setting()
    at.look()
    assert len(at.hands.jobs) == 1
    [(first, _)] = at.hands.jobs
    assert isinstance(first, PublishTable)
    assert first.check
    at.settle()
    assert {each.topic for each in at.known.tables.values()} == {"orders", "clicks"}
    at.look()
    assert at.hands.jobs == []


def test_a_change_has_the_table_of_its_topic_published() -> None:
    at = Setting()
    at.settle()
    at.tables.changed(1)
    at.tables.changed(99)
    at.look()
    [(job, _)] = at.hands.jobs
    assert job == job_of(ORDERS, 1)
    at.tables.changed(1)  # While it is published: once more, after a while.
    at.hands.jobs.pop()[1](False)
    at.look()
    assert at.hands.jobs == []
    at.look(INTERVAL_MS)
    assert len(at.hands.jobs) == 1


def test_a_topic_with_many_files_left_is_published_again_at_once() -> None:
    at = Setting()
    at.settle()
    at.tables.changed(2)
    at.look()
    assert at.answer(True) == "clicks"
    at.look()
    assert at.answer(True) == "clicks"


def test_a_failure_is_said_and_retried_later_and_later() -> None:
    at = Setting()
    at.settle()
    at.tables.changed(1)
    at.look()
    at.hands.jobs.pop()[1](Failed("the catalog is away"))
    at.look()
    assert at.hands.jobs == []
    at.look(RETRY_MS)
    at.hands.jobs.pop()[1](Failed("the catalog is away"))
    at.look(RETRY_MS)
    assert at.hands.jobs == [], "the second wait is longer"
    at.look(RETRY_MS)
    for _ in range(30):
        at.hands.jobs.pop()[1](Failed("the catalog is away"))
        at.look(RETRY_MS_MAX)
        job = at.hands.jobs[0][0]
        assert isinstance(job, PublishTable)
        assert job.check
    assert any(isinstance(each, Failed) for each in at.problems)


def test_a_failing_table_does_not_hold_up_another() -> None:
    at = Setting()
    at.settle()
    at.tables.changed(1)
    at.look()
    at.hands.jobs.pop()[1](Failed("its catalog is away"))
    at.tables.changed(2)
    at.look()
    assert [job for job, _ in at.hands.jobs] == [job_of(CLICKS, 2)]


def test_all_are_checked_now_and_then() -> None:
    at = Setting()
    at.settle()
    at.look(CHECK_MS)
    [(job, _)] = at.hands.jobs
    assert isinstance(job, PublishTable)
    assert job.check


def test_a_table_whose_topic_is_gone_or_wants_none_is_withdrawn() -> None:
    at = Setting()
    at.published = [ORDERS, CLICKS]
    at.settle()
    del at.known.tables[ORDERS]
    at.known.table_of.pop(1)
    at.known.version += 1
    at.look()
    [(job, answered)] = at.hands.jobs
    assert job == WithdrawTable(*ORDERS)
    at.hands.jobs.clear()
    answered(Failed("the catalog is away"))
    at.look(RETRY_MS)
    assert [job for job, _ in at.hands.jobs] == [WithdrawTable(*ORDERS)]
    at.published = [CLICKS]
    at.hands.jobs.pop()[1](True)
    at.look(INTERVAL_MS)
    assert at.hands.jobs == []
