"""From EndTxn to the last marker, with shards that answer, fail, or are not there."""

import pytest

from smq.coordinator.transactions.decisions import ProducerEpoch
from smq.coordinator.transactions.endings import RETRY_MS
from smq.coordinator.transactions.orders import MarkerOrder, SyncOrder
from smq.model.errors import BrokerError, ErrorCode
from tests.coordinator.transactions.transactions_driver import TransactionsDriver


def ordered(driver: TransactionsDriver) -> list[MarkerOrder]:
    return [each for each in driver.take_orders() if isinstance(each, MarkerOrder)]


def syncs(driver: TransactionsDriver) -> list[SyncOrder]:
    return [each for each in driver.take_orders() if isinstance(each, SyncOrder)]


def test_each_node_gets_the_markers_of_its_partitions(driver: TransactionsDriver) -> None:
    producer = driver.begin()
    driver.add(producer, 1, 2, 3)
    driver.end(producer, ticket="ticket")
    orders = {each.node: each for each in ordered(driver)}
    assert {node: set(each.numbers) for node, each in orders.items()} == {1: {2}, 2: {1, 3}}
    assert all((each.epoch, each.commits) == (1, True) for each in orders.values())
    driver.transactions.endings.marked(orders[1], frozenset({2}), driver.now)
    assert not driver.transactions.has_answers
    driver.transactions.endings.marked(orders[2], frozenset({1, 3}), driver.now)
    assert driver.turn() is not None
    assert driver.answers == [("ticket", (ErrorCode.NONE, ProducerEpoch(producer.id, 1)))]
    assert driver.state == "CompleteCommit"


def test_markers_that_were_not_written_come_again(driver: TransactionsDriver) -> None:
    producer = driver.begin()
    driver.add(producer, 1, 3)
    driver.end(producer)
    [order] = ordered(driver)
    driver.transactions.endings.marked(order, frozenset({1}), driver.now)
    assert ordered(driver) == []
    driver.wait(RETRY_MS)
    [again] = ordered(driver)
    assert again.numbers == {3}
    driver.transactions.endings.marked(again, frozenset(), driver.now)
    driver.wait(RETRY_MS)
    assert driver.turn() == (ErrorCode.NONE, (producer.id, 1))


def test_a_partition_that_was_deleted_needs_no_marker(driver: TransactionsDriver) -> None:
    producer = driver.begin()
    driver.add(producer, 1, 3)
    driver.end(producer)
    [order] = ordered(driver)
    driver.gone |= {1, 3}
    driver.transactions.endings.marked(order, frozenset(), driver.now)
    driver.wait(RETRY_MS)
    assert driver.turn() == (ErrorCode.NONE, (producer.id, 1))
    assert driver.state == "CompleteCommit"


@pytest.mark.parametrize("commits", [True, False])
def test_a_decision_outlives_the_coordinator_and_its_markers_are_sent_again(
    driver: TransactionsDriver, commits: bool
) -> None:
    producer = driver.begin()
    driver.add(producer, 1, 2)
    driver.offset(producer, 4, 17)
    driver.end(producer, commits=commits)
    before = ordered(driver)
    driver.restart()
    driver.wait(0)
    after = ordered(driver)
    assert {each.numbers for each in after} == {each.numbers for each in before}
    assert all(each.commits is commits for each in after)
    assert after[0].coordinator_epoch > before[0].coordinator_epoch
    for order in after:
        driver.transactions.endings.marked(order, order.numbers, driver.now)
    driver.turn()
    assert driver.state == ("CompleteCommit" if commits else "CompleteAbort")
    driver.restart()
    driver.wait(0)
    assert ordered(driver) == []
    offsets = driver.store.committed_offsets("g")
    assert [each.offset for each in offsets.values()] == ([17] if commits else [])


def test_what_was_not_committed_to_the_store_is_as_if_never_asked(
    driver: TransactionsDriver,
) -> None:
    producer = driver.begin()
    driver.add(producer, 1)
    driver.offset(producer, 4, 17)
    driver.turn()
    driver.end(producer)
    driver.restart()
    assert driver.state == "Ongoing"
    assert driver.store.committed_offsets("g") == {}
    assert driver.commit(producer) == (producer.id, producer.epoch + 1)
    assert driver.store.committed_offsets("g")[4].offset == 17


def test_a_doubled_answer_of_a_shard_does_not_touch_the_next_transaction(
    driver: TransactionsDriver,
) -> None:
    producer = driver.begin()
    driver.add(producer, 1)
    driver.end(producer)
    [order] = ordered(driver)
    driver.transactions.endings.marked(order, order.numbers, driver.now)
    answer = driver.turn()
    assert answer is not None
    driver.add(answer.producer, 1)
    driver.end(answer.producer)
    driver.transactions.endings.marked(order, order.numbers, driver.now)
    assert driver.state == "PrepareCommit"


def test_disk_topics_are_synced_before_a_commit_is_decided(driver: TransactionsDriver) -> None:
    producer = driver.begin()
    driver.add(producer, 1, 2, 5)
    driver.end(producer)
    asked = syncs(driver)
    assert {each.node: set(each.numbers) for each in asked} == {1: {2}, 2: {1, 5}}
    assert driver.state == "Ongoing"
    with pytest.raises(BrokerError, match="CONCURRENT_TRANSACTIONS"):
        driver.end(producer)
    with pytest.raises(BrokerError, match="CONCURRENT_TRANSACTIONS"):
        driver.add(producer, 3)
    with pytest.raises(BrokerError, match="CONCURRENT_TRANSACTIONS"):
        driver.begin()
    for order in asked:
        driver.transactions.endings.synced(order, driver.now)
    assert driver.turn() == (ErrorCode.NONE, (producer.id, 1))


def test_an_abort_syncs_nothing(driver: TransactionsDriver) -> None:
    producer = driver.begin()
    driver.add(producer, 5)
    driver.commit(producer, commits=False)
    assert driver.syncs == []


def test_what_could_not_be_synced_is_not_decided_and_may_be_tried_again(
    driver: TransactionsDriver,
) -> None:
    producer = driver.begin()
    driver.add(producer, 1, 2, 5)
    driver.end(producer)
    first, second = syncs(driver)
    driver.transactions.endings.not_synced(first)
    driver.take_orders()
    assert driver.answers[-1][1].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.state == "Ongoing"
    driver.end(producer)
    driver.take_orders()
    driver.transactions.endings.synced(second, driver.now)  # Late: of the first try.
    driver.transactions.endings.synced(first, driver.now)
    assert driver.state == "Ongoing"


def test_a_transaction_times_out_while_it_waits_for_a_sync(driver: TransactionsDriver) -> None:
    producer = driver.begin()
    driver.add(producer, 5)
    driver.end(producer)
    [order] = syncs(driver)
    driver.wait(60_000)
    driver.transactions.endings.synced(order, driver.now)
    driver.turn()
    assert [answer.error for _, answer in driver.answers] == [ErrorCode.PRODUCER_FENCED]
    assert driver.state == "CompleteAbort"
