"""Transactional ids over a store: fencing, timeouts, expiration, offsets."""

import pytest

from smq.coordinator.transactions.decisions import ProducerEpoch
from smq.coordinator.transactions.orders import SyncOrder
from smq.model.errors import BrokerError
from smq.store.rows import CommittedOffset
from tests.coordinator.transactions.transactions_driver import RULES, TransactionsDriver
from tests.garbage import garbage


def test_many_transactions_of_one_producer(driver: TransactionsDriver) -> None:
    producer = driver.begin()
    for round_ in range(5):
        driver.add(producer, 1, 2)
        producer = driver.commit(producer, commits=round_ % 2 == 0)
    assert producer.epoch == 5
    assert [each.commits for each in driver.markers[::2]] == [True, False, True, False, True]


def test_a_producer_that_begins_aborts_what_the_one_before_left_open(
    driver: TransactionsDriver,
) -> None:
    zombie = driver.begin()
    driver.add(zombie, 1)
    driver.offset(zombie, 4, 17)
    with pytest.raises(BrokerError, match="CONCURRENT_TRANSACTIONS"):
        driver.begin()
    driver.turn()
    [marker] = driver.markers
    assert (marker.commits, marker.epoch) == (False, zombie.epoch + 1)
    producer = driver.begin()
    assert producer == (zombie.id, zombie.epoch + 2)
    with pytest.raises(BrokerError, match="PRODUCER_FENCED"):
        driver.add(zombie, 1)
    with pytest.raises(BrokerError, match="PRODUCER_FENCED"):
        driver.end(zombie)
    assert driver.store.committed_offsets("g") == {}


def test_ended_transactions_leave_no_cycles(driver: TransactionsDriver) -> None:
    """The collector looks only at what is young (smq.app.process.collector)."""

    def live(count: int) -> None:
        for _ in range(count):
            producer = driver.begin()
            driver.add(producer, 1, 2)
            driver.commit(producer)
            driver.turn()

    live(1)
    with garbage() as left:
        live(100)
    assert len(left) < 100


@pytest.mark.parametrize("restarts", [False, True])
def test_a_transaction_past_its_timeout_is_aborted(
    driver: TransactionsDriver, restarts: bool
) -> None:
    producer = driver.begin()
    driver.add(producer, 1)
    driver.turn()
    driver.wait(30_000)
    if restarts:
        driver.restart()
    driver.add(producer, 2)
    driver.wait(29_999)
    assert driver.state == "Ongoing"
    driver.wait(1)
    driver.turn()
    assert driver.state == "CompleteAbort"
    assert {each.commits for each in driver.markers} == {False}
    with pytest.raises(BrokerError, match="PRODUCER_FENCED"):
        driver.add(producer, 1)
    with pytest.raises(BrokerError, match="INVALID_TXN_STATE"):
        driver.end(producer)
    with pytest.raises(BrokerError, match="PRODUCER_FENCED"):
        driver.end(producer, bumps=False)


@pytest.mark.parametrize("restarts", [False, True])
def test_an_unused_transactional_id_is_forgotten(
    driver: TransactionsDriver, restarts: bool
) -> None:
    producer = driver.begin()
    driver.add(producer, 1)
    driver.wait(10)
    driver.commit(producer)
    if restarts:
        driver.restart()
    driver.wait(RULES.expiration_ms - 1)
    assert driver.state == "CompleteCommit"
    driver.wait(1)
    driver.store.commit()
    assert list(driver.transactions) == []
    assert driver.store.transactions.all() == []
    with pytest.raises(BrokerError, match="INVALID_PRODUCER_ID_MAPPING"):
        driver.add(producer, 1)


@pytest.mark.parametrize("timeout_ms", [0, -1, RULES.timeout_max_ms + 1])
def test_a_timeout_that_cannot_be(driver: TransactionsDriver, timeout_ms: int) -> None:
    with pytest.raises(BrokerError, match="INVALID_TRANSACTION_TIMEOUT"):
        driver.transactions.begin("t", timeout_ms, None, driver.now)


@pytest.mark.parametrize(
    ("name", "error"), [("", "INVALID_REQUEST"), ("other", "INVALID_PRODUCER_ID_MAPPING")]
)
def test_an_id_that_is_not_known(driver: TransactionsDriver, name: str, error: str) -> None:
    with pytest.raises(BrokerError, match=error):
        driver.add(ProducerEpoch(0, 0), 1, name=name)
    with pytest.raises(BrokerError, match=error):
        driver.transactions.verify(name, ProducerEpoch(0, 0))


def test_ids_do_not_know_each_other(driver: TransactionsDriver) -> None:
    one, other = driver.begin(), driver.begin("other")
    assert one.id != other.id
    driver.add(one, 1)
    driver.add(other, 1, name="other")
    driver.commit(one)
    found = driver.transactions.get("other")
    assert found is not None
    assert (found.state, set(found.partitions)) == ("Ongoing", {1})


# Offsets


def test_offsets_show_with_the_commit_and_are_undecided_before(driver: TransactionsDriver) -> None:
    producer = driver.begin()
    driver.offset(producer, 4, 17)
    driver.offset(producer, 4, 18)
    driver.offset(producer, 3, 5, group="h")
    assert driver.store.transactions.undecided("g", range(20_000)) == {4}
    assert driver.store.committed_offsets("g") == {}
    driver.commit(producer)
    assert driver.store.transactions.undecided("g", range(20_000)) == set()
    assert driver.store.committed_offsets("g")[4].offset == 18
    assert driver.store.committed_offsets("h")[3].offset == 5


