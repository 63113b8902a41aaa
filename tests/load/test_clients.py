"""Producers and consumers behind one face, against a broker."""

import time
from collections.abc import Callable
from uuid import uuid4

import pytest

from smq.load.clients import QueueFull, ceiling, consumer_of, producer_of
from smq.load.workload import Workload
from smq.testing.smq_broker import SmqBroker

pytestmark = pytest.mark.slow


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline


@pytest.mark.parametrize("client", ["kafka", "sdk", "reference"])
def test_stamps_are_delivered_and_outcomes_reported_on_request(
    smq_session_broker: SmqBroker, client: str
) -> None:
    topic = uuid4().hex[:8]
    with smq_session_broker.connect() as sdk:
        sdk.create_topic(topic, 2)
    workload = Workload(message_size=100, client=client)
    told: list[tuple[int, bool]] = []
    producer = producer_of(
        smq_session_broker.bootstrap, workload, topic, lambda *each: told.append(each)
    )
    for number in range(10):
        producer.send(number, told=number % 2 == 0)
    producer.finish(30)
    until(lambda: producer.unfinished() == 0)
    assert sorted(told) == [(number, True) for number in range(0, 10, 2)]
    assert producer.failed == 0
    producer.close()
    consumer = consumer_of(smq_session_broker.bootstrap, workload, topic, f"{topic}-group")
    stamps: list[int] = []

    def all_are_taken() -> bool:
        taken = consumer.take(0.1, 1)
        assert len(taken.stamps) == taken.messages
        stamps.extend(taken.stamps)
        return len(stamps) == 10

    until(all_are_taken)
    assert sorted(stamps) == [*range(10)]
    assert 0 < consumer.assigned_ns() <= time.monotonic_ns()
    consumer.commit()
    consumer.close()


def test_a_full_queue_says_so_and_a_dead_broker_fails_messages() -> None:
    few = {"queue.buffering.max.messages": "2", "message.timeout.ms": "300"}
    workload = Workload(message_size=10, producer_config=few)
    told: list[bool] = []
    producer = producer_of("127.0.0.1:1", workload, "t", lambda _due, ok: told.append(ok))
    producer.send(1, told=True)
    producer.send(2, told=True)
    with pytest.raises(QueueFull):
        producer.send(3, told=True)
    producer.finish(30)
    assert (told, producer.failed, producer.unfinished()) == ([False, False], 2, 0)


def test_the_client_alone_has_a_ceiling() -> None:
    found = ceiling(Workload(message_size=100), 0.2)
    assert found["msg_s"] > 1000
    assert found["mb_s"] > 0
