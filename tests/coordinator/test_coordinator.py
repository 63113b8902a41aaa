"""The coordinator as a whole: its parts know the settings and the cluster."""

from contextlib import suppress

from smq.coordinator.group_limits import GroupLimits
from smq.coordinator.topics import NewTopic
from smq.model.errors import BrokerError
from tests.coordinator.coordinator_driver import CoordinatorDriver
from tests.coordinator.test_groups import stable
from tests.garbage import garbage


def test_the_brokers_settings_reach_the_groups(driver: CoordinatorDriver) -> None:
    driver.restart(
        config={
            "group_initial_rebalance_delay_ms": 7,
            "group_max_size": 9,
            "group_min_session_timeout_ms": 11,
            "group_max_session_timeout_ms": 13,
        }
    )
    rules = driver.coordinator.groups._rules
    assert rules.limits == GroupLimits(7, 9)
    assert rules[1:] == (11, 13)


def test_the_catalog_carries_the_clusters_id(driver: CoordinatorDriver) -> None:
    assert driver.coordinator.topics.catalog.cluster_id == "cluster"


def test_forgotten_groups_and_topics_leave_no_cycles(driver: CoordinatorDriver) -> None:
    """The collector looks only at what is young (smq.app.process.collector)."""

    def live(number: int) -> None:
        name = f"name-{number}"
        stable(driver, name)
        driver.wait(60_000)  # Its member is gone.
        driver.coordinator.groups.take_answers()
        with suppress(BrokerError):  # A check has forgotten it already.
            driver.coordinator.offsets.delete_group(name)
        topics = driver.coordinator.topics
        topics.delete(topics.create(NewTopic(name=name, partition_count=3), driver.now))
        topics.catalog.encode()
        driver.store.commit()

    live(0)
    with garbage() as left:
        for number in range(1, 101):
            live(number)
    assert len(left) < 100
