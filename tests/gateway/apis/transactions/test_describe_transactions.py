"""DescribeTransactions: the facts about a transactional id."""

from typing import Any

from gateway.coordinator_dispatch import dispatch
from gateway.parts import Parts
from smq.model.errors import ErrorCode
from smq.model.now import Now
from smq.wire.generated.describe_transactions import DescribeTransactionsRequest
from tests.gateway.apis.transactions.producers import add_group, begin, end, open_
from tests.gateway.coordinator_bench import NODES, CoordinatorBench, relayed
from tests.gateway.groups import make_topic


def describe(bench: CoordinatorBench, *names: str) -> list[Any]:
    request = DescribeTransactionsRequest(transactional_ids=list(names))
    return list(bench.ask("DescribeTransactions", 0, request).transaction_states)


def test_an_open_transaction_says_what_it_has_touched(bench: CoordinatorBench) -> None:
    producer = begin(bench)
    open_(bench, producer, "t", 2, 0)
    add_group(bench, producer, "group")
    [found] = describe(bench, "mine")
    assert (found.error_code, found.transaction_state) == (0, "Ongoing")
    assert (found.producer_id, found.producer_epoch) == producer
    assert found.transaction_timeout_ms == 60_000
    assert found.transaction_start_time_ms == bench.now.wall_ms
    topics = {each.topic: list(each.partitions) for each in found.topics}
    assert topics == {"t": [0, 2], "__consumer_offsets": [98629247 % 50]}


def test_a_transaction_that_is_not_open_has_no_topics(bench: CoordinatorBench) -> None:
    producer = begin(bench)
    [found] = describe(bench, "mine")
    assert (found.transaction_state, found.transaction_start_time_ms) == ("Empty", -1)
    open_(bench, producer, "t", 2)
    end(bench, producer)
    [found] = describe(bench, "mine")
    assert (found.transaction_state, list(found.topics)) == ("CompleteCommit", [])


def test_each_name_is_answered_once(bench: CoordinatorBench) -> None:
    begin(bench)
    found = describe(bench, "mine", "unknown", "", "mine")
    assert [(each.transactional_id, each.error_code) for each in found] == [
        ("mine", ErrorCode.NONE),
        ("unknown", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
        ("", ErrorCode.INVALID_REQUEST),
    ]


def test_a_groups_partition_is_where_its_coordinator_is(bench: CoordinatorBench) -> None:
    """data fault 32, its kind: of a negative hash Apache Kafka takes the absolute value."""
    producer = begin(bench)
    add_group(bench, producer, "consumer-7")
    [found] = describe(bench, "mine")
    assert [list(each.partitions) for each in found.topics] == [[0]]


def test_when_a_transaction_began_is_said_by_the_wall_clock_of_now(bench: CoordinatorBench) -> None:
    """Data fault 2: ages are kept on the time line, people read wall time."""
    open_(bench, begin(bench), "t", 2)
    bench.now = Now(bench.now.monotonic_ms + 1000, bench.now.wall_ms + 3_600_000)
    [found] = describe(bench, "mine")
    assert found.transaction_start_time_ms == bench.now.wall_ms - 1000


def test_large_transactions_are_described_in_parts(bench: CoordinatorBench) -> None:
    """Data fault 13, its kind: 200 names of transactions with 5,000 partitions each took 0.1 s."""
    numbers = frozenset(make_topic(bench, "wide", 1000).partition_numbers)
    transactions, names = bench.coordinator.transactions, [f"t{each}" for each in range(50)]
    for name in names:
        producer = transactions.begin(name, 60_000, None, bench.now)
        transactions.add(name, producer, bench.now, numbers=numbers, groups=frozenset())
    question = relayed(
        "DescribeTransactions", 0, DescribeTransactionsRequest(transactional_ids=names)
    )
    parts = dispatch(question, bench.coordinator, NODES, bench.now, 1).response
    assert isinstance(parts, Parts)
    steps = 0
    while not parts.step():
        steps += 1
    assert steps == 3
    found = describe(bench, *names)
    assert [each.transactional_id for each in found] == names
    assert all(len(each.topics[0].partitions) == 1000 for each in found)
