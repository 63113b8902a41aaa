"""Requests go out and answers come in, in order, however the socket cuts them."""

import select
import socket
from collections.abc import Iterator

import numpy as np
import pytest

from smq.client.errors import BrokerUnavailable, ChannelGone
from smq.client.producing.channel.produce_request import put_head, request_head
from smq.client.producing.channel.wire_channel import UNSENT_BYTES_MAX, WireChannel
from smq.client.producing.encode.batch_writer import BatchWriter, Stamp
from smq.client.producing.encode.columns import one_of
from smq.wire.compression import Codec

WAIT_MS = 5000


class Pair:
    """A channel and the broker's end of its socket."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.channel = WireChannel(*listener.getsockname())
            self.broker, _ = listener.accept()

    def send(self, request: bytes) -> bool:
        room = self.channel.reserve(len(request) + 10)
        if room is None:
            return False
        room[: len(request)] = list(request)
        self.channel.commit(len(request))
        return True

    def poll(self, event: int) -> None:
        poller = select.poll()
        poller.register(self.channel.fileno(), self.channel.events())
        assert self.channel.arm()
        ((_, events),) = poller.poll(WAIT_MS)
        self.channel.disarm()
        assert events & event

    def answers(self, count: int) -> list[bytes]:
        found: list[bytes] = []
        while len(found) < count:
            self.poll(select.POLLIN)
            found += self.channel.answers()
        return found


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.channel.close()
    made.broker.close()


def test_a_single_record_is_a_request_as_any_other(pair: Pair) -> None:
    head, one, stamp = request_head("who", "t", 3), one_of(b"v", b"k", (), 7), Stamp(1, 2, 3)
    written = np.zeros(1000, np.uint8)
    writer = BatchWriter(Codec.NONE)
    end = writer.write(one, (0, 1), stamp, 1000, written, len(head)).end
    put_head(written, head, end, 9)
    assert pair.channel.send_one(1000, np.frombuffer(head, np.uint8), 9, one, stamp)
    assert pair.broker.recv(end, socket.MSG_WAITALL) == written[:end].tobytes()


def test_requests_arrive_as_they_were_written(pair: Pair) -> None:
    assert pair.send(b"one")
    assert pair.send(b"two")
    assert pair.broker.recv(6, socket.MSG_WAITALL) == b"onetwo"


def test_answers_are_cut_from_the_stream(pair: Pair) -> None:
    stream = b"\0\0\0\3one" + b"\0\0\0\0" + b"\0\0\0\3two"
    assert pair.channel.answers() == []
    for at in range(len(stream) - 1):
        pair.broker.sendall(stream[at : at + 1])
    assert pair.answers(2) == [b"one", b""]
    pair.broker.sendall(stream[-1:])
    assert pair.answers(1) == [b"two"]


def test_unsent_bytes_are_kept_up_to_a_limit(pair: Pair) -> None:
    request, sent = bytes(range(256)) * 4096, 0
    while pair.send(request):
        sent += 1
        assert sent < 1000
    assert len(request) * sent > UNSENT_BYTES_MAX
    assert pair.channel.events() & select.POLLOUT
    received = bytearray()
    pair.broker.settimeout(WAIT_MS / 1000)
    while len(received) < len(request) * sent:
        received += pair.broker.recv(1 << 20)
        pair.channel.push()
    assert received == request * sent
    assert pair.channel.events() == select.POLLIN
    assert pair.send(b"more")


def test_a_broker_that_closes_is_gone(pair: Pair) -> None:
    pair.broker.close()
    pair.poll(select.POLLIN)
    with pytest.raises(ChannelGone, match="closed the connection"):
        pair.channel.answers()


def test_a_broker_that_resets_is_gone_for_who_sends(pair: Pair) -> None:
    pair.broker.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    pair.broker.close()
    pair.poll(select.POLLIN)
    with pytest.raises(ChannelGone):
        pair.send(b"one")


def test_an_answer_of_a_size_that_cannot_be_is_none(pair: Pair) -> None:
    pair.broker.sendall(b"\xff\xff\xff\xff")
    pair.poll(select.POLLIN)
    with pytest.raises(ChannelGone, match="an answer of -1 bytes"):
        pair.channel.answers()


def test_a_copy_that_is_forgotten_does_not_end_the_original(pair: Pair) -> None:
    copy = socket.socket(fileno=socket.dup(pair.channel.fileno()))
    pair.channel.forget()
    copy.sendall(b"still here")
    assert pair.broker.recv(10, socket.MSG_WAITALL) == b"still here"
    copy.close()


def test_connecting_where_nothing_listens_raises_broker_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
    with pytest.raises(BrokerUnavailable, match=f"no broker answers at 127.0.0.1:{address[1]}"):
        WireChannel(*address)
