"""Join, sync, heartbeat and leave with a real coordinator."""

import select
from collections.abc import Iterator
from functools import partial

import pytest

import smq
from smq.client.consuming.consumer_settings import ConsumerSettings
from smq.client.consuming.group.commits import Membership
from smq.client.consuming.group.group_session import GroupSession, Stopped
from smq.client.kafka.cluster import Cluster
from smq.client.names import TopicPartition
from smq.model.errors import BrokerError, ErrorCode
from smq.testing.smq_broker import SmqBroker
from tests.client.both import client, running, topic

__all__ = ["client", "running", "topic"]  # Fixtures.


def await_readable(fileno: int) -> None:
    assert select.select([fileno], [], [], 10)[0]


@pytest.fixture
def session(running: SmqBroker, topic: str) -> Iterator[GroupSession]:
    settings = ConsumerSettings(group=topic, session_timeout_s=6)
    session = GroupSession(partial(Cluster, running.bootstrap), settings, await_readable)
    yield session
    session.leave()
    session.close()


def test_alone_one_gets_all(client: smq.Client, topic: str, session: GroupSession) -> None:
    assigned = session.join(frozenset({topic, "not there"}), frozenset())
    assert assigned == {TopicPartition(topic, each) for each in range(3)}
    assert session.membership.generation_id == 1
    session.heartbeat()
    session.forget()
    session.heartbeat()
    session.leave()
    assert session.membership == Membership()
    session.leave()


def test_the_leader_notices_new_partitions_of_a_topic(
    client: smq.Client, topic: str, session: GroupSession
) -> None:
    assert not session.has_other_partitions(), "nobody leads yet"
    session.join(frozenset({topic, topic + "-later"}), frozenset())
    assert not session.has_other_partitions()
    client.create_topic(topic + "-later", 2)
    assert session.has_other_partitions()
    session.join(frozenset({topic, topic + "-later"}), frozenset())
    assert not session.has_other_partitions()


@pytest.mark.parametrize("seconds", [1, 2000])
def test_a_refused_session_timeout_names_the_brokers_limits(
    running: SmqBroker, seconds: int
) -> None:
    settings = ConsumerSettings(group="hasty", session_timeout_s=seconds)
    session = GroupSession(partial(Cluster, running.bootstrap), settings, await_readable)
    words = f"session_timeout_s is {seconds}; it should be from 6000 to 1800000 ms, the broker's"
    with pytest.raises(BrokerError, match=words) as raised:
        session.join(frozenset({"t"}), frozenset())
    assert raised.value.code == ErrorCode.INVALID_SESSION_TIMEOUT
    session.close()


def test_a_static_member_does_not_say_that_it_leaves(
    client: smq.Client, topic: str, running: SmqBroker
) -> None:
    settings = ConsumerSettings(group=topic, group_instance_id="one", session_timeout_s=6)
    for _ in range(2):
        session = GroupSession(partial(Cluster, running.bootstrap), settings, await_readable)
        assert len(session.join(frozenset({topic}), frozenset())) == 3
        assert session.membership.generation_id == 1
        assert session.membership.instance_id == "one"
        assert not session.has_other_partitions()
        session.heartbeat()
        session.leave()
        assert session.membership == Membership()
        session.close()


def test_an_unknown_member_gets_an_error_until_it_resigns(
    client: smq.Client, topic: str, session: GroupSession
) -> None:
    session.membership = Membership(1, "stranger")
    with pytest.raises(BrokerError) as raised:
        session.heartbeat()
    assert raised.value.code == ErrorCode.UNKNOWN_MEMBER_ID
    with pytest.raises(BrokerError):
        session.join(frozenset({topic}), frozenset())
    session.resign()
    assert len(session.join(frozenset({topic}), frozenset())) == 3


def test_a_member_interrupted_in_a_heartbeat_leaves(
    client: smq.Client, topic: str, session: GroupSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.join(frozenset({topic}), frozenset())

    def stop(_: int) -> None:
        raise Stopped

    monkeypatch.setattr(session, "_await_readable", stop)
    with pytest.raises(Stopped):
        session.heartbeat()
    session.leave()
