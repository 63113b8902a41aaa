"""DeleteTopics: by name or by id, each once; an ambiguous request deletes nothing."""

from uuid import UUID

import pytest

from smq.model.errors import ErrorCode
from smq.wire.generated.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.gateway.apis.rights import limited
from tests.gateway.coordinator_bench import CoordinatorBench
from tests.gateway.groups import make_topic

E = ErrorCode


def delete(
    bench: CoordinatorBench, version: int, *states: DeleteTopicState
) -> list[tuple[str | None, int]]:
    answer = bench.ask("DeleteTopics", version, DeleteTopicsRequest(topics=states))
    return [(each.name, each.error_code) for each in answer.responses]


@pytest.mark.parametrize("version", range(1, 7))
def test_a_topic_goes_by_its_name(bench: CoordinatorBench, version: int) -> None:
    make_topic(bench, "t")
    gone, kept = DeleteTopicState(name="t"), DeleteTopicState(name="none")
    assert delete(bench, version, gone, kept) == [
        ("t", E.NONE),
        ("none", E.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert bench.coordinator.topics.catalog.by_name == {}


def test_a_topic_goes_by_its_id(bench: CoordinatorBench) -> None:
    topic = make_topic(bench, "t")
    states = [DeleteTopicState(topic_id=topic.id), DeleteTopicState(topic_id=UUID(int=9))]
    assert delete(bench, 6, *states) == [("t", E.NONE), (None, E.UNKNOWN_TOPIC_ID)]
    assert bench.coordinator.topics.catalog.by_name == {}


@pytest.mark.parametrize(
    ("states", "sentence"),
    [
        ([DeleteTopicState()], "Neither topic name nor id were specified."),
        (
            [DeleteTopicState(name="t", topic_id=UUID(int=9))],
            "You may not specify both topic name and topic id.",
        ),
        ([DeleteTopicState(name="t")] * 2, "Duplicate topic name."),
        ([DeleteTopicState(topic_id=UUID(int=9))] * 2, "Duplicate topic id."),
    ],
)
def test_an_ambiguous_request_deletes_nothing(
    bench: CoordinatorBench, states: list[DeleteTopicState], sentence: str
) -> None:
    make_topic(bench, "t")
    answer = bench.ask("DeleteTopics", 6, DeleteTopicsRequest(topics=states))
    [result] = answer.responses
    assert (result.error_code, result.error_message) == (E.INVALID_REQUEST, sentence)
    assert "t" in bench.coordinator.topics.catalog.by_name


def test_a_topic_named_both_ways_is_refused_once_and_stays(bench: CoordinatorBench) -> None:
    topic = make_topic(bench, "t")
    answers = delete(bench, 6, DeleteTopicState(name="t"), DeleteTopicState(topic_id=topic.id))
    assert answers == [("t", E.INVALID_REQUEST)]
    assert bench.coordinator.topics.catalog.find("t") is not None


def test_a_repeated_name_is_ambiguous_to_every_client(bench: CoordinatorBench) -> None:
    make_topic(bench, "t")
    limited(bench, "alice", "")
    assert delete(bench, 6, *[DeleteTopicState(name="t")] * 2) == [("t", E.INVALID_REQUEST)]
