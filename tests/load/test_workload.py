"""A workload: its fields, its steps, and refusals."""

from typing import Any

import pytest

from smq.load.workload import RULES, BadWorkload, Workload, documentation, steps_of

OF_THE_OPENMESSAGING_BENCHMARK = {
    "name": "1 topic / 16 partitions / 1Kb",
    "topics": 1,
    "partitionsPerTopic": 16,
    "keyDistributor": "NO_KEY",
    "messageSize": 1024,
    "payloadFile": "payload/payload-1Kb.data",
    "subscriptionsPerTopic": 2,
    "consumerPerSubscription": 3,
    "producersPerTopic": 4,
    "producerRate": 50000,
    "consumerBacklogSizeGB": 0.5,
    "testDurationMinutes": 15,
    "warmupDurationMinutes": 0.5,
}


def test_a_workload_of_the_openmessaging_benchmark_is_read_as_it_is() -> None:
    ((changes, workload),) = steps_of(OF_THE_OPENMESSAGING_BENCHMARK, "file")
    assert changes == {}
    assert workload == Workload(
        name="1 topic / 16 partitions / 1Kb",
        partitions_per_topic=16,
        message_size=1024,
        subscriptions_per_topic=2,
        consumer_per_subscription=3,
        producers_per_topic=4,
        producer_rate=50000.0,
        consumer_backlog_size_gb=0.5,
        test_duration_minutes=15.0,
        warmup_duration_minutes=0.5,
    )
    assert workload.test_seconds == 900
    assert workload.backlog_messages == 500_000_000 // 1024


def test_lists_of_values_make_a_step_for_each_combination() -> None:
    document = {"messageSize": [10, 100], "producerRate": 5, "topics": [1, 2]}
    steps = steps_of(document, "file")
    assert [dict(step.changes) for step in steps] == [
        {"messageSize": size, "topics": topics} for size in (10, 100) for topics in (1, 2)
    ]
    assert [(step.workload.message_size, step.workload.topics) for step in steps] == [
        (10, 1), (10, 2), (100, 1), (100, 2),
    ]  # fmt: skip
    assert {step.workload.name for step in steps} == {"file"}


def test_a_given_value_replaces_a_field_and_its_list() -> None:
    (step,) = steps_of({"messageSize": [10, 100]}, "file", {"messageSize": 50})
    assert step.workload.message_size == 50


def test_rates_may_be_searched_or_without_bound() -> None:
    (searched, unbound) = steps_of({"producerRate": [0, "max"]}, "file")
    assert searched.workload.searches
    assert not unbound.workload.searches
    assert unbound.workload.producer_rate is None
    assert searched.workload.trial(7.0, 5, 2).test_seconds == 5
    assert searched.workload.at_rate(7.0).producer_rate == 7.0


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (None, "a workload is a list of fields"),
        ([1], "a workload is a list of fields"),
        ({"topcs": 1}, "topcs: there is no such field; there are name, topics"),
        ({"topics": 0}, "topics is 0; it takes a whole number of at least 1"),
        ({"topics": True}, "topics is True"),
        ({"topics": "1"}, "topics is '1'"),
        ({"messageSize": 7}, "at least 8"),
        ({"producerRate": "fast"}, "or max"),
        ({"producerRate": float("nan")}, "or max"),
        ({"producerRate": -1}, "or max"),
        ({"testDurationMinutes": 0}, "at least 0.001"),
        ({"randomBytesRatio": 1.5}, "at most 1"),
        ({"client": "pulsar"}, "one of kafka, sdk, reference"),
        ({"topicConfig": 3}, "names and their values"),
        ({"keyDistributor": "RANDOM_NANO"}, "one of NO_KEY"),
        ({"name": ""}, "name is ''"),
        ({"topics": []}, "a list of values has at least one"),
        (
            {"consumerBacklogSizeGB": 1, "subscriptionsPerTopic": 0, "producerRate": 1},
            "needs subscriptionsPerTopic",
        ),
        ({"consumerBacklogSizeGB": 1}, "needs a producerRate"),
    ],
)
def test_an_invalid_workload_is_refused_with_a_sentence(document: Any, says: str) -> None:
    with pytest.raises(BadWorkload, match=says):
        steps_of(document, "file")


def test_settings_of_kafka_are_text() -> None:
    document = {"topicConfig": {"retention.ms": 1000, "preallocate": True}}
    ((_, workload),) = steps_of(document, "file")
    assert workload.topic_config == {"retention.ms": "1000", "preallocate": "true"}


def test_every_field_is_documented() -> None:
    assert all(f"| `{name}` | " in documentation() for name in RULES)
