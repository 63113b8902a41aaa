"""Cooperative rebalances of unmodified clients (KIP-429): only what moves is revoked."""

from collections.abc import Iterator
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from smq.testing.processes import Broker
from tests.app.fake_broker import eventually
from tests.clients.brokers import running

pytestmark = [pytest.mark.clients, pytest.mark.timeout(120)]

SECONDS_MAX = 30
PARTITIONS = 4


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running(tmp_path_factory.mktemp("broker")) as started:
        yield started


class Member:
    """A consumer of a group, and what it was told to give up."""

    def __init__(self, broker: Broker, group: str, topic: str) -> None:
        self.revoked: set[int] = set()
        self._consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": group,
                "partition.assignment.strategy": "cooperative-sticky",
                "heartbeat.interval.ms": 200,
                "session.timeout.ms": 10_000,
            }
        )
        self._consumer.subscribe([topic], on_revoke=self._note)

    def _note(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.revoked |= {each.partition for each in partitions}

    def partitions(self) -> set[int]:
        """Those it has now, after another look at the group."""
        self._consumer.poll(0.05)
        return {each.partition for each in self._consumer.assignment()}

    def close(self) -> None:
        self._consumer.close()


def test_a_member_keeps_what_stays_its_own(broker: Broker) -> None:
    topic, group = f"t-{uuid4().hex[:8]}", f"g-{uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(SECONDS_MAX)
    first = Member(broker, group, topic)
    everything = set(range(PARTITIONS))
    eventually(lambda: first.partitions() == everything, "the only member has all")
    second = Member(broker, group, topic)

    def shared() -> bool:
        of_first, of_second = first.partitions(), second.partitions()
        return len(of_second) == PARTITIONS // 2 and of_first | of_second == everything

    eventually(shared, "each has its half")
    assert first.revoked == second.partitions(), "what moved, and nothing else"
    assert not second.revoked
    second.close()
    eventually(lambda: first.partitions() == everything, "the one that is left has all again")
    first.close()
