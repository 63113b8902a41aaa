"""Waits before a record is taken, and changes during them."""

import threading
import time

import pytest

from smq.client.errors import NoSuchTopic
from smq.client.producing.delivery.futures import BufferFull, Future
from tests.client.fake_kafka import FakeKafka
from tests.client.producers import OPTIONS, WAIT_S, Open, open_producer

__all__ = ["open_producer"]  # A fixture.


def values(kafka: FakeKafka) -> list[list[int]]:
    return [[int(each.value or b"") for each in there.records()] for there in kafka.topics["t"]]


def test_send_to_a_missing_topic_raises_no_such_topic(open_producer: Open) -> None:
    producer = open_producer()
    with pytest.raises(NoSuchTopic):
        producer.send("nope", b"0")


def test_a_full_buffer_waits_and_then_refuses(kafka: FakeKafka, open_producer: Open) -> None:
    kafka.add_topic("t")
    producer = open_producer(block_s=0, buffer_bytes=3 * OPTIONS.batch_bytes)
    kafka.takes_records.clear()
    taken: list[Future] = []

    def send_many() -> None:
        for number in range(100):
            taken.append(producer.send("t", b"%d" % number + b" " * 60_000))  # noqa: PERF401  (It raises.)

    with pytest.raises(BufferFull, match="bytes linger, or wait to be acknowledged"):
        send_many()
    kafka.takes_records.set()
    assert taken[-1].result(WAIT_S).offset == len(taken) - 1
    producer.send("t", b"%d" % len(taken)).result(WAIT_S)
    assert values(kafka) == [[*range(len(taken) + 1)]]


def test_a_send_that_may_block_continues_when_there_is_room(
    kafka: FakeKafka, open_producer: Open
) -> None:
    kafka.add_topic("t")
    producer = open_producer(block_s=WAIT_S, buffer_bytes=2 * OPTIONS.batch_bytes)
    kafka.takes_records.clear()
    start = time.monotonic()
    threading.Timer(0.2, kafka.takes_records.set).start()
    for number in range(10):
        producer.send("t", b"%d" % number + b" " * 60_000)
    assert time.monotonic() - start > 0.1
    producer.flush(WAIT_S)
    assert values(kafka) == [[*range(10)]]


def test_a_topic_deleted_while_a_record_waits_for_room_raises_no_such_topic(
    kafka: FakeKafka, open_producer: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.add_topic("t")
    producer = open_producer(linger_ms=60_000)
    sender = producer._sender
    assert sender is not None
    producer.send("t", b"0")
    producer.flush(WAIT_S)

    def delete(_: int) -> None:
        del kafka.topics["t"]
        sender._topics.drop("t")
        assert sender._links._cluster is not None
        sender._links._cluster.forget()

    has_room = iter([False, True, True])
    monkeypatch.setattr(sender.outbox.open_parcels, "has_room", lambda _: next(has_room))
    monkeypatch.setattr(sender.admission, "_wait_for_room", delete)
    with pytest.raises(NoSuchTopic):
        producer.send("t", b"1")


def test_a_send_in_a_callback_without_room_raises_buffer_full_at_once(
    kafka: FakeKafka, open_producer: Open
) -> None:
    kafka.add_topic("t")
    producer = open_producer(buffer_bytes=1)
    told = threading.Event()

    def send_two(_: Future) -> None:
        kafka.takes_records.clear()
        producer.send("t", b"1")
        try:
            producer.send("t", b"2")
        except BufferFull:
            told.set()

    producer.send("t", b"0", callback=send_two)
    assert told.wait(OPTIONS.block_s / 2)
