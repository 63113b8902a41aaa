"""Settings that change while the broker runs."""

from pathlib import Path

import pytest

from smq.coordinator import config_room, settings as module
from smq.coordinator.catalog_room import HEAD_BYTES_MAX, CatalogRoom
from smq.coordinator.settings import Settings
from smq.coordinator.topics import NewTopic
from smq.model.catalog import BROKER, CLIENT_METRICS, GROUP, QUOTA
from smq.model.client_quotas import key_of
from smq.model.errors import BrokerError, ErrorCode, StoreError
from smq.store.config_changes import Changer
from smq.store.store import Store
from tests.coordinator.coordinator_driver import CONFIG, CoordinatorDriver

BY = Changer("c", "/10.0.0.1", 5)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(Store.open(tmp_path / "store.sqlite"), CONFIG, CatalogRoom(1 << 30))


def test_a_change_is_in_force_at_once_for_its_node_or_for_all(settings: Settings) -> None:
    settings.configure_broker("", {"seal.ms": " 5 "}, BY)
    settings.configure_broker("1", {"seal.ms": "7"}, BY)
    assert (settings.config.seal_ms, settings.of_node(1).seal_ms) == (5, 7)
    assert settings.of_node(2).seal_ms == 5
    assert settings.published == {BROKER: {"": {"seal.ms": "5"}, "1": {"seal.ms": "7"}}}
    settings.configure_broker("1", {}, BY)
    assert settings.of_node(1).seal_ms == 5
    assert settings.names(BROKER) == [""]


@pytest.mark.parametrize(
    ("node", "configs"),
    [
        ("", {"seal.ms": "soon"}),
        ("", {"port": "1"}),
        ("1", {"group.max.size": "3"}),
        ("", {"group.min.session.timeout.ms": "9000000"}),
        ("1", {"message.max.bytes": "90000000"}),
    ],
)
def test_a_bad_change_changes_nothing(
    settings: Settings, node: str, configs: dict[str, str]
) -> None:
    with pytest.raises(BrokerError) as refused:
        settings.configure_broker(node, {**configs, "seal.bytes": "9"}, BY)
    assert refused.value.code == ErrorCode.INVALID_REQUEST
    assert settings.published == {}
    assert settings.config == CONFIG


def test_a_check_changes_nothing(settings: Settings) -> None:
    settings.configure_broker("", {"seal.ms": "5"}, BY, validate_only=True)
    assert settings.config == CONFIG


