"""ListTransactions: each id by one node; filters of state, producer and age."""

from typing import Any

import pytest

from smq.model.errors import ErrorCode
from smq.wire.generated.list_transactions import ListTransactionsRequest
from tests.gateway.apis.transactions.producers import begin, open_
from tests.gateway.coordinator_bench import CoordinatorBench


def listed(bench: CoordinatorBench, version: int = 1, **fields: Any) -> set[tuple[str, str]]:
    answers = [
        bench.ask("ListTransactions", version, ListTransactionsRequest(**fields), node_id)
        for node_id in (1, 2)
    ]
    found = [
        (each.transactional_id, each.transaction_state)
        for answer in answers
        for each in answer.transaction_states
    ]
    assert len(set(found)) == len(found), "no two nodes list the same"
    return set(found)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_ids_are_listed_by_state_and_producer(bench: CoordinatorBench, version: int) -> None:
    producer, other = begin(bench), begin(bench, "other")
    open_(bench, producer, "t", 0)
    empty, ongoing = ("other", "Empty"), ("mine", "Ongoing")
    assert listed(bench, version) == {empty, ongoing}
    assert listed(bench, version, state_filters=["Ongoing"]) == {ongoing}
    assert listed(bench, version, producer_id_filters=[other.id, 99]) == {empty}
    both = {"producer_id_filters": [other.id], "state_filters": ["Ongoing"]}
    assert listed(bench, version, **both) == set()


def test_states_that_are_none_come_back(bench: CoordinatorBench) -> None:
    request = ListTransactionsRequest(state_filters=["ongoing", "PrepareEpochFence", "Dead"])
    assert bench.ask("ListTransactions", 0, request).unknown_state_filters == ["ongoing"]


def test_ids_are_listed_by_age(bench: CoordinatorBench) -> None:
    producer = begin(bench)
    open_(bench, producer, "t", 0)
    assert listed(bench, duration_filter=1000) == set()
    bench.wait(1000)
    assert listed(bench, duration_filter=1000) == {("mine", "Ongoing")}
    assert listed(bench, duration_filter=-5) == {("mine", "Ongoing")}


def test_very_many_are_listed_in_parts(bench: CoordinatorBench) -> None:
    for number in range(1200):
        bench.coordinator.transactions.begin(f"id-{number}", 1000, None, bench.now)
    assert len(listed(bench)) == 1200


def test_ids_are_listed_by_a_pattern(bench: CoordinatorBench) -> None:
    for name in ("app-1", "app-2", "other"):
        begin(bench, name)
    assert {name for name, _ in listed(bench, 2, transactional_id_pattern="app-.")} == {
        "app-1",
        "app-2",
    }
    assert len(listed(bench, 2, transactional_id_pattern="")) == 3
    request = ListTransactionsRequest(transactional_id_pattern="(")
    answer = bench.ask("ListTransactions", 2, request)
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert answer.transaction_states == []


def test_very_many_are_matched_in_parts(bench: CoordinatorBench) -> None:
    for number in range(40):
        bench.coordinator.transactions.begin(f"{number:02}{'x' * 9000}", 1000, None, bench.now)
    assert len(listed(bench, 2, transactional_id_pattern="0.x*")) == 10
