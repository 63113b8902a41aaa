"""Topics: made by Kafka's rules, there after a restart, their numbers never used again."""

from typing import Any
from uuid import UUID

import pytest

from smq.coordinator import config_room
from smq.coordinator.topics import PARTITIONS_PER_REQUEST_MAX, NewTopic, Topics
from smq.model.catalog import Topic
from smq.model.errors import BrokerError, ErrorCode, StoreError
from smq.store.config_changes import Changer
from tests.coordinator.coordinator_driver import CoordinatorDriver

E = ErrorCode
BY = Changer("c", "/10.0.0.1", 5)


@pytest.fixture
def topics(driver: CoordinatorDriver) -> Topics:
    return driver.coordinator.topics


def create(driver: CoordinatorDriver, name: str, **fields: Any) -> Topic:
    return driver.coordinator.topics.create(NewTopic(name=name, **fields), driver.now)


def test_a_topic_is_in_the_catalog_and_there_after_a_restart(driver: CoordinatorDriver) -> None:
    topic = create(driver, "a", partition_count=2, configs={"retention.ms": " 5 "})
    assert topic.configs == {"retention.ms": "5"}
    assert driver.coordinator.topics.catalog.by_name == {"a": topic}
    driver.store.commit()
    driver.restart()
    assert driver.coordinator.topics.catalog.by_name == {"a": topic}


def test_an_uncommitted_topic_is_absent_after_a_restart(driver: CoordinatorDriver) -> None:
    create(driver, "a")
    driver.restart()
    assert driver.coordinator.topics.catalog.by_name == {}


def test_partitions_go_to_the_nodes_that_lead_fewest(driver: CoordinatorDriver) -> None:
    # Three logs on two nodes: node 1 serves logs 0 and 2, node 2 serves log 1.
    topics = driver.coordinator.topics
    assert create(driver, "a", partition_count=4).logs == (0, 1, 2, 1)
    assert create(driver, "b", assignments=[(0, [1]), (1, [1])]).logs == (0, 2)
    assert create(driver, "c").logs == (1,)
    topics.delete(topics.catalog.by_name["b"])
    assert create(driver, "d").logs == (0,)
    driver.store.commit()
    driver.restart()
    assert create(driver, "e", partition_count=2).logs == (2, 1)


def test_a_topic_is_on_all_nodes_though_one_leads_fewer(driver: CoordinatorDriver) -> None:
    create(driver, "a", assignments=[(place, [1]) for place in range(9)])
    assert create(driver, "b", partition_count=5).logs == (1, 2, 1, 0, 1)


def test_added_partitions_go_to_the_nodes_with_fewest_of_the_topic(
    driver: CoordinatorDriver,
) -> None:
    create(driver, "a", assignments=[(0, [2]), (1, [2])])
    topic = create(driver, "b", assignments=[(0, [1])])
    assert driver.coordinator.topics.add_partitions(topic, 4, now=driver.now).logs == (0, 1, 2, 1)


def test_numbers_and_ids_are_never_used_again(driver: CoordinatorDriver) -> None:
    topics = driver.coordinator.topics
    first = create(driver, "a", partition_count=3)
    topics.delete(first)
    second = create(driver, "a", partition_count=3)
    assert not set(first.partition_numbers) & set(second.partition_numbers)
    assert first.id != second.id
    assert topics.catalog.by_id == {second.id: second}


def test_a_thousand_partitions_are_one_topic(driver: CoordinatorDriver) -> None:
    topic = create(driver, "wide", partition_count=1000)
    driver.store.commit()
    driver.restart()
    assert driver.coordinator.topics.catalog.by_name["wide"] == topic


def test_the_brokers_number_of_partitions_holds_where_none_is_named(
    driver: CoordinatorDriver,
) -> None:
    driver.restart(config={"num_partitions": 5})
    assert create(driver, "a").partition_count == 5


def test_validating_makes_nothing(driver: CoordinatorDriver) -> None:
    topics = driver.coordinator.topics
    wanted = NewTopic(name="a", partition_count=2)
    assert topics.create(wanted, driver.now, validate_only=True).partition_count == 2
    assert topics.catalog.by_name == {}
    assert topics.changes == 0
    assert driver.store.manifest.topics() == []


