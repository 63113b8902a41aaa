"""Settings that change while the broker runs."""

from pathlib import Path

import pytest

from smq.coordinator import settings as module
from smq.coordinator.settings import Settings
from smq.model.catalog import BROKER, CLIENT_METRICS, GROUP
from smq.model.errors import BrokerError, ErrorCode
from smq.store.config_changes import Changer
from smq.store.store import Store
from tests.coordinator.coordinator_driver import CONFIG, CoordinatorDriver

BY = Changer("c", "/10.0.0.1", 5)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(Store.open(tmp_path / "store.sqlite"), CONFIG)


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
