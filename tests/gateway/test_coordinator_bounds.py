"""No content holds the coordinator: small requests about the most that may have been put there."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.coordinator_dispatch import dispatch as dispatch_in_coordinator
from gateway.parts import Parts
from smq.coordinator.group_events import Commit
from smq.coordinator.transactions.orders import MarkerOrder
from smq.model.segments import Segment
from smq.store.rows import CommittedOffset
from smq.wire.generated.delete_groups import DeleteGroupsRequest
from smq.wire.generated.delete_topics import DeleteTopicsRequest, DeleteTopicState
from smq.wire.generated.end_txn import EndTxnRequest
from tests.gateway.coordinator_bench import NODES, CoordinatorBench, relayed
from tests.gateway.groups import make_topic
from tests.gateway.test_bounds import CALLS_MAX, Meter

PARTITIONS, GROUPS, NAMES = 5_000, 20, 50_000
# Of SQLite in a turn: a tenth of a microsecond each, and the writing of pages.
INSTRUCTIONS_MAX = 50_000
SAMPLE = 100  # Instructions between two looks.


@pytest.fixture
def full(tmp_path: Path) -> Iterator[CoordinatorBench]:
    """One topic, and in it the most that others may have put there."""
    bench = CoordinatorBench(tmp_path / "store.sqlite")
    wide, store = make_topic(bench, "wide", PARTITIONS), bench.store
    offsets = dict.fromkeys(wide.partition_numbers, CommittedOffset(7, 1, "", 0))
    store.commit_offsets("committed", offsets)
    bench.coordinator.groups.handle("committed", Commit("", None, -1), bench.now)
    groups = frozenset(f"g{number}" for number in range(GROUPS))
    transactions, numbers = bench.coordinator.transactions, frozenset(wide.partition_numbers)
    producer = transactions.begin("t", 60_000, None, bench.now)
    transactions.add("t", producer, bench.now, numbers=numbers, groups=groups)
    for group_id in groups:
        transactions.put_offsets("t", group_id, offsets)
    ids = [f"{number:08}" for number in range(NAMES)]
    line = Segment(wide.partition_numbers[0], 0, 1, "raw", "a", 1, 1, 1, 1, 1, 0, 1)
    store.manifest.name_payloads("a", ids)
    store.manifest.commit_segments([line])
    store.commit()
    yield bench
    bench.close()


class ContentMeter(Meter):
    """Counts SQLite's instructions too: to Python a statement is one call."""

    def __init__(self, bench: CoordinatorBench) -> None:
        super().__init__(counts=True)
        self.looks, self.looks_max, self.turns = 0, 0, 0
        connection = bench.store.manifest._database._connection
        connection.set_progress_handler(self._look, SAMPLE)

    def _look(self) -> int:
        self.looks += 1
        return 0

    def step(self, work: Callable[[], Any]) -> Any:
        """Do some work of one turn."""
        self.looks, self.turns = 0, self.turns + 1
        try:
            return super().step(work)
        finally:
            self.looks_max = max(self.looks_max, self.looks)


def finish_turns(meter: ContentMeter, bench: CoordinatorBench, parts: Parts | None) -> None:
    """Turns until nothing is due: a step of the answer, ticks, a report of each order."""
    transactions, endings = bench.coordinator.transactions, bench.coordinator.transactions.endings
    of = bench.coordinator
    with_work = of.groups, of.offsets, transactions, of.cleaning
    is_answered = parts is None
    while True:
        if not is_answered:
            assert parts is not None
            is_answered = meter.step(parts.step)
        due = [each for each in with_work if each.next_wake_ms() <= bench.now.monotonic_ms]
        for each in due:
            meter.step(lambda: each.tick(bench.now))  # noqa: B023
        orders = transactions.take_orders()
        for order in orders:
            assert isinstance(order, MarkerOrder)
            meter.step(lambda: endings.marked(order, order.numbers, bench.now))  # noqa: B023
        bench.store.commit()
        if is_answered and not due and not orders:
            return


@pytest.mark.parametrize(
    ("name", "version", "request_"),
    [
        (
            "EndTxn",
            5,
            EndTxnRequest(transactional_id="t", producer_id=0, producer_epoch=0, committed=True),
        ),
        (
            "EndTxn",
            5,
            EndTxnRequest(transactional_id="t", producer_id=0, producer_epoch=0, committed=False),
        ),
        ("DeleteGroups", 2, DeleteGroupsRequest(groups_names=["committed"])),
        ("DeleteTopics", 6, DeleteTopicsRequest(topics=[DeleteTopicState(name="wide")])),
    ],
    ids=["commit", "abort", "DeleteGroups", "DeleteTopics"],
)
def test_no_content_holds_the_coordinator(
    full: CoordinatorBench, name: str, version: int, request_: Any
) -> None:
    """data fault 13: a small request about much: 0.1 to 1.1 s in one turn."""
    meter = ContentMeter(full)
    question = relayed(name, version, request_)
    asked = meter.step(
        lambda: dispatch_in_coordinator(question, full.coordinator, NODES, full.now, 1)
    )
    finish_turns(meter, full, asked.response if isinstance(asked.response, Parts) else None)
    assert meter.turns > 10
    assert meter.calls_max <= CALLS_MAX
    assert meter.looks_max * SAMPLE <= INSTRUCTIONS_MAX
    database = full.store.manifest._database
    left = {
        table: database.rows(f"SELECT count(*) FROM {table}")[0][0]
        for table in ("committed_offsets", "transaction_offsets", "payload_names")
    }
    own, all_ = PARTITIONS, PARTITIONS * GROUPS
    commits = getattr(request_, "committed", None)
    expected = {
        "EndTxn": (own + all_ if commits else own, 0, NAMES),
        "DeleteGroups": (0, all_, NAMES),
        "DeleteTopics": (0, 0, 0),
    }
    assert tuple(left.values()) == expected[name]
