"""Commits come back; unmoved positions are not committed again."""

import threading
from collections.abc import Iterator
from functools import partial

import pytest

import smq
from smq.client.consuming.consumer_settings import ConsumerSettings
from smq.client.consuming.group.commits import Committing, Membership
from smq.client.consuming.group.group_session import GroupSession
from smq.client.kafka.cluster import Cluster
from smq.client.names import TopicPartition
from smq.model.errors import BrokerError, ErrorCode
from smq.testing.smq_broker import SmqBroker
from smq.testing.stepped_clock import SteppedClock
from tests.client.both import client, running, topic
from tests.client.consuming.group.test_group_session import await_readable

__all__ = ["client", "running", "topic"]  # Fixtures.


EVERY_S = 60.0


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def committing(running: SmqBroker, topic: str, clock: SteppedClock) -> Iterator[Committing]:
    committing = Committing(partial(Cluster, running.bootstrap), topic, EVERY_S, clock=clock)
    yield committing
    committing.close()


def test_offsets_come_back(client: smq.Client, topic: str, committing: Committing) -> None:
    names = [TopicPartition(topic, each) for each in range(3)]
    assert committing.fetch(names) == {}
    committing.commit({names[0]: 5, names[2]: 7}, Membership()).result(10)
    assert committing.fetch(names) == {names[0]: 5, names[2]: 7}


def test_a_commit_of_a_non_member_fails(
    client: smq.Client, topic: str, committing: Committing
) -> None:
    stranger = Membership(3, "stranger")
    failed = committing.commit({TopicPartition(topic, 0): 1}, stranger).exception(10)
    assert isinstance(failed, BrokerError)
    assert failed.code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}


def test_an_unmoved_position_is_not_committed_again(
    client: smq.Client, topic: str, committing: Committing
) -> None:
    name = TopicPartition(topic, 0)
    committing.commit_if_moved({name: 5}, Membership()).result(10)
    other = Committing(committing._open_cluster, topic, None)
    other.commit({name: 9}, Membership()).result(10)
    committing.commit_if_moved({name: 5}, Membership()).result(10)
    assert other.fetch([name]) == {name: 9}
    committing.commit_if_moved({name: 6}, Membership()).result(10)
    assert other.fetch([name]) == {name: 6}
    assert not other.is_automatic
    assert not other.is_due()
    other.close()


def test_a_failed_automatic_commit_is_repeated(
    client: smq.Client, topic: str, committing: Committing
) -> None:
    name = TopicPartition(topic, 0)
    assert committing.commit_if_moved({name: 5}, Membership(3, "stranger")).exception(10)
    committing.commit_if_moved({name: 5}, Membership()).result(10)
    assert committing.fetch([name]) == {name: 5}


@pytest.fixture
def gate(committing: Committing, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Nothing is committed before it is set."""
    gate, opened = threading.Event(), committing._open_cluster

    def open_cluster() -> Cluster:
        assert gate.wait(10)
        return opened()

    monkeypatch.setattr(committing, "_open_cluster", open_cluster)
    yield gate
    gate.set()


def test_settle_waits_for_commits_in_flight(
    client: smq.Client, topic: str, committing: Committing, gate: threading.Event
) -> None:
    name, stranger = TopicPartition(topic, 0), Membership(3, "stranger")
    failing = committing.commit_if_moved({name: 5}, stranger)
    behind = committing.commit_if_moved({name: 5}, Membership())
    assert not behind.done(), "it is not known yet whether that is committed"
    asked = committing.commit({name: 6}, Membership())
    gate.set()
    committing.settle()
    assert failing.done()
    assert behind.done()
    assert asked.done()
    assert committing.fetch([name]) == {name: 6}


def test_it_is_not_due_while_the_last_one_is_on_its_way(
    client: smq.Client,
    topic: str,
    committing: Committing,
    gate: threading.Event,
    clock: SteppedClock,
) -> None:
    committing.commit_if_moved({TopicPartition(topic, 0): 5}, Membership())
    clock.step(EVERY_S)
    assert not committing.is_due()
    gate.set()
    committing.settle()
    assert committing.is_due()


def test_a_commit_during_a_rebalance_is_repeated_with_the_new_membership(
    running: SmqBroker, topic: str, committing: Committing
) -> None:
    names = [TopicPartition(topic, each) for each in range(3)]
    settings = ConsumerSettings(group=topic, session_timeout_s=6)
    session = GroupSession(partial(Cluster, running.bootstrap), settings, await_readable)
    session.join(frozenset({topic}), frozenset())
    before = session.membership
    session.join(frozenset({topic}), frozenset(names))
    assert session.membership.generation_id > before.generation_id
    who = iter([before, before, session.membership])
    committing.commit({names[0]: 5}, before, lambda: next(who)).result(10)
    assert committing.fetch(names) == {names[0]: 5}
    assert list(who) == []
    failed = committing.commit({names[0]: 6}, before, lambda: None).exception(10)
    assert isinstance(failed, BrokerError)
    assert failed.code == ErrorCode.ILLEGAL_GENERATION
    session.leave()
    session.close()


def test_a_commit_fails_while_the_group_keeps_rebalancing(running: SmqBroker, topic: str) -> None:
    committing = Committing(partial(Cluster, running.bootstrap), topic, None, deadline_seconds=0.3)
    settings = ConsumerSettings(group=topic, session_timeout_s=6)
    session = GroupSession(partial(Cluster, running.bootstrap), settings, await_readable)
    session.join(frozenset({topic}), frozenset())
    before = session.membership
    session.join(frozenset({topic}), frozenset())
    failed = committing.commit({TopicPartition(topic, 0): 5}, before, lambda: before)
    assert isinstance(failed.exception(10), BrokerError)
    session.leave()
    session.close()
    committing.close()


def test_it_is_due_after_a_while(topic: str, committing: Committing, clock: SteppedClock) -> None:
    assert committing.is_automatic
    assert not committing.is_due()
    clock.step(EVERY_S)
    assert committing.is_due()
