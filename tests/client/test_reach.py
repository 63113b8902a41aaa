"""What everything is made with makes clusters of their own, which all share its clock."""

import pytest

from smq.client.consuming.consumer import Consumer
from smq.client.consuming.consumer_settings import ConsumerSettings
from smq.client.kafka.cluster import METADATA_MAX_AGE_S
from smq.client.reach import Reach
from smq.model.errors import BrokerError
from smq.testing.stepped_clock import SteppedClock
from tests.client.fake_kafka import FakeKafka


def test_each_cluster_is_ones_own(kafka: FakeKafka) -> None:
    reach = Reach(kafka.bootstrap)
    with reach.cluster() as one, reach.cluster() as other:
        assert one is not other
        one.forget()
        assert not other.anyone().is_closed
    assert reach.open_door is None


def test_a_consumer_looks_for_new_partitions_when_the_clock_is_stepped(kafka: FakeKafka) -> None:
    clock = SteppedClock(100 * 10**9)
    kafka.add_topic("a", 1)
    with Consumer(
        Reach(kafka.bootstrap, clock=clock), "a", ConsumerSettings(start="earliest")
    ) as consumer:
        kafka.add_topic("a", 2)
        assert not consumer.poll(0)
        assert len(consumer.assignment()) == 1
        clock.step(METADATA_MAX_AGE_S)
        consumer.poll(0)
        assert len(consumer.assignment()) == 2


def test_a_failing_call_is_retried_for_as_long_as_the_clock_says(kafka: FakeKafka) -> None:
    clock = SteppedClock()
    with Reach(kafka.bootstrap, deadline_seconds=3600, clock=clock).cluster() as cluster:
        attempts = 0

        def fail() -> None:
            nonlocal attempts
            attempts += 1
            cluster.address(99)

        with pytest.raises(BrokerError, match="there is no broker 99"):
            cluster.within(1, lambda: cluster.retrying(fail))
    assert attempts == 11  # One each 0.1 s.
    assert 1 <= clock.monotonic_s() < 1.2
