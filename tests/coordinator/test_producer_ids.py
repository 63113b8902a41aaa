"""Producer ids: none is given twice, whatever dies in between."""

from smq.coordinator.producer_ids import BLOCK_IDS
from tests.coordinator.coordinator_driver import CoordinatorDriver


def test_no_id_is_given_twice_within_blocks_and_across_them(driver: CoordinatorDriver) -> None:
    ids = [driver.coordinator.producer_ids.next() for _ in range(2 * BLOCK_IDS + 1)]
    assert ids == list(range(2 * BLOCK_IDS + 1))


def test_a_restart_goes_on_with_a_new_block(driver: CoordinatorDriver) -> None:
    driver.coordinator.producer_ids.next()
    driver.store.commit()
    driver.restart()
    assert driver.coordinator.producer_ids.next() == BLOCK_IDS