def test_a_partition_assigned_by_hand_is_led_by_that_node(driver: CoordinatorDriver) -> None:
    # Three logs on two nodes: node 1 serves logs 0 and 2, node 2 serves log 1.
    topic = create(driver, "a", assignments=[(2, [1]), (0, [2]), (1, [1])])
    assert topic.logs == (1, 0, 2)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"name": ""}, E.INVALID_TOPIC_EXCEPTION),
        ({"name": "a b"}, E.INVALID_TOPIC_EXCEPTION),
        ({"name": "x.y"}, E.INVALID_TOPIC_EXCEPTION),
        ({"name": "x_y"}, E.TOPIC_ALREADY_EXISTS),
        ({"partition_count": 0}, E.INVALID_PARTITIONS),
        ({"partition_count": -2}, E.INVALID_PARTITIONS),
        ({"partition_count": PARTITIONS_PER_REQUEST_MAX + 1}, E.POLICY_VIOLATION),
        ({"replication_factor": 0}, E.INVALID_REPLICATION_FACTOR),
        ({"replication_factor": -2}, E.INVALID_REPLICATION_FACTOR),
        ({"replication_factor": 2}, E.INVALID_REPLICATION_FACTOR),
        ({"configs": {"retention.ms": "x"}}, E.INVALID_CONFIG),
        ({"configs": {"retention.ms": None}}, E.INVALID_CONFIG),
        ({"configs": {"cleanup.policy": "burn"}}, E.INVALID_CONFIG),
        ({"assignments": [(0, [1])], "partition_count": 1}, E.INVALID_REQUEST),
        ({"assignments": [(0, [1])], "replication_factor": 1}, E.INVALID_REQUEST),
        ({"assignments": [(0, [1]), (0, [1])]}, E.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": [(1, [1])]}, E.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": [(0, [])]}, E.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": [(0, [3])]}, E.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": [(0, [1, 1])]}, E.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": [(0, [1, 2])]}, E.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_an_invalid_topic_is_refused_with_kafkas_code_and_a_message(
    driver: CoordinatorDriver, fields: dict[str, Any], error: ErrorCode
) -> None:
    create(driver, "x_y")
    with pytest.raises(BrokerError) as refusal:
        create(driver, **{"name": "a"} | fields)
    assert refusal.value.code is error
    assert refusal.value.message
    assert set(driver.coordinator.topics.catalog.by_name) == {"x_y"}


def test_a_deleted_topics_name_no_longer_collides(driver: CoordinatorDriver) -> None:
    driver.coordinator.topics.delete(create(driver, "a.b"))
    create(driver, "a_b")
    driver.store.commit()
    driver.restart()
    with pytest.raises(BrokerError, match="collides with existing topic: a_b"):
        create(driver, "a.b")


def test_ensuring_makes_what_is_missing_and_says_what_cannot_be(
    driver: CoordinatorDriver, topics: Topics
) -> None:
    create(driver, "there")
    problems = topics.ensure(["there", "new", "bad name"], driver.now)
    assert problems["there"] is None
    assert problems["new"] is None
    assert "characters" in str(problems["bad name"])
    assert set(topics.catalog.by_name) == {"there", "new"}


def test_each_change_is_counted_and_shows_in_a_new_catalog(
    driver: CoordinatorDriver, topics: Topics
) -> None:
    before = topics.catalog
    assert topics.catalog is before
    create(driver, "a")
    assert topics.changes == 1
    assert "a" not in before.by_name
    assert "a" in topics.catalog.by_name


def test_only_changes_of_configs_count_as_those(driver: CoordinatorDriver, topics: Topics) -> None:
    """data fault 13: a transaction's end asks whether one of its topics may have become `disk`."""
    before = topics.config_changes
    topic = create(driver, "a")
    topics.configure(topic, {}, BY)
    topics.take_settings(driver.config, {})
    assert topics.config_changes == before
    topics.configure(topic, {"smq.durability": "disk"}, BY)
    assert topics.config_changes == before + 1
    topics.take_settings(driver.config, {"broker": {"": {"durability": "disk"}}})
    assert topics.config_changes == before + 2


