"""One connection: versions, order of answers, and peers that are none."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from struct import pack

import pytest

from smq.client.kafka.connection import BYTES_A_SECOND_MIN, KafkaConnection
from smq.client.kafka.questions import ANSWER_BYTES_MAX, FETCH, METADATA
from smq.client.producing.channel.wire_channel import WireChannel
from smq.model.errors import BrokerError, ErrorCode, PeerError
from smq.testing.stepped_clock import SteppedClock
from smq.wire.generated.fetch import FetchRequest
from smq.wire.generated.metadata import MetadataRequest, MetadataRequestTopic
from tests.client.fake_kafka import FakeKafka


def connect(kafka: FakeKafka) -> KafkaConnection:
    host, _, port = kafka.bootstrap.split(",")[0].partition(":")
    return KafkaConnection(host, int(port))


def test_answers_come_in_the_order_of_the_questions(kafka: FakeKafka) -> None:
    kafka.add_topic("a")
    connection = connect(kafka)
    for name in ("a", "b"):
        connection.start(METADATA, MetadataRequest(topics=[MetadataRequestTopic(name=name)]))
    assert [connection.finish().topics[0].name for _ in range(2)] == ["a", "b"]
    connection.close()


def test_an_api_that_the_broker_has_not_is_a_clear_error(kafka: FakeKafka) -> None:
    kafka.hidden_apis.add("Fetch")
    connection = connect(kafka)
    with pytest.raises(BrokerError, match="does not know a version of Fetch") as raised:
        connection.ask(FETCH, FetchRequest())
    assert raised.value.code == ErrorCode.UNSUPPORTED_VERSION
    connection.close()


def test_an_address_where_nothing_listens_raises_broker_not_available() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(BrokerError, match="no broker answers") as raised:
        KafkaConnection("127.0.0.1", port)
    assert raised.value.code == ErrorCode.BROKER_NOT_AVAILABLE


@pytest.mark.parametrize("host", ["a" * 64, "\N{REPLACEMENT CHARACTER}"])
@pytest.mark.parametrize("connect", [KafkaConnection, WireChannel])
def test_an_invalid_host_name_raises_broker_not_available(
    connect: Callable[[str, int], object], host: str
) -> None:
    """Metadata may name any host; programs ended with a UnicodeError."""
    with pytest.raises(BrokerError, match="that is no address") as raised:
        connect(host, 9092)
    assert raised.value.code == ErrorCode.BROKER_NOT_AVAILABLE


def test_a_connection_that_ends_is_a_broker_that_is_not_available(kafka: FakeKafka) -> None:
    connection = connect(kafka)
    kafka.faults["Metadata"].append("close")
    with pytest.raises(BrokerError, match="closed the connection"):
        connection.ask(METADATA, MetadataRequest())


def test_an_answer_that_was_not_read_to_its_end_ends_the_connection(
    kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by Ctrl-C: what came next would begin in the middle of it."""
    connection = connect(kafka)
    connection.start(METADATA, MetadataRequest())

    def interrupted(_size: int) -> memoryview:
        raise KeyboardInterrupt

    monkeypatch.setattr(connection, "_receive_exactly", interrupted)
    with pytest.raises(KeyboardInterrupt):
        connection.finish()
    assert connection.is_closed


def answer_with(data: bytes) -> int:
    """A server for one connection that answers whatever it is asked with these bytes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with listener, connection:
            connection.recv(1000)
            connection.sendall(data)

    threading.Thread(target=serve, daemon=True).start()
    port: int = listener.getsockname()[1]
    return port


@pytest.mark.parametrize(
    "data",
    [b"HTTP/1.1 400 Bad Request\r\n", b"\xff\xff\xff\xff", b"\0\0\0\4\0\0\0\x63", b"\0\0\0\1x"],
    ids=["http", "negative", "other id", "cut"],
)
def test_a_server_that_is_no_kafka_broker_raises_peer_error(data: bytes) -> None:
    with pytest.raises(PeerError):
        KafkaConnection("127.0.0.1", answer_with(data))


@pytest.mark.parametrize("port", [-1, 0, 65_536, 2**31 - 1])
@pytest.mark.parametrize("connect", [KafkaConnection, WireChannel])
def test_a_port_that_is_none_is_a_broker_that_is_not_available(
    connect: Callable[[str, int], object], port: int
) -> None:
    """Of the kind of door fault 12: Metadata may name any, and some of its bits were taken."""
    with pytest.raises(BrokerError, match="that is no address"):
        connect("127.0.0.1", port)


def test_an_answer_that_comes_byte_by_byte_ends_at_a_deadline() -> None:
    """Of the kind of door fault 12: each byte was waited for anew, for an answer of any size."""
    clock = SteppedClock()
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with listener, connection, suppress(OSError):
            connection.recv(1000)
            connection.sendall(pack(">i", BYTES_A_SECOND_MIN))
            while True:
                connection.sendall(b"\0")
                clock.step(0.5)

    threading.Thread(target=serve, daemon=True).start()
    with pytest.raises(BrokerError, match="its answer comes too slowly"):
        KafkaConnection("127.0.0.1", listener.getsockname()[1], 5.0, clock)


def test_an_answer_may_be_as_large_as_its_question_lets_it() -> None:
    """Of the kind of door fault 12: an answer about topics, 18 bytes each, had 256 MiB."""
    port = answer_with(pack(">i", ANSWER_BYTES_MAX + 1))
    with pytest.raises(PeerError, match=f"an answer of {ANSWER_BYTES_MAX + 1} bytes"):
        KafkaConnection("127.0.0.1", port)
    assert FETCH.answer_bytes_max > ANSWER_BYTES_MAX
