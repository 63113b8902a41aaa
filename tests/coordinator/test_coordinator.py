"""The coordinator as a whole: its parts know the settings and the cluster."""

from contextlib import suppress

from smq.coordinator.group_limits import GroupLimits
from smq.coordinator.topics import NewTopic
from smq.model.errors import BrokerError
from smq.store.config_changes import Changer
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


def test_the_coordinator_finds_a_partition_as_it_is_now(driver: CoordinatorDriver) -> None:
    """It is looked up once for many offsets."""
    coordinator, topics = driver.coordinator, driver.coordinator.topics
    topic = topics.create(NewTopic(name="t", partition_count=2), driver.now)
    [first, second] = topic.partition_numbers
    for _ in range(2):
        found = coordinator._find_place(second)
        assert found is not None
        assert (found.topic, found.partition, found.is_synced) == ("t", 1, False)
    by = Changer("c", "h", 0)
    topic = topics.configure(topic, {"smq.durability": "disk"}, by)
    found = coordinator._find_place(second)
    assert found is not None
    assert found.is_synced
    topics.delete(topic)
    assert coordinator._find_place(first) is coordinator._find_place(second) is None


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