def test_a_topic_beyond_the_shards_partition_limit_is_refused(driver: CoordinatorDriver) -> None:
    create(driver, "wide", partition_count=5_998)  # 2,000 may be in each of the three logs.
    with pytest.raises(BrokerError, match="delete some first") as refusal:
        create(driver, "more", partition_count=3)
    assert refusal.value.code is E.POLICY_VIOLATION
    driver.coordinator.topics.delete(driver.coordinator.topics.catalog.by_name["wide"])
    create(driver, "more", partition_count=3)


def test_a_topic_beyond_the_catalogs_size_is_refused(
    driver: CoordinatorDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_room, "TOPIC_BYTES_MAX", 1024 * 1024)
    names = ",".join(["0:1"] * 100_000)
    configs = {"leader.replication.throttled.replicas": names}
    create(driver, "a", configs=configs)
    create(driver, "b", configs=configs)
    with pytest.raises(BrokerError, match="delete some first"):
        create(driver, "c", configs=configs)
    driver.store.commit()
    driver.restart()
    with pytest.raises(BrokerError, match="delete some first"):
        create(driver, "c", configs=configs)
    assert len(driver.coordinator.topics.catalog.encode()) < 1024 * 1024


@pytest.mark.parametrize(
    ("logs", "configs", "words"),
    [
        ((0, 3), {}, "has a partition in log 3, and meta.json says that there are 3 logs"),
        ((0,), {"smq.key.columns": "a" * 1024 * 1024}, "more room than there is"),
        ((1,) * 2_001, {}, "more partitions than there is room"),
    ],
)
def test_a_store_with_topics_for_which_there_is_no_room_is_refused(
    driver: CoordinatorDriver, logs: tuple[int, ...], configs: dict[str, str], words: str
) -> None:
    """The process ended at each start, and nobody was told why."""
    numbers = tuple(range(1, len(logs) + 1))
    driver.store.add_topic(Topic("t", UUID(int=1), numbers, logs, configs), 0)
    driver.store.commit()
    with pytest.raises(StoreError, match=words):
        driver.restart()


def test_a_change_of_one_topic_does_not_visit_the_partitions_of_all(
    driver: CoordinatorDriver, topics: Topics
) -> None:
    """Not proven, of data fault 13: the places of all partitions were found anew after each change,
    by the next OffsetCommit."""
    old = create(driver, "old", partition_count=700)
    places = topics.places
    new = create(driver, "new", partition_count=2)
    assert topics.places is places
    more = topics.add_partitions(new, 3, now=driver.now)
    assert [places[number] for number in more.partition_numbers] == [(more, i) for i in range(3)]
    topics.delete(old)
    assert set(places) == set(more.partition_numbers)


def test_a_record_type_gets_optional_fields_and_loses_none(
    driver: CoordinatorDriver, topics: Topics
) -> None:
    one, other = '{"name":"a","type":"INT64"}', '{"name":"b","type":"STRING"}'
    narrow, wide = (f'{{"fields":[{each}]}}' for each in (one, f"{one},{other}"))
    topic = create(driver, "typed", configs={"smq.record.type": narrow})
    topic = topics.configure(topic, {"smq.record.type": wide}, BY)
    for text, words in ((narrow, "lacks the field b"), ("{", "not JSON")):
        with pytest.raises(BrokerError, match=words) as raised:
            topics.configure(topic, {"smq.record.type": text}, BY)
        assert raised.value.code == ErrorCode.INVALID_CONFIG


def test_typed_columns_stay_where_a_schema_takes_a_record_types_place(
    driver: CoordinatorDriver, topics: Topics
) -> None:
    record_type = '{"fields":[{"name":"key","type":"INT64"}]}'
    column = '{"name":"key_","type":"int64","from":"key"}'
    topic = create(driver, "typed", configs={"smq.record.type": record_type})
    for schema in (f'{{"fields":[{column}]}}', '{"fields":[{"name":"b","type":"bool"}]}'):
        with pytest.raises(BrokerError, match=r"smq\.schema"):
            topics.configure(topic, {"smq.record.type": record_type, "smq.schema": schema}, BY)
    more = f'{{"values":"RecordValue","fields":[{column},{{"name":"b","type":"bool"}}]}}'
    topic = topics.configure(topic, {"smq.record.type": record_type, "smq.schema": more}, BY)
    with pytest.raises(BrokerError, match="lacks the column b"):
        topics.configure(topic, {"smq.record.type": record_type}, BY)
