"""The producer's thread: what lingers, waits, is lost, comes back, is refused."""

import asyncio
import subprocess
import sys
import threading
import time
from contextlib import suppress

import pytest

from smq.client.errors import BrokerUnavailable, Closed, NoSuchTopic
from smq.client.producing import topics as topics_file
from smq.client.producing.delivery.futures import Future
from smq.client.producing.producer import Producer
from smq.client.reach import Reach
from smq.model.errors import BrokerError, ErrorCode
from tests.client.fake_kafka import FakeKafka, FakePartition
from tests.client.producers import OPTIONS, WAIT_S, Open, open_producer

__all__ = ["open_producer"]  # A fixture.


def values(kafka: FakeKafka) -> list[list[int]]:
    return [[int(each.value or b"") for each in there.records()] for there in kafka.topics["t"]]


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
        for channel in list(producer._sender._exchange._by_node.values()):
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


def test_a_refused_record_raises_in_its_future_or_in_flush(
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
    impatient = "from smq.client.producing import producer; producer.EXIT_FLUSH_S = 0.01"
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
    sender._thread._thread.join(WAIT_S)
    assert sender.is_closed
    assert not caplog.messages
