"""The coordinator as a whole: its parts know the settings and the cluster."""

from smq.coordinator.group_limits import GroupLimits
from tests.coordinator.coordinator_driver import CoordinatorDriver


def test_the_brokers_settings_reach_the_groups(driver: CoordinatorDriver) -> None:
    driver.restart(
        config={
            "group_initial_rebalance_delay_ms": 7,
            "group_max_size": 9,
            "group_min_session_timeout_ms": 11,
            "group_max_session_timeout_ms": 13,
            "offsets_retention_minutes": 2,
        }
    )
    rules = driver.coordinator.groups._rules
    assert rules.limits == GroupLimits(7, 9)
    assert rules[1:] == (11, 13, 120_000)


def test_the_catalog_carries_the_clusters_id(driver: CoordinatorDriver) -> None:
    assert driver.coordinator.topics.catalog.cluster_id == "cluster"
