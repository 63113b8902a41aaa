"""EndTxn is answered with the decision; the next transaction waits for the markers."""

import pytest

from smq.coordinator.transactions.orders import MarkerOrder
from smq.model.errors import BrokerError, ErrorCode
from tests.coordinator.transactions.transactions_driver import TransactionsDriver


@pytest.mark.parametrize("bumps", [True, False])
@pytest.mark.parametrize("commits", [True, False])
def test_the_answer_comes_with_the_decision_and_again_the_same(
    driver: TransactionsDriver, *, bumps: bool, commits: bool
) -> None:
    producer = driver.begin()
    driver.add(producer, 1, 2)
    for ticket in ("first", "again, before any marker"):
        driver.end(producer, bumps=bumps, commits=commits, ticket=ticket)
    driver.take_orders()
    assert driver.transactions.is_ending("t")
    assert [ticket for ticket, _ in driver.answers] == ["first", "again, before any marker"]
    driver.restart()
    if bumps:
        driver.end(producer, commits=commits, ticket="of another coordinator")
    else:  # It does not know whether Produce has added partitions.
        with pytest.raises(BrokerError, match="CONCURRENT_TRANSACTIONS"):
            driver.end(producer, commits=commits, bumps=False)
    driver.wait(0)
    driver.turn()
    assert not driver.transactions.is_ending("t")
    driver.end(producer, bumps=bumps, commits=commits, ticket="once all is written")
    driver.turn()
    assert {answer for _, answer in driver.answers} == {
        (ErrorCode.NONE, (producer.id, producer.epoch + bumps))
    }


def test_the_next_transaction_joins_once_the_former_has_its_markers(
    driver: TransactionsDriver,
) -> None:
    producer = driver.begin()
    driver.add(producer, 1)
    driver.end(producer)
    driver.take_orders()
    following = driver.answers[-1][1].producer
    with pytest.raises(BrokerError, match="CONCURRENT_TRANSACTIONS"):
        driver.add(following, 1)
    with pytest.raises(BrokerError, match="CONCURRENT_TRANSACTIONS"):
        driver.offset(following, 4, 17)
    with pytest.raises(BrokerError, match="CONCURRENT_TRANSACTIONS"):
        driver.begin()
    driver.restart()
    driver.wait(0)
    driver.turn()
    driver.add(following, 1)


@pytest.mark.parametrize("restarts", [False, True])
def test_end_txn_that_keeps_the_epoch_waits_for_markers_if_produce_added_partitions(
    driver: TransactionsDriver, *, restarts: bool
) -> None:
    """A shard adds partitions that a Produce names, if no transaction of this epoch is open there:
    in one whose marker is missing the former one is."""
    producer = driver.begin()
    driver.add(producer, 1)
    driver.transactions.endings.note_implied("t")
    if restarts:
        driver.take_orders()
        driver.restart()
    driver.end(producer, bumps=False, ticket="first")
    [order] = driver.take_orders()
    assert isinstance(order, MarkerOrder)
    assert driver.answers == []
    with pytest.raises(BrokerError, match="CONCURRENT_TRANSACTIONS"):
        driver.end(producer, bumps=False)
    driver.transactions.endings.marked(order, order.numbers, driver.now)
    assert driver.turn() == (ErrorCode.NONE, producer)
    driver.add(producer, 1)  # AddPartitionsToTxn has.
    driver.end(producer, bumps=False, ticket="second")
    driver.take_orders()
    assert [ticket for ticket, _ in driver.answers] == ["first", "second"]
