"""A producer's memory stays within its bound, wherever its records are."""

import threading
from contextlib import suppress

import pytest

from smq.client.producing.delivery.futures import BufferFull
from smq.client.producing.open_parcels import FIRST_BYTES
from tests.client.fake_kafka import FakeKafka
from tests.client.producers import OPTIONS, WAIT_S, Open, open_producer

__all__ = ["open_producer"]  # A fixture.

TOPICS = [f"t{number}" for number in range(8)]
VALUE = bytes(1000)


def test_records_that_linger_in_many_topics_fill_the_buffer(
    kafka: FakeKafka, open_producer: Open
) -> None:
    producer = open_producer(block_s=0, buffer_bytes=2 * OPTIONS.batch_bytes, linger_ms=60_000)
    for topic in TOPICS:
        kafka.add_topic(topic)
        producer.send(topic, VALUE)
    producer.flush(WAIT_S)
    kafka.takes_records.clear()
    taken = 0
    with suppress(BufferFull):
        for topic in TOPICS * (OPTIONS.batch_bytes // len(VALUE)):
            producer.send(topic, VALUE)
            taken += len(VALUE)
    assert OPTIONS.batch_bytes < taken <= 2 * OPTIONS.batch_bytes
    kafka.takes_records.set()
    producer.flush(WAIT_S)
    assert sum(kafka.topics[topic][0].end for topic in TOPICS) == len(TOPICS) + taken // len(VALUE)
    sender = producer._sender
    assert sender is not None
    assert (
        sender.outbox.open_parcels._reserved_bytes,
        sender._accumulator.pending.buffered_bytes,
    ) == (0, 0)


def test_a_send_that_waits_for_room_does_not_wait_for_linger(
    kafka: FakeKafka, open_producer: Open
) -> None:
    producer = open_producer(block_s=WAIT_S, buffer_bytes=4 * FIRST_BYTES, linger_ms=60_000)
    for topic in TOPICS:
        kafka.add_topic(topic)
        producer.send(topic, bytes(FIRST_BYTES))
    assert kafka.wait_for(lambda: any(kafka.topics[each][0].end for each in TOPICS), WAIT_S)


def test_lingering_records_are_sent_once_records_in_flight_would_leave_enough_room(
    kafka: FakeKafka, open_producer: Open
) -> None:
    producer = open_producer(
        block_s=WAIT_S, buffer_bytes=100_000, batch_bytes=70_000, linger_ms=60_000
    )
    for topic in TOPICS:
        kafka.add_topic(topic)
        producer.send(topic, b"")
    producer.flush(WAIT_S)
    kafka.takes_records.clear()
    producer.send_batch(TOPICS[0], {"value": [bytes(40_000)]})
    for _ in range(30):
        producer.send(TOPICS[1], VALUE)
    threading.Timer(0.2, kafka.takes_records.set).start()
    producer.send(TOPICS[2], bytes(69_000))
    producer.flush(WAIT_S)


def test_lingering_records_are_sent_for_a_record_as_large_as_the_buffer(
    kafka: FakeKafka, open_producer: Open
) -> None:
    producer = open_producer(block_s=WAIT_S, buffer_bytes=10_000, linger_ms=60_000)
    for topic in TOPICS:
        kafka.add_topic(topic)
    producer.send(TOPICS[0], VALUE)
    producer.send(TOPICS[1], bytes(10_000))
    assert kafka.wait_for(lambda: kafka.topics[TOPICS[0]][0].end == 1, WAIT_S)


def test_a_record_larger_than_a_batch_has_room_as_it_is(
    kafka: FakeKafka, open_producer: Open
) -> None:
    kafka.add_topic("t")
    producer = open_producer(block_s=0, buffer_bytes=10_000, batch_bytes=1024)
    producer.send("t", b"").result(WAIT_S)
    kafka.takes_records.clear()
    producer.send("t", bytes(6000))
    with pytest.raises(BufferFull):
        producer.send("t", bytes(6000))
    kafka.takes_records.set()


def test_a_batch_of_which_nothing_was_taken_says_so_also_if_it_names_partitions(
    kafka: FakeKafka, open_producer: Open
) -> None:
    kafka.add_topic("t")
    producer = open_producer(block_s=0, buffer_bytes=10)
    producer.send("t", b"").result(WAIT_S)
    kafka.takes_records.clear()
    producer.send("t", VALUE)
    with pytest.raises(BufferFull) as raised:
        producer.send_batch("t", {"value": [b"x"], "partition": [0]})
    assert raised.value.sent is not None
    assert len(raised.value.sent.result(WAIT_S).offsets) == 0
    kafka.takes_records.set()
