"""A client: topics, and the producers and consumers that it opens and closes."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import smq
from smq.client.client import Client, connect
from smq.client.reach import Reach
from smq.model.errors import BrokerError, ErrorCode
from tests.client.fake_kafka import FakeKafka

WAIT_S = 10


@pytest.fixture
def client(kafka: FakeKafka) -> Iterator[Client]:
    with connect(kafka.bootstrap, timeout_s=5) as connected:
        yield connected


def test_topics_come_and_go(client: Client) -> None:
    assert client.create_topic("a", 3) == 3
    assert client.create_topic("b", configs={"retention.ms": "1"}) == 1
    assert client.topics() == {"a": 3, "b": 1}
    with pytest.raises(BrokerError) as raised:
        client.create_topic("a")
    assert raised.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
    client.delete_topic("a")
    with pytest.raises(smq.NoSuchTopic):
        client.delete_topic("a")


def test_topics_of_the_broker_itself_are_not_listed(kafka: FakeKafka, client: Client) -> None:
    kafka.add_topic("__internal")
    assert client.topics() == {}


def test_it_survives_a_broker_that_goes_and_comes(kafka: FakeKafka, client: Client) -> None:
    kafka.add_topic("a")
    kafka.faults["Metadata"] += ["close", ErrorCode.LEADER_NOT_AVAILABLE]
    assert client.topics() == {"a": 1}


def test_a_connection_that_broke_meanwhile_is_replaced(kafka: FakeKafka, client: Client) -> None:
    kafka.add_topic("a")
    assert client.topics() == {"a": 1}
    kafka.hang_up()
    client.delete_topic("a")
    kafka.hang_up()
    assert client.create_topic("a", 2) == 2


def test_connecting_where_nothing_listens_raises_broker_unavailable() -> None:
    with pytest.raises(smq.BrokerUnavailable, match="no broker answers at "):
        connect("127.0.0.1:1")


def test_the_mapping_of_a_whole_properties_file_connects(kafka: FakeKafka) -> None:
    config = {"bootstrap.servers": kafka.bootstrap, "security.protocol": "PLAINTEXT"}
    with connect(kafka.bootstrap, config=config) as connected:
        assert connected.topics() == {}
    with pytest.raises(ValueError, match="and the address is 'a:1'"):
        connect("a:1", config=config)


def use(client: Client, use_it: Callable[[Any], object]) -> None:
    with client.producer() as producer:
        use_it(producer)


def test_a_wrong_setting_is_refused_by_its_name(client: Client) -> None:
    with pytest.raises(ValueError, match="compression is 'rar'; it should be one of"):
        client.producer(compression="rar")
    with pytest.raises(ValueError, match="block_s is -1"):
        client.producer(block_s=-1)
    with pytest.raises(ValueError, match="delivery_timeout_s is inf; it should be 2000000 at most"):
        client.producer(delivery_timeout_s=float("inf"))
    with pytest.raises(ValueError, match="timeout_s is -1; it should be 0 or more"):
        use(client, lambda producer: producer.flush(-1))
    with pytest.raises(ValueError, match="batch_bytes is 3; it should be from 1024"):
        client.producer(batch_bytes=3)
    with pytest.raises(TypeError, match="linger_ms is a whole number, not float"):
        client.producer(linger_ms=0.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="move is True or False, not str"):
        client._payloads.upload("t", "file", move="no")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="partitions is 0; it should be from 1"):
        client.create_topic("a", 0)


def test_close_closes_what_the_client_opened(kafka: FakeKafka) -> None:
    kafka.add_topic("a")
    client = connect(kafka.bootstrap)
    producer = client.producer(linger_ms=60_000)
    sent = producer.send("a", b"1")
    client.close()
    assert sent.result(0).offset == 0
    with pytest.raises(smq.Closed):
        producer.send("a", b"2")
    with pytest.raises(smq.Closed, match="the client has been closed"):
        client.topics()
    with pytest.raises(smq.Closed):
        client.producer()


class Opened:
    """What a client may have opened; closing it fails."""

    def __init__(self) -> None:
        self.is_closed = False
        self.left_with: BaseException | None = None

    def close(self) -> None:
        self.is_closed = True
        raise TimeoutError("not in time")

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.left_with = error
        self.close()


def test_close_closes_everything_after_an_exception(kafka: FakeKafka) -> None:
    client, opened = connect(kafka.bootstrap), [Opened(), Opened()]
    client._opened.update(opened)  # type: ignore[arg-type]
    with pytest.raises(TimeoutError, match="not in time"):
        client.close()
    assert all(each.is_closed for each in opened)


def test_an_exception_in_the_clients_block_is_raised_and_passed_to_what_it_opened(
    kafka: FakeKafka,
) -> None:
    client, opened = connect(kafka.bootstrap), [Opened(), Opened()]
    client._opened.update(opened)  # type: ignore[arg-type]
    error = KeyError("of the block")
    with pytest.raises(KeyError, match="of the block"), client:
        raise error
    assert [each.left_with for each in opened] == [error, error]


def test_a_client_of_another_process_connects_by_itself(kafka: FakeKafka) -> None:
    kafka.add_topic("a")
    client = Client(Reach(kafka.bootstrap, None, 5))
    make, arguments = client.__reduce__()
    with client, make(*arguments) as other:
        assert client.topics() == other.topics() == {"a": 1}
    assert client.transport == "kafka"


@pytest.mark.parametrize(
    ("address", "error", "words"),
    [
        (5, TypeError, "address is text or a path, not int"),
        ("", ValueError, "address is empty; it should be host:port, or"),
        ("host", ValueError, "a broker's address is host:port, and not 'host'"),
    ],
    ids=["number", "empty", "no port"],
)
def test_an_invalid_address_is_refused(address: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        connect(address)


WRONG_CALLS: list[tuple[Callable[[Any], object], str]] = [
    (lambda client: client.create_topic(5), "name is text, not int"),
    (lambda client: client.create_topic("a", configs={"b": 1}), "b in configs is text, not int"),
    (lambda client: client.delete_topic(None), "name is text, not NoneType"),
    (lambda client: client.upload(5, b""), "topic is text, not int"),
    (lambda client: client.producer(compression=5), "compression is text, not int"),
    (lambda client: client.producer(block_s="x"), "block_s is a number of seconds, not str"),
    (lambda client: use(client, lambda each: each.send(5, b"")), "topic is text, not int"),
    (
        lambda client: use(client, lambda each: each.send("a", b"", callback=5)),
        "callback is a function",
    ),
    (
        lambda client: use(client, lambda each: each.flush("x")),
        "timeout_s is a number of seconds, not str",
    ),
]


def test_wrong_arguments_are_refused_at_the_call(kafka: FakeKafka, client: Client) -> None:
    kafka.add_topic("a")
    for call, words in WRONG_CALLS:
        with pytest.raises(TypeError, match=words):
            call(client)
