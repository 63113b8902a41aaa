"""The room of topics' configs: one topic's are bounded, and the long ones of all."""

from uuid import UUID

import pytest

from smq.coordinator import config_room as module
from smq.coordinator.config_room import LONG_BYTES_MAX, SHORT_BYTES, TOPIC_BYTES_MAX, ConfigRoom
from smq.coordinator.topics import NewTopic
from smq.model.catalog import Topic
from smq.model.errors import BrokerError, ErrorCode
from smq.model.topic_configs import KEY_COLUMNS, RECORD_TYPE, SCHEMA
from smq.store.config_changes import Changer
from tests.coordinator.coordinator_driver import CoordinatorDriver

BY = Changer("c", "/10.0.0.1", 5)
AROUND = len('{"smq.key.columns":""}')


def topic(size: int, name: str = KEY_COLUMNS) -> Topic:
    """A topic whose config of this name has so many bytes."""
    return Topic("t", UUID(int=1), (1,), (0,), {name: "a" * size})


def refusal(room: ConfigRoom, wanted: Topic, before: Topic | None = None) -> ErrorCode:
    """Why a topic is refused; NONE: it is not."""
    try:
        room.check(wanted, before)
    except BrokerError as refused:
        return refused.code
    return ErrorCode.NONE


def test_the_configs_of_one_topic_are_bounded() -> None:
    room, largest = ConfigRoom(), TOPIC_BYTES_MAX - AROUND
    assert refusal(room, topic(largest)) == ErrorCode.NONE
    assert refusal(room, topic(largest + 1)) == ErrorCode.INVALID_CONFIG
    assert refusal(room, topic(largest + 1), topic(largest)) == ErrorCode.INVALID_CONFIG
    with pytest.raises(BrokerError, match="may take 16384 bytes; these take 16385"):
        room.check(topic(largest + 1), None)


@pytest.mark.parametrize("name", [SCHEMA, RECORD_TYPE])
def test_types_of_records_have_a_bound_of_their_own(name: str) -> None:
    assert refusal(ConfigRoom(), topic(2 * TOPIC_BYTES_MAX, name)) == ErrorCode.NONE


def test_letters_count_as_they_are_published() -> None:
    wide = Topic("t", UUID(int=1), (1,), (0,), {KEY_COLUMNS: "\u00e9" * (TOPIC_BYTES_MAX // 5)})
    assert refusal(ConfigRoom(), wide) == ErrorCode.INVALID_CONFIG


def test_too_large_a_topic_of_an_earlier_version_stays_and_may_shrink() -> None:
    room, large = ConfigRoom(), topic(TOPIC_BYTES_MAX + 10)
    more = Topic("t", UUID(int=1), (1, 2), (0, 0), large.configs)
    assert refusal(room, more, large) == ErrorCode.NONE
    assert refusal(room, topic(TOPIC_BYTES_MAX + 9), large) == ErrorCode.NONE
    assert refusal(room, topic(TOPIC_BYTES_MAX + 11), large) == ErrorCode.INVALID_CONFIG


def test_too_large_a_topic_of_an_earlier_version_may_have_other_ordinary_settings() -> None:
    """Its retention could not be raised, which takes a letter more."""
    room, large = ConfigRoom(), topic(TOPIC_BYTES_MAX + 10)

    def having(more: dict[str, str], before: Topic) -> Topic:
        return Topic("t", UUID(int=1), (1,), (0,), {**before.configs, **more})

    short = having({"retention.ms": "60000"}, large)
    assert refusal(room, short, large) == ErrorCode.NONE
    assert refusal(room, having({"retention.ms": "600000"}, short), short) == ErrorCode.NONE
    longer = having({KEY_COLUMNS: "a" * (TOPIC_BYTES_MAX + 11)}, short)
    assert refusal(room, longer, short) == ErrorCode.INVALID_CONFIG
    another = having({"retention.ms": "6" * (SHORT_BYTES + 1)}, short)
    assert refusal(room, another, short) == ErrorCode.INVALID_CONFIG
    fits = topic(TOPIC_BYTES_MAX - AROUND)
    assert refusal(room, having({"retention.ms": "60000"}, fits), fits) == ErrorCode.INVALID_CONFIG


def test_long_configs_of_all_topics_are_bounded_and_short_ones_are_not() -> None:
    room, large, short = ConfigRoom(), topic(TOPIC_BYTES_MAX - AROUND), topic(SHORT_BYTES - AROUND)
    for _ in range(LONG_BYTES_MAX // (TOPIC_BYTES_MAX - SHORT_BYTES)):
        assert refusal(room, large) == ErrorCode.NONE
        room.count(large, +1)
    assert refusal(room, large) == ErrorCode.POLICY_VIOLATION
    with pytest.raises(BrokerError, match="beyond 256 bytes each may be 4194304 bytes in all"):
        room.check(large, None)
    assert refusal(room, short) == ErrorCode.NONE
    room.count(large, -1)
    assert refusal(room, large) == ErrorCode.NONE


def test_a_store_with_more_long_configs_starts_and_a_sentence_names_the_longest(
    driver: CoordinatorDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = driver.coordinator.topics
    for number in range(5):
        configs = {KEY_COLUMNS: "a" * (1000 + number)}
        topics.create(NewTopic(name=f"t{number}", configs=configs), driver.now)
    assert driver.coordinator.problems == []
    driver.store.commit()
    monkeypatch.setattr(module, "LONG_BYTES_MAX", 1000)
    driver.restart()
    [problem] = driver.coordinator.problems
    assert problem.endswith("as those of 't4', 't3', 't2'")
    topics = driver.coordinator.topics
    topics.create(NewTopic(name="plain", configs={"retention.ms": "5"}), driver.now)
    topics.configure(topics.find("t4"), {KEY_COLUMNS: "a" * 1003}, BY)
    topics.add_partitions(topics.find("t4"), 2, now=driver.now)
    with pytest.raises(BrokerError, match="in all: shorten or delete some first"):
        topics.configure(topics.find("t4"), {KEY_COLUMNS: "a" * 1004}, BY, validate_only=True)
    for number in range(5):
        topics.delete(topics.find(f"t{number}"))
    assert driver.coordinator.problems == []
    topics.create(NewTopic(name="b", configs={KEY_COLUMNS: "a" * 1000}), driver.now)