def test_groups_are_not_published_and_resources_are_bounded(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RESOURCES_MAX", 1)
    settings.configure(GROUP, "g", {"a": "1"}, BY)
    settings.configure(CLIENT_METRICS, "m", {"a": "1"}, BY)
    with pytest.raises(BrokerError) as refused:
        settings.configure(GROUP, "h", {"a": "1"}, BY)
    assert refused.value.code == ErrorCode.POLICY_VIOLATION
    assert settings.published == {CLIENT_METRICS: {"m": {"a": "1"}}}


def entity(number: int) -> str:
    """The key of an entity that takes as many bytes as one can: some 7 KB."""
    name = "\U0001f600" * 247
    return key_of({"user": f"{name}{number:08}", "client-id": name})


def is_taken(settings: Settings, number: int) -> bool:
    """Whether there was room for a quota of an entity."""
    try:
        settings.configure(QUOTA, entity(number), {"producer_byte_rate": "1.0"}, BY)
    except BrokerError as refusal:
        return refusal.code != ErrorCode.POLICY_VIOLATION
    return True


@pytest.mark.parametrize("kind", [QUOTA, GROUP])
def test_the_configs_of_all_resources_of_a_type_are_bounded_in_bytes(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(module, "BYTES_MAX", 30)
    settings.configure(kind, "a", {"rate": "1.0"}, BY)  # {"a": {"rate": "1.0"}}
    with pytest.raises(BrokerError, match="may take 30 bytes") as refused:
        settings.configure(kind, "b", {"rate": "1.0"}, BY, validate_only=True)
    assert refused.value.code == ErrorCode.POLICY_VIOLATION
    settings.configure(CLIENT_METRICS, "b", {"rate": "1.0"}, BY)
    settings.configure(kind, "a", {"rate": "2.0"}, BY)
    settings.configure(kind, "a", {}, BY)
    settings.configure(kind, "b", {"rate": "1.0"}, BY)


def test_quotas_are_published_in_as_many_bytes_as_they_are_counted(
    driver: CoordinatorDriver,
) -> None:
    settings, topics = driver.coordinator.settings, driver.coordinator.topics
    before = settings._room.left
    settings.configure(BROKER, "", {"seal.ms": "5"}, BY)
    settings.configure(CLIENT_METRICS, "m", {"a": "\u00e9", "b": "\n"}, BY)
    for number in range(20):
        settings.configure(QUOTA, entity(number), {"producer_byte_rate": "1.0"}, BY)
    settings.configure(QUOTA, entity(0), {}, BY)
    driver.coordinator.take_settings()
    topics.create(NewTopic(name="a"), driver.now)
    size = len(topics.catalog.encode())
    counted = before - settings._room.left
    assert counted <= size <= counted + HEAD_BYTES_MAX


def test_quotas_and_topics_share_the_room_of_the_catalog(
    driver: CoordinatorDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """10,000 quotas with long names ended each start of the coordinator."""
    monkeypatch.setattr(config_room, "TOPIC_BYTES_MAX", 1024 * 1024)
    coordinator = driver.coordinator
    configs = {"leader.replication.throttled.replicas": ",".join(["0:1"] * 100_000)}
    wide = coordinator.topics.create(NewTopic(name="a", configs=configs), driver.now)
    count = next(number for number in range(200) if not is_taken(coordinator.settings, number))
    assert count > 50
    with pytest.raises(BrokerError, match="delete some first"):
        coordinator.topics.create(NewTopic(name="b", configs=configs), driver.now)
    coordinator.take_settings()
    driver.store.commit()
    driver.restart()
    settings = driver.coordinator.settings
    assert (len(settings.published[QUOTA]), settings.problems) == (count, [])
    assert len(driver.coordinator.topics.catalog.encode()) <= 1024 * 1024
    with pytest.raises(BrokerError, match="no room for more configs"):
        settings.configure(QUOTA, entity(count), {"producer_byte_rate": "1.0"}, BY)
    driver.coordinator.topics.delete(driver.coordinator.topics.find(wide.name))
    settings.configure(QUOTA, entity(count), {"producer_byte_rate": "1.0"}, BY)


def test_a_store_with_more_quotas_than_the_catalog_holds_starts_with_the_first_of_them(
    driver: CoordinatorDriver,
) -> None:
    """An earlier version took them."""
    for number in range(200):
        rate = {"producer_byte_rate": "1.0"}
        driver.store.resource_configs.replace(QUOTA, entity(number), {}, rate, BY)
    driver.store.commit()
    driver.restart()
    settings, topics = driver.coordinator.settings, driver.coordinator.topics
    in_force = len(settings.published[QUOTA])
    assert 100 < in_force < 200
    assert len(topics.catalog.encode()) <= 1024 * 1024
    [problem] = settings.problems
    assert problem.startswith(f"{in_force} of 200 quotas are in force")
    with pytest.raises(BrokerError, match="delete some first"):
        topics.create(NewTopic(name="a"), driver.now)
    settings.configure(QUOTA, entity(0), {"producer_byte_rate": "2.0"}, BY)
    for number in range(100):
        settings.configure(QUOTA, entity(number), {}, BY)
    assert (len(settings.published[QUOTA]), settings.problems) == (100, [])
    topics.create(NewTopic(name="a"), driver.now)


def test_a_store_with_more_client_metrics_than_the_catalog_holds_starts_too(
    driver: CoordinatorDriver,
) -> None:
    """The process ended at each start, and only quotas were named, of which there were none."""
    configs = driver.store.resource_configs
    for number in range(70):
        configs.replace(CLIENT_METRICS, f"m{number}", {}, {"metrics": "a" * 30_000}, BY)
    for number in range(20):
        configs.replace(QUOTA, entity(number), {}, {"producer_byte_rate": "1.0"}, BY)
    driver.store.commit()
    driver.restart()
    settings, topics = driver.coordinator.settings, driver.coordinator.topics
    in_force = len(settings.published[CLIENT_METRICS])
    assert (len(settings.published[QUOTA]), 10 < in_force < 40) == (20, True)
    assert len(topics.catalog.encode()) <= 1024 * 1024
    [problem] = driver.coordinator.problems
    assert problem.startswith(f"{in_force} of 70 subscriptions of client metrics are in force")


def test_quotas_that_were_left_out_come_into_force_once_topics_are_deleted(
    driver: CoordinatorDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_room, "TOPIC_BYTES_MAX", 1024 * 1024)
    configs = {"leader.replication.throttled.replicas": ",".join(["0:1"] * 100_000)}
    wide = driver.coordinator.topics.create(NewTopic(name="a", configs=configs), driver.now)
    for number in range(120):
        rate = {"producer_byte_rate": "1.0"}
        driver.store.resource_configs.replace(QUOTA, entity(number), {}, rate, BY)
    driver.store.commit()
    driver.restart()
    coordinator = driver.coordinator
    assert len(coordinator.topics.catalog.settings[QUOTA]) < 120
    coordinator.topics.delete(coordinator.topics.find(wide.name))
    coordinator.take_freed_room()
    assert len(coordinator.topics.catalog.settings[QUOTA]) == 120
    before = coordinator.topics.changes
    coordinator.take_freed_room()
    assert coordinator.topics.changes == before
    assert coordinator.problems == []


def test_a_store_with_more_settings_of_brokers_than_the_catalog_holds_is_refused(
    driver: CoordinatorDriver,
) -> None:
    for node in map(str, range(40)):
        rules = {"lag.alert.rules": "a" * 30_000}
        driver.store.resource_configs.replace(BROKER, node, {}, rules, BY)
    driver.store.commit()
    with pytest.raises(StoreError, match="settings of brokers take more room than there is"):
        driver.restart()


def test_a_setting_that_a_later_start_cannot_use_is_reported_kept_and_can_be_unset(
    driver: CoordinatorDriver,
) -> None:
    now = driver.coordinator.settings
    now.configure_broker("", {"message.max.bytes": "7000000", "seal.ms": "5"}, BY)
    driver.store.commit()
    driver.restart(config={"ring_bytes": 4 << 20, "wal_segment_bytes": 2 << 20})
    now = driver.coordinator.settings
    assert now.config.message_max_bytes == CONFIG.message_max_bytes
    assert now.config.seal_ms == 5
    assert len(now.problems) == 1
    kept = dict(now.configs(BROKER, ""))
    assert kept == {"message.max.bytes": "7000000", "seal.ms": "5"}
    now.configure_broker("", {**kept, "seal.ms": "6"}, BY)
    assert now.config.seal_ms == 6
    now.configure_broker("", {}, BY)
    assert now.problems == []


def test_groups_transactions_and_topics_decide_by_what_is_in_force(
    driver: CoordinatorDriver,
) -> None:
    coordinator = driver.coordinator
    changes = coordinator.topics.changes
    new = {
        "group.max.size": "9",
        "group.min.session.timeout.ms": "11",
        "offsets.retention.minutes": "2",
        "transaction.max.timeout.ms": "13",
        "num.partitions": "3",
    }
    coordinator.settings.configure_broker("", new, BY)
    coordinator.take_settings()
    rules = coordinator.groups._rules
    assert (rules.limits.size_max, rules.session_timeout_min_ms) == (9, 11)
    assert coordinator.transactions._rules.timeout_max_ms == 13
    assert coordinator.topics.changes == changes + 1
    assert coordinator.topics.catalog.settings == {BROKER: {"": new}}
    driver.store.commit()
    driver.restart()
    assert driver.coordinator.topics.catalog.settings == {BROKER: {"": new}}
    assert driver.coordinator.groups._rules.limits.size_max == 9


def test_the_config_of_a_node_is_made_once_and_anew_after_a_change(
    driver: CoordinatorDriver,
) -> None:
    """Not proven, of data fault 13: an OffsetCommit made the whole config of a node anew for each
    of its partitions."""
    settings = driver.coordinator.settings
    before = settings.of_node(1)
    assert settings.of_node(1) is before
    settings.configure_broker("1", {"seal.ms": "7000"}, BY)
    assert (settings.of_node(1).seal_ms, settings.of_node(2).seal_ms) == (7000, before.seal_ms)


def test_settings_of_brokers_are_not_looked_at_anew_for_each_quota(settings: Settings) -> None:
    """Three hundred quotas held the coordinator for seconds where brokers had settings."""
    settings.configure(BROKER, "1", {"log.retention.ms": "5000"}, BY)
    before = settings.changed
    settings.configure(QUOTA, "a", {"producer_byte_rate": "1.0"}, BY)
    assert settings.changed is before
    settings.configure(BROKER, "1", {"log.retention.ms": "6000"}, BY)
    assert settings.changed == {"1": {"log.retention.ms": "6000"}}
