"""Publish sessions: a principal's own, and bounded."""

from typing import Any
from uuid import UUID

from smq.agent.answers import PublishAnswer
from smq.agent.layouts import RingLayout
from smq.agent.topic_names import TopicName
from smq.app.agent.live import Live, LivePublisher
from smq.app.agent.publish_sessions import PublishSession, PublishSessions, SessionPublishers
from smq.app.agent.topics import KnownTopic

TOPIC = KnownTopic(TopicName("shop", "orders"), UUID(int=1), {}, (RingLayout(1, 2),))


def session(owner: str) -> PublishSession:
    topic: Any = None
    return PublishSession(topic, "p", owner)


def test_a_session_is_for_its_owner_alone() -> None:
    sessions = PublishSessions()
    sessions.begin(7, session("alice"))
    assert sessions.find(7, "bob") is None
    assert sessions.end(7, "bob") is None
    assert sessions.find(7, "alice") == session("alice")
    assert sessions.end(7, "alice") == session("alice")
    assert sessions.find(7, "alice") is None
    sessions.invariants()


def test_a_principal_with_many_sessions_loses_its_own_oldest() -> None:
    sessions = PublishSessions(sessions_max=5, of_one_max=3)
    sessions.begin(0, session("alice"))
    for number in range(1, 10):
        sessions.begin(number, session("bob"))
        sessions.invariants()
    assert sessions.find(0, "alice") is not None
    assert [each for each in range(10) if sessions.find(each, "bob")] == [7, 8, 9]


def test_of_too_many_the_oldest_goes() -> None:
    sessions = PublishSessions(sessions_max=2, of_one_max=2)
    for number, owner in enumerate("abc"):
        sessions.begin(number, session(owner))
        sessions.invariants()
    assert [sessions.find(number, owner) is None for number, owner in enumerate("abc")] == [
        True,
        False,
        False,
    ]


def test_a_session_is_a_publisher_to_each_partition_that_has_its_records() -> None:
    live = Live[LivePublisher]()
    publishers = SessionPublishers(live, PublishSession(TOPIC, "till-7", "alice"), "peer")
    assert [*live.of(TOPIC.id)] == []
    for partition, offset in ((1, 5), (0, 3), (1, 6), (2, 9), (0, -1)):
        publishers.note(PublishAnswer(1, offset, offset, 1, partition=partition))
    found = [*live.of(TOPIC.id)]
    assert [(each.partition.start, each.acked_offset) for each in found] == [(1260, 6), (0, 3)]
    assert {(each.name, each.client_id) for each in found} == {("till-7", "peer")}
    publishers.end()
    assert [*live.of(TOPIC.id)] == []
