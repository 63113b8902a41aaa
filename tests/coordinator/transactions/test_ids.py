"""Deadlines of transactional ids: one each, according to the state."""

import pytest

from smq.coordinator.deadlines import NEVER_MS
from smq.coordinator.transactions.decisions import ProducerEpoch, created, widened
from smq.coordinator.transactions.ids import TransactionalIds
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
    assert ids.take_due(now) == []
    later = now._replace(monotonic_ms=now.monotonic_ms + 60_000)
    assert ids.take_due(later) == [opened]


def test_an_id_that_is_forgotten_is_not_known_again(driver: TransactionsDriver) -> None:
    ids = TransactionalIds(driver.store, RULES.expiration_ms, driver.now)
    txn = created("t", 7, 60_000, driver.now.monotonic_ms)
    ids.save(txn, driver.now)
    assert ids.find("t") == txn
    ids.take_due(driver.now._replace(monotonic_ms=2**62))
    ids.forget(txn)
    with pytest.raises(BrokerError, match="INVALID_PRODUCER_ID_MAPPING"):
        ids.find("t")
    assert driver.store.transactions.all() == []