def test_a_commit_outside_after_that_of_the_transaction_stays(driver: TransactionsDriver) -> None:
    producer = driver.begin()
    driver.offset(producer, 4, 17)
    driver.wait(5)
    driver.store.commit_offsets("g", {4: CommittedOffset(30, -1, "", driver.now.monotonic_ms)})
    driver.commit(producer)
    assert driver.store.committed_offsets("g")[4].offset == 30


def test_a_group_that_is_deleted_takes_its_undecided_offsets_along(
    driver: TransactionsDriver,
) -> None:
    producer = driver.begin()
    driver.offset(producer, 4, 17)
    assert driver.store.has_offsets("g")
    driver.store.delete_group("g")
    driver.commit(producer)
    assert driver.store.committed_offsets("g") == {}


def test_a_topic_that_is_deleted_takes_its_part_of_a_transaction_along(
    driver: TransactionsDriver,
) -> None:
    producer = driver.begin()
    driver.add(producer, 1)
    driver.offset(producer, 4, 17)
    topic_id = driver.topic.id
    driver.store.delete_topic(topic_id)
    driver.gone |= set(range(1, 7))
    driver.store.commit()
    driver.restart()
    assert driver.commit(producer) == (producer.id, 1)
    while driver.store.deleted_topics.may_be_some:
        driver.store.deleted_topics.forget_some()
    assert driver.store.committed_offsets("g") == {}


def may_lose(driver: TransactionsDriver) -> bool:
    """Whether a power loss may take what has happened last."""
    driver.store.commit()
    return driver.store.may_lose


def test_a_power_loss_may_take_the_records_of_an_ended_transaction_but_of_no_open_one(
    driver: TransactionsDriver,
) -> None:
    producer = driver.begin()
    driver.add(producer, 1)
    assert not may_lose(driver), "else its records might be committed with the next transaction's"
    driver.end(producer)
    assert may_lose(driver), "its records may be lost too"
    driver.turn()
    producer = driver.begin()
    assert not may_lose(driver)


def test_an_abort_survives_a_power_loss(driver: TransactionsDriver) -> None:
    """Else the transaction would be open again, and be committed with the next one."""
    producer = driver.begin()
    driver.add(producer, 1)
    driver.end(producer, commits=False)
    assert not may_lose(driver)


@pytest.mark.parametrize("is_written", [True, False])
def test_a_commit_to_a_disk_topic_or_of_its_offsets_survives_a_power_loss(
    driver: TransactionsDriver, is_written: bool
) -> None:
    producer = driver.begin()
    driver.add(producer, 5 if is_written else 1)
    driver.offset(producer, 1 if is_written else 5, 17)
    driver.end(producer)
    [order] = driver.take_orders()
    assert isinstance(order, SyncOrder)
    driver.transactions.endings.synced(order, frozenset(), driver.now)
    assert driver.state == "PrepareCommit"
    assert not may_lose(driver)
    driver.turn()
    assert driver.state == "CompleteCommit"
    assert may_lose(driver), "at worst the markers are sent again"


DAY_MS = 24 * 3_600_000


@pytest.mark.parametrize("step_ms", [-365 * DAY_MS, -DAY_MS, 3_600_000, 8 * DAY_MS])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_transactions_timeout_does_not_depend_on_the_wall_clock(
    driver: TransactionsDriver, step_ms: int, *, restarts: bool
) -> None:
    """Data fault 2: the second AddPartitions computed the deadline anew from wall time."""
    producer = driver.begin()
    driver.add(producer, 1)
    driver.turn()
    driver.set_clock(step_ms)
    driver.wait(1000)
    if restarts:
        driver.restart()
    driver.add(producer, 2)
    driver.turn()
    driver.wait(58_999)
    driver.turn()
    assert driver.state == "Ongoing"
    driver.wait(1)
    driver.turn()
    assert driver.state == "CompleteAbort"


@pytest.mark.parametrize("step_ms", [-8 * DAY_MS, 8 * DAY_MS])
def test_the_expiration_of_an_unused_id_does_not_depend_on_the_wall_clock(
    driver: TransactionsDriver, step_ms: int
) -> None:
    """Data fault 2: a restart 8 days ahead forgot ids."""
    driver.begin()
    driver.turn()
    driver.set_clock(step_ms)
    driver.restart()
    driver.wait(RULES.expiration_ms - 1)
    assert driver.transactions.get("t") is not None
    driver.wait(1)
    assert driver.transactions.get("t") is None


def test_an_age_is_never_negative_after_a_host_has_lost_its_time(
    driver: TransactionsDriver,
) -> None:
    """Data fault 2."""
    driver.wait(10 * DAY_MS)
    driver.add(driver.begin(), 1)
    driver.turn()
    driver.restart(back_ms=10 * DAY_MS)
    driver.wait(60_000)
    driver.turn()
    assert driver.state == "CompleteAbort"


@pytest.mark.parametrize("step_ms", [-600_000, 600_000])
def test_offsets_are_committed_in_the_order_in_which_they_come(
    driver: TransactionsDriver, step_ms: int
) -> None:
    """Data fault 1: after ten minutes back EndTxn said yes, and the offsets stayed."""
    producer = driver.begin()
    driver.store.commit_offsets("g", {4: CommittedOffset(30, -1, "", driver.now.monotonic_ms)})
    driver.set_clock(step_ms)
    driver.offset(producer, 4, 31)
    driver.commit(producer)
    assert driver.store.committed_offsets("g")[4].offset == 31
