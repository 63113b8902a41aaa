"""The producer's thread: the callbacks it calls, and how it ends."""

import threading

import pytest

from smq.client.errors import Closed
from smq.client.producing.delivery.futures import Future
from smq.client.producing.producer import Producer
from smq.client.reach import Reach
from smq.model.errors import ErrorCode
from tests.client.fake_kafka import FakeKafka
from tests.client.producers import OPTIONS, WAIT_S, Open, open_producer

__all__ = ["open_producer"]  # A fixture.


def values(kafka: FakeKafka) -> list[list[int]]:
    return [[int(each.value or b"") for each in there.records()] for there in kafka.topics["t"]]


def test_callbacks_come_from_the_thread_and_may_send_but_not_wait(
    kafka: FakeKafka, open_producer: Open
) -> None:
    kafka.add_topic("t")
    producer = open_producer()
    outcome: list[object] = []
    done = threading.Event()

    def call_back(future: Future) -> None:
        again = producer.send("t", b"1")
        try:
            again.result()
        except RuntimeError as error:
            outcome.append(str(error))
        again.add_done_callback(lambda _: done.set())
        raise ValueError("of the user")

    producer.send("t", b"0", callback=call_back)
    assert done.wait(WAIT_S)
    assert outcome == ["a callback must not wait: it is called by the thread that sends"]
    assert values(kafka) == [[0, 1]]


def test_records_of_an_open_parcel_are_given_up_when_the_thread_fails(
    kafka: FakeKafka, open_producer: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.add_topic("t")
    producer, called = open_producer(linger_ms=60_000), threading.Event()
    sent = producer.send("t", b"0", callback=lambda _: called.set())
    sender = producer._sender
    assert sender is not None
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    monkeypatch.setattr(sender._thread, "_do_round", None)  # Our bug, whatever it is.
    sender.outbox.wake()
    assert called.wait(WAIT_S)
    with pytest.raises(Closed):
        sent.result(0)


def test_a_callback_that_would_end_its_process_does_not_end_the_thread(
    kafka: FakeKafka, open_producer: Open
) -> None:
    kafka.add_topic("t")
    producer, called = open_producer(), threading.Event()

    def call_back(_: Future) -> None:
        called.set()
        raise SystemExit

    kafka.takes_records.clear()
    producer.send("t", b"0", callback=call_back)
    kafka.takes_records.set()
    assert called.wait(WAIT_S)
    assert producer.send("t", b"1").result(WAIT_S).offset == 1


def test_a_record_lost_with_a_dropped_producer_is_logged(
    kafka: FakeKafka, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.add_topic("t")
    kafka.faults["Produce"] += [ErrorCode.INVALID_TIMESTAMP]
    producer = Producer(Reach(kafka.bootstrap, None, 5), OPTIONS)
    producer.send("t", b"0")
    sender = producer._sender
    assert sender is not None
    with pytest.warns(ResourceWarning):
        del producer
    sender._thread._thread.join(WAIT_S)
    assert caplog.messages == [
        "1 records could not be sent: their producer was dropped without close()"
    ]


def test_a_producer_is_closed_in_a_callback_without_waiting_and_sends_what_it_has(
    kafka: FakeKafka, open_producer: Open
) -> None:
    kafka.add_topic("t")
    producer = open_producer()
    outcome: list[object] = []

    def close(_: Future) -> None:
        outcome.append(producer.send("t", b"1"))
        try:
            producer.flush()
        except RuntimeError as error:
            outcome.append(str(error))
        producer.close()
        try:
            producer.send("t", b"2")
        except Closed as error:
            outcome.append(str(error))

    producer.send("t", b"0", callback=close)
    assert producer._sender is not None
    producer._sender._thread._thread.join(WAIT_S)
    later, *said = outcome
    assert isinstance(later, Future)
    assert later.result(0).offset == 1
    assert said == [
        "a callback must not wait: it is called by the thread that sends",
        "the producer has been closed",
    ]
    assert values(kafka) == [[0, 1]]
