"""The producer's thread: what lingers, waits, is lost, comes back, is refused."""

import asyncio
import select
import subprocess
import sys
import threading
import time
from contextlib import suppress

import pytest

from smq.client.errors import BrokerUnavailable, BufferFull, Closed, NoSuchTopic
from smq.client.producing import sender as sender_file, topics as topics_file
from smq.client.producing.futures import Future
from smq.client.producing.producer import Producer
from smq.client.producing.sender import BURST_NS, SINGLES_MAX
from smq.client.reach import Reach
from smq.model.errors import BrokerError, ErrorCode
from tests.client.fake_kafka import FakeKafka, FakePartition
from tests.client.producers import OPTIONS, WAIT_S, Open, open_producer

__all__ = ["open_producer"]  # A fixture.


def values(kafka: FakeKafka) -> list[list[int]]:
    return [[int(each.value or b"") for each in there.records()] for there in kafka.topics["t"]]


def test_a_record_leaves_at_once_and_those_behind_it_share_a_batch(
    kafka: FakeKafka, open_producer: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender_file, "HOLD_MS", 60_000)
    (partition,) = kafka.add_topic("t")
    producer = open_producer()
    producer.send("t", b"0").result(WAIT_S)
    kafka.takes_records.clear()
    sent = [producer.send("t", b"%d" % number) for number in range(1, 101)]
    kafka.takes_records.set()
    assert [each.result(WAIT_S).offset for each in sent] == list(range(1, 101))
    assert len(partition.batches) == 3


def test_a_record_goes_alone_unless_it_follows_fast_or_too_many_have_not_been_heard_of(
    kafka: FakeKafka, open_producer: Open
) -> None:
    kafka.add_topic("t")
    producer = open_producer()
    producer.send("t", b"0").result(WAIT_S)
    sender, now_ns = producer._sender, 10**9
    assert sender is not None
    with sender.lock:
        sender._single_ns = now_ns
        assert sender._may_go_alone(0, now_ns)
        assert not sender._may_go_alone(1, now_ns + BURST_NS + 1), "the thread will tell"
        sender._exchange.is_deaf = True
        assert sender._may_go_alone(1, now_ns + BURST_NS + 1)
        assert not sender._may_go_alone(1, now_ns + BURST_NS)
        assert not sender._may_go_alone(SINGLES_MAX, now_ns + BURST_NS + 1)
        sender._exchange.is_deaf = False


