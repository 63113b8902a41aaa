"""Deadlines of transactional ids: one each, according to the state."""

import pytest

from smq.coordinator.deadlines import NEVER_MS
from smq.coordinator.transactions.decisions import ProducerEpoch, created, widened
from smq.coordinator.transactions.ids import WALKED_A_TICK, TransactionalIds
from smq.model.errors import BrokerError
from tests.coordinator.transactions.transactions_driver import RULES, TransactionsDriver


def test_the_deadline_moves_with_the_state(driver: TransactionsDriver) -> None:
    now = driver.now
    ids = TransactionalIds(driver.store, RULES.expiration_ms, now)
    assert ids.deadlines.next_ms() == NEVER_MS
    txn = created("t", 7, 60_000, now.monotonic_ms)
    ids.save(txn, now)
    assert ids.deadlines.next_ms() == now.monotonic_ms + RULES.expiration_ms
    opened = widened(txn, ProducerEpoch(7, -1), frozenset({1}), frozenset(), now.monotonic_ms)
    ids.save(opened, now)
    assert ids.deadlines.next_ms() == now.monotonic_ms + 60_000
    assert ids.take_due(now, 9) == []
    later = now._replace(monotonic_ms=now.monotonic_ms + 60_000)
    assert ids.take_due(later, 9) == [opened]


def test_an_id_that_is_forgotten_is_not_known_again(driver: TransactionsDriver) -> None:
    ids = TransactionalIds(driver.store, RULES.expiration_ms, driver.now)
    txn = created("t", 7, 60_000, driver.now.monotonic_ms)
    ids.save(txn, driver.now)
    assert ids.find("t") == txn
    ids.take_due(driver.now._replace(monotonic_ms=2**62), 9)
    ids.forget(txn)
    with pytest.raises(BrokerError, match="INVALID_PRODUCER_ID_MAPPING"):
        ids.find("t")
    assert driver.store.transactions.all() == []


def test_another_expiration_reaches_many_ids_some_at_a_time(driver: TransactionsDriver) -> None:
    """data fault 13: a change of the setting walked all ids in one step."""
    now, count = driver.now, 2 * WALKED_A_TICK + 1
    ids = TransactionalIds(driver.store, RULES.expiration_ms, now)
    for i in range(count):
        ids.save(created(f"t{i}", 7, 60_000, now.monotonic_ms), now)
    ids.take_expiration(5_000)
    steps = 0
    while ids.next_wake_ms() == 0:
        ids.walk(now)
        steps += 1
    assert steps == 3
    assert ids.next_wake_ms() == now.monotonic_ms + 5_000
    later = now._replace(monotonic_ms=now.monotonic_ms + 5_000)
    due = [ids.take_due(later, 1500) for _ in range(3)]
    assert [len(each) for each in due] == [1500, count - 1500, 0]


def test_a_longer_expiration_holds_before_an_id_is_walked(driver: TransactionsDriver) -> None:
    now = driver.now
    ids = TransactionalIds(driver.store, 5_000, now)
    ids.save(created("t", 7, 60_000, now.monotonic_ms), now)
    ids.take_expiration(8_000)
    later = now._replace(monotonic_ms=now.monotonic_ms + 5_000)
    assert ids.take_due(later, 9) == []
    ids.walk(later)
    assert ids.next_wake_ms() == now.monotonic_ms + 8_000
    ids.invariants()
