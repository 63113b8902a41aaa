"""The response goes out with the batches it lends between its parts."""

import os
import select
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from shm.kernels.base.memory import ring_at
from shm.kernels.base.words import WORD_RING_BYTES
from shm.kernels.request.fetch import (
    LENT_WORDS,
    STATE_LENT,
    STATE_LENT_COUNT,
    STATE_OUT_BYTES,
    STATE_WORDS,
)
from shm.kernels.turn.fetch_send import send_answer
from tests.app.fake_broker import eventually
from tests.shm.kernels.rig import Rig

RESPONSE = b"head of one|head of two|tail"
MUCH = [(12 * (1 + i // 32), 0, bytes(range(250)) * 16) for i in range(64)]
Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, client = socket.socketpair()
    with ours, client:
        yield ours, client


class Answer:
    """What answer_fetch leaves: a response that lends bytes of a log's ring."""

    def __init__(self, lent: list[tuple[int, int, bytes]]) -> None:
        """`lent` are (place in the response, position, bytes)."""
        self.log = Rig().log
        ring_bytes = int(self.log.words[WORD_RING_BYTES])
        self.state = np.zeros(STATE_WORDS, np.int64)
        self.out = np.frombuffer(bytearray(RESPONSE), np.uint8)
        self.state[STATE_OUT_BYTES] = len(RESPONSE)
        self.state[STATE_LENT_COUNT] = len(lent)
        self.expected, start = b"", 0
        for i, (at, position, data) in enumerate(lent):
            self.state[STATE_LENT + LENT_WORDS * i :][:LENT_WORDS] = at, position, len(data)
            place = ring_at(self.log.memory) + position % ring_bytes
            self.log.memory[place : place + len(data)] = np.frombuffer(data, np.uint8)
            self.expected += RESPONSE[start:at] + data
            start = at
        self.expected += RESPONSE[start:]

    def send(self, to: socket.socket, others: int = -1) -> int:
        """`others` is the epoll of whoever else may have something."""
        return int(send_answer(to.fileno(), others, self.log.memory, self.state, self.out))


@pytest.mark.parametrize(
    "lent",
    [
        [],
        [(12, 64, b"a batch")],
        [(12, 64, b"one"), (12, 8192 + 128, b"a frame in the next round"), (24, 3 * 8192, b"two")],
        [(len(RESPONSE), 4096, b"the last of all")],
        [(0, 4096, b"nothing before")],
    ],
)
def test_batches_go_out_where_the_response_wants_them(
    pair: Pair, lent: list[tuple[int, int, bytes]]
) -> None:
    answer, (ours, client) = Answer(lent), pair
    assert answer.send(ours) == len(answer.expected)
    assert client.recv(10_000) == answer.expected


def pull(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += client.recv(min(1000, size - len(data)))
    return data


def test_a_full_socket_takes_a_part_and_then_nothing(pair: Pair) -> None:
    ours, client = pair
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    answer = Answer(MUCH)
    taken = answer.send(ours)
    assert 0 < taken < len(answer.expected)
    assert answer.send(ours) == 0
    assert pull(client, taken) == answer.expected[:taken]


def test_an_answer_sent_while_the_client_reads_arrives_in_order(pair: Pair) -> None:
    ours, client = pair
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    full, answer = Answer(MUCH).send(ours), Answer(MUCH)
    pull(client, full)

    def more_than_it_holds() -> bool:
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(pull, client, full)
            taken = answer.send(ours)
            received = reading.result() + pull(client, taken - full)
        assert received == answer.expected[:taken]
        return taken > full

    eventually(more_than_it_holds, "more has found room")


def test_send_does_not_wait_for_room_while_another_client_has_input(pair: Pair) -> None:
    ours, client = pair
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    full, answer = Answer(MUCH).send(ours), Answer(MUCH)
    bell = os.eventfd(1)
    with select.epoll() as others:
        others.register(bell, select.EPOLLIN)
        pull(client, full)
        assert answer.send(ours, others.fileno()) == full
    os.close(bell)


def test_send_to_a_closed_connection_sends_nothing(pair: Pair) -> None:
    ours, client = pair
    client.close()
    assert Answer([(12, 64, b"a batch")]).send(ours) == 0
