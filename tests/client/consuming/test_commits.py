"""What is committed comes back; what has not moved is not told again."""

from collections.abc import Iterator
from functools import partial

import pytest

import smq
from smq.client.consuming.commits import Committing, Membership, by_topic
from smq.client.consuming.record import TopicPartition
from smq.client.kafka.cluster import Cluster
from smq.model.errors import BrokerError, ErrorCode
from smq.testing.smq_broker import SmqBroker
from tests.client.both import client, running, topic

__all__ = ["client", "running", "topic"]  # Fixtures.


@pytest.fixture
def committing(running: SmqBroker, topic: str) -> Iterator[Committing]:
    committing = Committing(partial(Cluster, running.bootstrap), topic, 60)
    yield committing
    committing.close()


def test_offsets_come_back(client: smq.Client, topic: str, committing: Committing) -> None:
    names = [TopicPartition(topic, each) for each in range(3)]
    assert committing.fetch(names) == {}
    committing.commit({names[0]: 5, names[2]: 7}, Membership()).result(10)
    assert committing.fetch(names) == {names[0]: 5, names[2]: 7}


def test_who_is_no_member_is_told(client: smq.Client, topic: str, committing: Committing) -> None:
    stranger = Membership(3, "stranger")
    failed = committing.commit({TopicPartition(topic, 0): 1}, stranger).exception(10)
    assert isinstance(failed, BrokerError)
    assert failed.code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}


def test_what_has_not_moved_is_not_committed_again(
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


def test_it_is_due_after_a_while(
    topic: str, committing: Committing, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert committing.is_automatic
    assert not committing.is_due()
    monkeypatch.setattr("smq.client.consuming.commits.time.monotonic", lambda: committing._due_at)
    assert committing.is_due()


def test_partitions_by_topic() -> None:
    names = [TopicPartition("a", 1), TopicPartition("b", 0), TopicPartition("a", 0)]
    assert by_topic(names) == {"a": [1, 0], "b": [0]}
