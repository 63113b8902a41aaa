"""A record that is sent alone."""

import select
import threading

import pytest

from smq.client.producing.single_sender import BURST_NS, SINGLES_MAX
from tests.client.fake_kafka import FakeKafka
from tests.client.producers import WAIT_S, Open, open_producer

__all__ = ["open_producer"]  # A fixture.


def test_a_record_goes_alone_unless_it_follows_fast_or_too_many_have_not_been_heard_of(
    kafka: FakeKafka, open_producer: Open
) -> None:
    kafka.add_topic("t")
    producer = open_producer()
    producer.send("t", b"0").result(WAIT_S)
    sender, now_ns = producer._sender, 10**9
    assert sender is not None
    with sender.lock:
        singles = sender._single_sender
        singles._sent_ns = now_ns
        assert singles._may_go_alone(0, now_ns)
        assert not singles._may_go_alone(1, now_ns + BURST_NS + 1), "the thread will tell"
        sender._exchange.is_napping = True
        assert singles._may_go_alone(1, now_ns + BURST_NS + 1)
        assert not singles._may_go_alone(1, now_ns + BURST_NS)
        assert not singles._may_go_alone(SINGLES_MAX, now_ns + BURST_NS + 1)
        sender._exchange.is_napping = False


def test_the_rest_of_a_single_record_that_a_socket_does_not_take_is_pushed_by_the_thread(
    kafka: FakeKafka, open_producer: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.add_topic("t")
    producer, woken = open_producer(), threading.Event()
    producer.send("t", b"0").result(WAIT_S)
    sender = producer._sender
    assert sender is not None
    with sender.lock:
        (channel,) = sender._exchange._by_node.values()
        monkeypatch.setattr(channel, "events", lambda: select.POLLIN | select.POLLOUT)
        monkeypatch.setattr(sender._exchange, "wake", woken.set)
    sent = producer.send("t", b"1")
    assert woken.is_set()
    monkeypatch.undo()
    assert sent.result(WAIT_S).offset == 1


def test_no_record_goes_alone_while_a_transaction_ends(
    kafka: FakeKafka, open_producer: Open
) -> None:
    kafka.add_topic("t")
    producer = open_producer()
    producer.send("t", b"0").result(WAIT_S)
    sender = producer._sender
    assert sender is not None
    sender._state.why_not = "the transaction is over"
    with pytest.raises(RuntimeError, match="is over"):
        producer.send("t", b"1")
    sender._state.why_not = None
    assert producer.send("t", b"2").result(WAIT_S).offset == 1