def test_the_rest_of_a_single_record_that_a_socket_does_not_take_is_pushed_by_the_thread(
    kafka: FakeKafka, open_producer: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.add_topic("t")
    producer, woken = open_producer(), threading.Event()
    producer.send("t", b"0").result(WAIT_S)
    sender = producer._sender
    assert sender is not None
    with sender.lock:
        (channel,) = sender._exchange.channels.values()
        monkeypatch.setattr(channel, "events", lambda: select.POLLIN | select.POLLOUT)
        monkeypatch.setattr(sender, "_wake", woken.set)
    sent = producer.send("t", b"1")
    assert woken.is_set()
    monkeypatch.undo()
    assert sent.result(WAIT_S).offset == 1


def test_records_linger_for_company(kafka: FakeKafka, open_producer: Open) -> None:
    (partition,) = kafka.add_topic("t")
    producer = open_producer(linger_ms=100)
    sent = [producer.send("t", b"%d" % number) for number in range(10)]
    assert not sent[0].done()
    assert sent[-1].result(WAIT_S).offset == 9
    assert len(partition.batches) == 1
    producer.send("t", b"10")
    producer.flush(WAIT_S)  # Whoever flushes does not linger.
    assert values(kafka) == [[*range(11)]]


def test_a_full_batch_does_not_linger(kafka: FakeKafka, open_producer: Open) -> None:
    kafka.add_topic("t")
    producer = open_producer(linger_ms=60_000)
    assert producer.send("t", bytes(OPTIONS.batch_bytes)).result(WAIT_S).offset == 0


@pytest.mark.parametrize("fault", ["close", "close after"])
def test_a_lost_answer_neither_loses_nor_doubles_records(
    kafka: FakeKafka, open_producer: Open, fault: str
) -> None:
    kafka.add_topic("t", 2)
    producer = open_producer()
    for number in range(6):
        kafka.faults["Produce"] += [fault] if number % 2 else []
        producer.send("t", b"%d" % number, partition=number % 2)
        producer.flush(WAIT_S)
    assert values(kafka) == [[0, 2, 4], [1, 3, 5]]


def test_records_follow_a_leader_that_moves(kafka: FakeKafka, open_producer: Open) -> None:
    (partition,) = kafka.add_topic("t")
    producer = open_producer()
    for node in (1, 2, 1):
        partition.leader = node
        producer.send("t", b"%d" % node).result(WAIT_S)
    assert values(kafka) == [[1, 2, 1]]


def test_a_channel_that_closed_under_the_thread_is_replaced(
    kafka: FakeKafka, open_producer: Open
) -> None:
    kafka.add_topic("t")
    producer = open_producer()
    for number in range(20):
        producer.send("t", b"%d" % number).result(WAIT_S)
        assert producer._sender is not None
        for channel in list(producer._sender._exchange.channels.values()):
            channel.close()  # As a door does for the thread that finds its shard gone.
    assert values(kafka) == [[*range(20)]]


def test_a_broker_that_is_away_for_long_fails_what_waits(
    kafka: FakeKafka, open_producer: Open
) -> None:
    kafka.add_topic("t")
    producer = open_producer(delivery_timeout_s=0.3)
    producer.send("t", b"0").result(WAIT_S)
    kafka.close()
    with pytest.raises(BrokerUnavailable, match="t-0 "):
        producer.send("t", b"1").result(WAIT_S)


def test_a_refusal_is_told_to_the_future_or_else_by_flush(
    kafka: FakeKafka, open_producer: Open
) -> None:
    kafka.add_topic("t")
    producer = open_producer()
    kafka.faults["Produce"] += [ErrorCode.INVALID_TIMESTAMP]
    with pytest.raises(BrokerError, match="INVALID_TIMESTAMP"):
        producer.send("t", b"0").result(WAIT_S)
    producer.flush(WAIT_S)  # Somebody has seen it.
    kafka.faults["Produce"] += [ErrorCode.INVALID_TIMESTAMP]
    producer.send("t", b"1")
    with pytest.raises(BrokerError, match="INVALID_TIMESTAMP"):
        producer.flush(WAIT_S)
    producer.flush(WAIT_S)
    producer.send("t", b"2").result(WAIT_S)
    assert values(kafka) == [[2]]


def test_a_topic_that_is_not_there_is_told_by_send(open_producer: Open) -> None:
    producer = open_producer()
    with pytest.raises(NoSuchTopic):
        producer.send("nope", b"0")


def test_a_topic_that_is_deleted_fails_what_waits(
    kafka: FakeKafka, open_producer: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics_file, "GONE_MS", 200)
    kafka.add_topic("t")
    producer = open_producer()
    producer.send("t", b"0").result(WAIT_S)
    kafka.faults["Produce"] += [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 20
    kafka.faults["Metadata"] += [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 20
    with pytest.raises(NoSuchTopic):
        producer.send("t", b"1").result(WAIT_S)


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


def test_who_may_wait_is_let_in_when_there_is_room(kafka: FakeKafka, open_producer: Open) -> None:
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


def test_partitions_that_a_topic_gets_are_sent_to(kafka: FakeKafka) -> None:
    kafka.add_topic("t")
    producer = Producer(Reach(kafka.bootstrap, None, 5, metadata_max_age_s=0.1), OPTIONS)
    producer.send("t", b"0").result(WAIT_S)
    with pytest.raises(ValueError, match="partition is 1"):
        producer.send("t", b"1", partition=1)
    kafka.topics["t"].append(FakePartition(leader=2))
    deadline = time.monotonic() + WAIT_S
    while len(kafka.topics["t"][1].records()) == 0:
        assert time.monotonic() < deadline
        with suppress(ValueError):
            producer.send("t", b"1", partition=1)
            producer.flush()
    asked = [name for _, name in kafka.requests].count("Metadata")
    producer.send("t", b"2").result(WAIT_S)
    assert [name for _, name in kafka.requests].count("Metadata") <= asked + 1, "once a second"
    producer.close(WAIT_S)


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


def test_many_threads_share_a_producer(kafka: FakeKafka, open_producer: Open) -> None:
    kafka.add_topic("t", 2)
    producer = open_producer(buffer_bytes=2 * OPTIONS.batch_bytes)

    def send_many(partition: int) -> None:
        for number in range(2000):
            producer.send("t", b"%d" % number, partition=partition)

    threads = [threading.Thread(target=send_many, args=(each,)) for each in (0, 1)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(WAIT_S)
    producer.flush(WAIT_S)
    assert values(kafka) == [[*range(2000)]] * 2


def test_a_closed_producer_has_sent_all_and_takes_no_more(
    kafka: FakeKafka, open_producer: Open
) -> None:
    kafka.add_topic("t")
    producer = open_producer(linger_ms=60_000)
    sent = producer.send("t", b"0")
    producer.close(WAIT_S)
    producer.close()
    assert sent.result(0).offset == 0
    with pytest.raises(Closed):
        producer.send("t", b"1")
    with pytest.raises(Closed):
        producer.send_batch("t", {"value": [b"1"]})


def test_a_producer_that_is_closed_too_early_says_what_it_does_not_know(
    kafka: FakeKafka, open_producer: Open
) -> None:
    kafka.add_topic("t")
    producer = open_producer()
    kafka.takes_records.clear()
    sent = producer.send("t", b"0")
    with pytest.raises(TimeoutError):
        producer.close(0.1)
    with pytest.raises(Closed):
        sent.result(WAIT_S)


def test_records_given_up_call_back_and_end_awaits_as_they_end_waits(
    kafka: FakeKafka, open_producer: Open
) -> None:
    kafka.add_topic("t")
    producer = open_producer()
    producer.send("t", b"0").result(WAIT_S)
    kafka.takes_records.clear()
    sent = [producer.send("t", b"%d" % number) for number in range(3)]
    called: list[Future] = []
    for each in sent:
        each.add_done_callback(called.append)
    with pytest.raises(TimeoutError):
        producer.close(0)
    assert {*called} == {*sent}
    assert all(isinstance(each.exception(0), Closed) for each in sent)
    sent[0].add_done_callback(called.append)
    assert called[-1] is sent[0]

    async def awaited() -> None:
        await asyncio.wait_for(_result_of(sent[0]), WAIT_S)

    with pytest.raises(Closed):
        asyncio.run(awaited())


async def _result_of(future: Future) -> object:
    return await future


def test_records_of_an_open_parcel_are_given_up_when_the_thread_fails(
    kafka: FakeKafka, open_producer: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.add_topic("t")
    producer, called = open_producer(linger_ms=60_000), threading.Event()
    sent = producer.send("t", b"0", callback=lambda _: called.set())
    sender = producer._sender
    assert sender is not None
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    monkeypatch.setattr(sender, "_do_round", None)  # Our bug, whatever it is.
    sender._wake()
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


def test_a_topic_that_is_deleted_while_a_record_waits_for_room_is_told(
    kafka: FakeKafka, open_producer: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.add_topic("t")
    producer = open_producer(linger_ms=60_000)
    sender = producer._sender
    assert sender is not None
    producer.send("t", b"0")
    producer.flush(WAIT_S)

    def delete(_: int) -> None:
        del kafka.topics["t"], sender._topics.known["t"]
        assert sender._links._cluster is not None
        sender._links._cluster.forget()

    has_room = iter([False, True, True])
    monkeypatch.setattr(sender, "_has_room", lambda _: next(has_room))
    monkeypatch.setattr(sender, "_wait_for_room", delete)
    with pytest.raises(NoSuchTopic):
        producer.send("t", b"1")


def test_records_linger_by_a_clock_that_only_grows(
    kafka: FakeKafka, open_producer: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.add_topic("t")
    producer = open_producer(linger_ms=1)
    wall = iter(range(10**9, 0, -1000))
    monkeypatch.setattr(sender_file, "wall_ms", lambda: next(wall))
    assert producer.send("t", b"0").result(WAIT_S).offset == 0


LEAVES = """
import sys
from smq.client.client import connect
producer = connect(sys.argv[1]).producer(linger_ms=60_000)
producer.send("t", b"0")
"""


def leave(kafka: FakeKafka, *before: str) -> str:
    """Run a program that sends and neither flushes nor closes; what it says."""
    program = "\n".join([*before, LEAVES])
    arguments = [sys.executable, "-c", program, kafka.bootstrap]
    done = subprocess.run(arguments, check=True, capture_output=True, timeout=60)
    return done.stderr.decode()


def test_a_program_that_ends_sends_the_rest_or_says_how_much_is_lost(kafka: FakeKafka) -> None:
    kafka.add_topic("t")
    assert leave(kafka) == ""
    assert values(kafka) == [[0]]
    kafka.faults["Produce"] += [ErrorCode.INVALID_TIMESTAMP]
    assert leave(kafka).startswith("1 records could not be sent before the process")
    kafka.takes_records.clear()
    impatient = "from smq.client.producing import producer; producer.FAREWELL_S = 0.01"
    assert leave(kafka, impatient).startswith("1 records could not be sent before the process")
    kafka.takes_records.set()


def test_a_producer_that_is_dropped_sends_the_rest_and_its_thread_ends(
    kafka: FakeKafka, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.add_topic("t")
    producer = Producer(Reach(kafka.bootstrap, None, 5), OPTIONS._replace(linger_ms=60_000))
    sent, sender = producer.send("t", b"0"), producer._sender
    assert sender is not None
    with pytest.warns(ResourceWarning, match="a producer was not closed"):
        del producer
    assert sent.result(WAIT_S).offset == 0
    sender._thread.join(WAIT_S)
    assert sender.is_closed
    assert not caplog.messages


def test_what_a_dropped_producer_cannot_send_is_logged(
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
    sender._thread.join(WAIT_S)
    assert caplog.messages == ["1 records could not be sent: nobody waited for their producer"]


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
    producer._sender._thread.join(WAIT_S)
    later, *said = outcome
    assert isinstance(later, Future)
    assert later.result(0).offset == 1
    assert said == [
        "a callback must not wait: it is called by the thread that sends",
        "the producer has been closed",
    ]
    assert values(kafka) == [[0, 1]]


def test_a_callback_that_finds_no_room_is_told_at_once(
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
