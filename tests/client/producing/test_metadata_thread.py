"""A thread that waits for a silent broker delays no other."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NoReturn

import pytest

from smq.client.clock import SYSTEM_CLOCK
from smq.client.errors import AuthenticationFailed, BrokerUnavailable, Closed
from smq.client.producing import metadata_thread as module
from smq.client.producing.channel.channel import Channel
from smq.client.producing.channel.links import Links
from smq.client.producing.producer import Producer
from smq.client.reach import Reach
from smq.client.secure.security import Security
from smq.testing.credentials import UsersInMemory
from tests.client.fake_kafka import FakeKafka
from tests.client.producers import OPTIONS, WAIT_S, Open, open_producer

__all__ = ["open_producer"]  # A fixture.


class Silence:
    """A broker that is asked and does not answer, until it is told to."""

    def __init__(self) -> None:
        self.is_asked, self.ends = threading.Event(), threading.Event()

    def ask(self) -> None:
        self.is_asked.set()
        self.ends.wait()


@pytest.fixture
def silence() -> Iterator[Silence]:
    made = Silence()
    yield made
    made.ends.set()


@pytest.fixture
def quick(kafka: FakeKafka) -> Iterator[Producer]:
    """A producer that asks about its topics again and again."""
    kafka.add_topic("t", 2)
    opened = Producer(Reach(kafka.bootstrap, None, 5, metadata_max_age_s=1e-3), OPTIONS)
    yield opened
    kafka.wake()
    opened.close(WAIT_S)


@pytest.mark.slow
@pytest.mark.parametrize("question", ["topic_now", "channel"])
def test_records_go_on_to_brokers_that_answer_while_another_is_asked(
    kafka: FakeKafka,
    open_producer: Open,
    silence: Silence,
    monkeypatch: pytest.MonkeyPatch,
    question: str,
) -> None:
    kafka.add_topic("t", 2)
    producer, called, ask = open_producer(), threading.Event(), getattr(Links, question)
    producer.send("t", b"0", partition=1).result(WAIT_S)
    if question == "topic_now":
        producer.send("t", b"0", partition=0).result(WAIT_S)
        kafka.topics["t"][0].leader = 2

    def ask_in_vain(*about: object) -> object:
        silence.ask()
        return ask(*about)

    monkeypatch.setattr(Links, question, ask_in_vain)
    producer.send("t", b"1", partition=0)
    assert silence.is_asked.wait(WAIT_S)
    for _ in range(20):
        producer.send("t", b"1", partition=1).result(WAIT_S)
    producer.send("t", b"2", partition=1, callback=lambda _: called.set())
    assert called.wait(WAIT_S)
    silence.ends.set()


@pytest.mark.slow
def test_a_broker_that_falls_asleep_holds_up_its_own_records_only(
    kafka: FakeKafka, quick: Producer
) -> None:
    for partition in (0, 1):
        quick.send("t", b"0", partition=partition).result(WAIT_S)
    kafka.asleep.add(1)
    late = quick.send("t", b"1", partition=0)
    for _ in range(20):
        quick.send("t", b"1", partition=1).result(WAIT_S)
    assert not late.done()
    kafka.wake()
    assert late.result(WAIT_S).offset == 1


def test_close_does_not_wait_for_a_silent_broker(
    kafka: FakeKafka, open_producer: Open, silence: Silence, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.add_topic("t", 2)
    producer = open_producer()
    producer.send("t", b"0", partition=1).result(WAIT_S)

    def ask_in_vain(*_: object) -> NoReturn:
        silence.ask()
        raise BrokerUnavailable("it has not answered")

    monkeypatch.setattr(Links, "channel", ask_in_vain)
    late = producer.send("t", b"1", partition=0)
    assert silence.is_asked.wait(WAIT_S)
    with pytest.raises(TimeoutError):
        producer.close(0)
    with pytest.raises(Closed):
        late.result(0)


def test_a_channel_that_comes_after_the_end_is_closed(
    kafka: FakeKafka, open_producer: Open, silence: Silence, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.add_topic("t", 2)
    producer, open_channel, opened = open_producer(), Links.channel, []

    def slow(links: Links, node_id: int, request_bytes: int = 0) -> object:
        opened.append(open_channel(links, node_id, request_bytes))
        silence.ask()
        return opened[-1]

    monkeypatch.setattr(Links, "channel", slow)
    producer.send("t", b"1", partition=0)
    assert silence.is_asked.wait(WAIT_S)
    sender = producer._sender
    assert sender is not None
    with pytest.raises(TimeoutError):
        producer.close(0)
    silence.ends.set()
    sender._metadata_thread.join(WAIT_S)
    assert [each.fileno() for each in opened] == [-1]


@pytest.fixture
def alices(kafka: FakeKafka) -> Iterator[Producer]:
    """A producer with a login, whose broker ended its connections, and took alice's login away."""
    kafka.add_topic("t", 2)
    kafka.users = UsersInMemory({"alice": "pencil"})
    alice = Security(mechanism="PLAIN", user="alice", password="pencil")
    opened = Producer(Reach(kafka.bootstrap, None, 5, security=alice), OPTIONS)
    opened.send("t", b"0", partition=0).result(WAIT_S)
    kafka.users = UsersInMemory({})
    kafka.hang_up()
    yield opened
    opened.close(WAIT_S)


