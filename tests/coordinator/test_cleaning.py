"""What is no longer needed is forgotten while requests are served."""

import pytest

from smq.coordinator.deadlines import ALWAYS_MS, NEVER_MS
from smq.coordinator.topics import NewTopic
from smq.model.segments import Segment
from smq.store.rows import CommittedOffset
from tests.coordinator.coordinator_driver import CoordinatorDriver


@pytest.mark.parametrize("restarts", [False, True])
def test_a_deleted_topic_and_its_names_are_forgotten_by_ticks(
    driver: CoordinatorDriver, restarts: bool
) -> None:
    """data fault 13: DeleteTopics did all of it in the request's step."""
    topics, store = driver.coordinator.topics, driver.store
    topic = topics.create(NewTopic(name="t", partition_count=3), driver.now)
    number = topic.partition_numbers[0]
    store.commit_offsets("g", {number: CommittedOffset(1, -1, "", 0)})
    store.manifest.name_payloads("a", ["p"])
    store.manifest.commit_segments([Segment(number, 0, 9, "raw", "a", 1, 1, 1, 1, 1, 0, 1)])
    cleaning, ticks = driver.coordinator.cleaning, 0
    while cleaning.next_wake_ms() == ALWAYS_MS:
        cleaning.tick(driver.now)
    topics.delete(topic)
    store.commit()
    if restarts:
        driver.restart()
        cleaning = driver.coordinator.cleaning
    while cleaning.next_wake_ms() == ALWAYS_MS:
        cleaning.tick(driver.now)
        ticks += 1
    assert cleaning.next_wake_ms() == NEVER_MS
    assert ticks > 4, "one portion each"
    assert not driver.store.has_offsets("g")
    assert driver.store.manifest.named_payloads(["p"]) == set()
    assert driver.store.manifest.segments(number) == []