def eventually(condition: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.05)


def is_taken(producer: Producer, partition: int) -> bool:
    """Whether a record is, by a broker that has refused us."""
    with suppress(AuthenticationFailed):
        return producer.send("t", b"again", partition=partition).result(WAIT_S).offset == 0
    return False


def test_records_fail_soon_when_a_login_is_not_taken_any_more(
    kafka: FakeKafka, alices: Producer
) -> None:
    """They failed at the end of their time, with another reason, after hundreds of logins."""
    with pytest.raises(AuthenticationFailed, match="Invalid username or password"):
        alices.send("t", b"1", partition=0).result(WAIT_S)
    sender = alices._sender
    assert sender is not None
    queues = sender._accumulator.queues
    eventually(lambda: not queues.stale_topics(), "it logs in for nothing")
    kafka.users = UsersInMemory({"alice": "pencil"})
    eventually(lambda: is_taken(alices, partition=1), "it is not asked again")


def test_a_broker_that_refuses_us_fails_its_own_records_and_gets_a_login_a_second(
    kafka: FakeKafka, open_producer: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.add_topic("t", 2)
    tried, channel, lets_in = list[int](), Links.channel, threading.Event()

    def refuse(links: Links, node_id: int, request_bytes: int = 0) -> Channel:
        tried.append(node_id)
        if lets_in.is_set() or node_id == 2:
            return channel(links, node_id, request_bytes)
        raise AuthenticationFailed("no TLS with the broker at b: Hostname mismatch")

    monkeypatch.setattr(Links, "channel", refuse)
    producer = open_producer()
    began_s = time.monotonic()
    for _ in range(5):
        with pytest.raises(AuthenticationFailed, match="Hostname mismatch"):
            producer.send("t", b"0", partition=0).result(WAIT_S)
        producer.send("t", b"0", partition=1).result(WAIT_S)
    seconds = 1000 * (time.monotonic() - began_s) / module.LOGIN_RETRY_MS
    assert 2 <= tried.count(1) <= 1 + seconds
    lets_in.set()
    eventually(lambda: is_taken(producer, partition=0), "it is not asked again")


def test_a_refusal_of_one_moment_fails_no_record(
    kafka: FakeKafka, open_producer: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate and its key are replaced as two files, a password by two changes."""
    kafka.add_topic("t")
    refused, channel = list[int](), Links.channel

    def refuse_once(links: Links, node_id: int, request_bytes: int = 0) -> Channel:
        if refused:
            return channel(links, node_id, request_bytes)
        refused.append(node_id)
        raise AuthenticationFailed("invalid credentials")

    monkeypatch.setattr(Links, "channel", refuse_once)
    assert open_producer().send("t", b"0").result(WAIT_S).offset == 0
    assert refused


def test_a_refresh_that_fails_for_a_login_leaves_what_works(
    kafka: FakeKafka, quick: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick.send("t", b"0", partition=0).result(WAIT_S)
    is_refused = threading.Event()

    def refuse(*_: object) -> NoReturn:
        is_refused.set()
        raise AuthenticationFailed("no login")

    monkeypatch.setattr(Links, "topic_now", refuse)
    assert is_refused.wait(WAIT_S)
    for offset in (1, 2):
        assert quick.send("t", b"0", partition=0).result(WAIT_S).offset == offset


def test_records_fail_when_the_metadata_thread_has_died(
    kafka: FakeKafka, open_producer: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.add_topic("t")
    producer = open_producer()
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    monkeypatch.setattr(Links, "channel", None)  # Our bug, whatever it is.
    with pytest.raises(Closed):
        producer.send("t", b"0").result(WAIT_S)


def test_topics_that_are_out_of_date_just_after_others_were_asked_about_are_not_put_off(
    kafka: FakeKafka, open_producer: Open
) -> None:
    kafka.add_topic("t")
    producer = open_producer()
    producer.send("t", b"0").result(WAIT_S)
    sender = producer._sender
    assert sender is not None
    producer.close(WAIT_S)  # Its thread does not look any more.
    sender._metadata_thread._refreshed_ms = SYSTEM_CLOCK.monotonic_ms() + 60_000
    sender._topics._check_at_ms = 0
    assert not sender._metadata_thread._refresh()
    assert sender._topics._check_at_ms == 0
