"""Turns over a real epoll, sockets and a file; what the loop makes of them: test_quick_turns."""

import os
import select
import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from shm.kernels.fetch_request import FETCH_KEY, STATE_OUT_BYTES, STATE_WORDS
from shm.kernels.plan import HEAD_REQUEST_BYTES_MAX, STOP_NEED_MORE, STOP_OTHER_API, new_plan
from shm.kernels.turns import (
    EPOLL,
    EVENT_WORDS,
    EVENTS_MAX,
    HAS_IDLED,
    IS_WATCHED,
    LEFT_FD,
    LEFT_STOP,
    LOOPS,
    MOVED,
    PARKED,
    RECEIVE_BYTES,
    RECEIVED,
    ROW,
    ROW_COUNT,
    SPIN_NS,
    TURN_COUNT,
    TURN_WORDS,
    TURNS_NS,
    UNSENT,
    UNSENT_END,
    UNSENT_FD,
    WAL_END,
    WAL_FD,
    take_turns,
)
from shm.kernels.waiting import WAITING_COUNT, new_waiting
from shm.kernels.words import P_HIGH_WATERMARK, WORD_TAIL, WORD_WRITTEN
from smq.wire.codec import Writer
from smq.wire.generated.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    write_fetch_request,
)
from smq.wire.headers import RequestHeader, write_request_header
from tests.oracle.batches import batch
from tests.shm.kernels.rig import REQUEST_BYTES_MAX, SEGMENT_BYTES, SLOTS, Rig, request_of

LONG_NS = 10_000_000_000


class Turns:
    """A rig whose clients have sockets, and whose WAL is a file."""

    def __init__(self, path: Path, clients: int = 1) -> None:
        self.rig = Rig()
        self.plan = new_plan(64, 64, 64)
        self.plan[HEAD_REQUEST_BYTES_MAX] = REQUEST_BYTES_MAX
        self.out = np.zeros(1 << 16, np.uint8)
        self.data = np.zeros(RECEIVE_BYTES, np.uint8)
        self.fetching = np.zeros(STATE_WORDS, np.int64), np.zeros(1 << 16, np.uint8)
        self.waiting = new_waiting(8)
        self.clients = np.zeros(1 << 16, np.int64)
        self.turn = np.zeros(TURN_WORDS, np.int64)
        self.touched = np.zeros(16, np.int64)
        self.cursors = np.zeros(3, np.int64)
        self.watched = np.zeros(8, np.uint8)
        self.wal = os.open(path, os.O_RDWR | os.O_CREAT)
        self.epoll = select.epoll()
        self.turn[EPOLL], self.turn[TURNS_NS] = self.epoll.fileno(), LONG_NS
        self.turn[WAL_FD], self.turn[WAL_END] = self.wal, SEGMENT_BYTES
        self.pairs = [socket.socketpair() for _ in range(clients)]
        for _, ours in self.pairs:
            self.epoll.register(ours.fileno(), select.EPOLLIN)
            self.clients[ours.fileno()] = 1

    def close(self) -> None:
        for pair in self.pairs:
            for each in pair:
                each.close()
        self.epoll.close()
        os.close(self.wal)

    def take(self) -> np.ndarray:
        """Run the kernel; the turn's words."""
        take_turns(
            self.turn, np.zeros(EVENTS_MAX * EVENT_WORDS, np.int32), self.clients, self.data,
            (self.rig.log.memory, self.rig.links, self.rig.producers, self.rig.directory),
            (self.plan, self.out), self.fetching, self.waiting, self.cursors, self.touched,
            self.watched,
        )  # fmt: skip
        return self.turn

    def high_watermark(self, number: int) -> int:
        return int(self.rig.log.partitions[SLOTS[number], P_HIGH_WATERMARK])


@pytest.fixture
def turns(tmp_path: Path) -> Iterator[Turns]:
    turns = Turns(tmp_path / "wal", clients=2)
    yield turns
    turns.close()


ONE, SAFE = request_of([("a", [(0, batch(b"v"))])]), request_of([("a", [(1, batch(b"v"))])])
OTHER = (12).to_bytes(4) + bytes([0, 18, 0, 0]) + bytes(8)  # ApiVersions.


def fetch_of(offset: int, min_bytes: int = 1, wait_ms: int = 60_000) -> bytes:
    """A Fetch of topic a's partitions 0 and 2, with its size."""
    asked = [
        FetchPartition(partition=i, fetch_offset=offset, partition_max_bytes=1 << 20)
        for i in (0, 2)
    ]
    message = FetchRequest(
        max_wait_ms=wait_ms, min_bytes=min_bytes, max_bytes=1 << 20,
        topics=[FetchTopic(topic="a", partitions=asked)],
    )  # fmt: skip
    writer = Writer()
    write_request_header(RequestHeader(FETCH_KEY, 11, 5, "test"), writer)
    write_fetch_request(message, 11, writer)
    request = writer.to_bytes()
    return len(request).to_bytes(4) + request


def answered(client: socket.socket) -> int:
    """How many answers have come."""
    try:
        data = client.recv(1 << 16, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return 0
    count = at = 0
    while at < len(data):
        at += 4 + int.from_bytes(data[at : at + 4])
        count += 1
    return count


def test_requests_are_written_shown_and_answered_until_nothing_comes(turns: Turns) -> None:
    (one, _), (two, _) = turns.pairs
    one.send(3 * ONE)
    two.send(ONE)
    turn = turns.take()
    assert (turn[HAS_IDLED], turn[LEFT_FD], turn[RECEIVED]) == (1, -1, 2)
    assert turn[ROW] == turn[ROW_COUNT]
    assert (answered(one), answered(two)) == (3, 1)
    assert turns.high_watermark(10) == 4
    words = turns.rig.log.words
    assert words[WORD_WRITTEN] == words[WORD_TAIL] > 0
    assert os.pread(turns.wal, words[WORD_TAIL], 0) == bytes(turns.rig.log.ring[: words[WORD_TAIL]])


@pytest.mark.parametrize("state", [LOOPS, PARKED])
def test_a_connection_that_is_the_loops_is_not_received_from(turns: Turns, state: int) -> None:
    client, ours = turns.pairs[0]
    turns.clients[ours.fileno()] = state
    client.send(ONE)
    turn = turns.take()
    assert (turn[RECEIVED], turn[HAS_IDLED]) == (0, 0)
    assert ours.recv(1 << 16) == ONE


@pytest.mark.parametrize(
    ("sent", "stop"), [(ONE + ONE[:-1], STOP_NEED_MORE), (ONE + OTHER, STOP_OTHER_API)]
)
def test_bytes_that_are_no_whole_requests_are_left_with_their_plan(
    turns: Turns, sent: bytes, stop: int
) -> None:
    client, ours = turns.pairs[0]
    client.send(sent)
    turn = turns.take()
    assert (turn[LEFT_FD], turn[LEFT_STOP]) == (ours.fileno(), stop)
    assert bytes(turns.data[: len(sent)]) == sent
    assert answered(client) == 0
    assert turns.high_watermark(10) == 0


@pytest.mark.parametrize("is_any", [True, False])
def test_who_waits_for_records_is_told_before_the_ack(turns: Turns, is_any: bool) -> None:
    client, _ = turns.pairs[0]
    turns.turn[IS_WATCHED], turns.watched[SLOTS[10]] = is_any, not is_any
    client.send(ONE)
    turn = turns.take()
    assert (turn[TURN_COUNT], turn[HAS_IDLED], turn[MOVED]) == (1, 0, 1)
    assert turns.touched[0] == SLOTS[10]
    assert (turn[ROW], turn[ROW_COUNT], answered(client)) == (0, 1, 0)


def test_who_waits_for_another_partition_keeps_nobody(turns: Turns) -> None:
    client, _ = turns.pairs[0]
    turns.watched[SLOTS[12]] = 1
    client.send(ONE)
    assert turns.take()[HAS_IDLED] == 1
    assert answered(client) == 1


def test_acks_of_disk_level_are_left_and_nothing_of_their_turn_is_written(turns: Turns) -> None:
    client, _ = turns.pairs[0]
    client.send(ONE + SAFE)
    turn = turns.take()
    assert (turn[ROW], turn[ROW_COUNT]) == (0, 1)
    assert answered(client) == 0
    assert turns.rig.log.words[WORD_WRITTEN] == 0


@pytest.mark.parametrize("word", [WAL_FD, WAL_END])
def test_what_cannot_be_written_is_left_unsent_and_unseen(turns: Turns, word: int) -> None:
    client, _ = turns.pairs[0]
    turns.turn[word] = 0 if word == WAL_END else -1
    client.send(ONE)
    turn = turns.take()
    assert (turn[ROW], turn[ROW_COUNT]) == (0, 1)
    assert answered(client) == 0
    assert (turns.rig.log.words[WORD_WRITTEN], turns.high_watermark(10)) == (0, 0)


def test_answers_that_do_not_fit_into_the_socket_are_left_from_there_on(turns: Turns) -> None:
    client, ours = turns.pairs[0]
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    ours.setblocking(False)
    filled = 0
    try:
        while True:
            filled += ours.send(b"x")
    except BlockingIOError:
        client.send(ONE)
    turn = turns.take()
    assert (turn[ROW], turn[ROW_COUNT]) == (0, 1)
    assert len(client.recv(1 << 20, socket.MSG_DONTWAIT)) == filled


def test_it_returns_in_time_although_requests_keep_coming(turns: Turns) -> None:
    client, _ = turns.pairs[0]
    turns.turn[TURNS_NS], turns.turn[SPIN_NS] = 0, LONG_NS
    client.send(ONE)
    turn = turns.take()
    assert (turn[TURN_COUNT], turn[HAS_IDLED]) == (1, 0)


def test_a_fetch_is_answered_from_what_is_there(turns: Turns) -> None:
    (producer, _), (consumer, ours) = turns.pairs
    producer.send(ONE)
    turns.take()
    consumer.send(fetch_of(0))
    turn = turns.take()
    assert (turn[HAS_IDLED], turn[LEFT_FD], answered(consumer)) == (1, -1, 1)
    assert turns.clients[ours.fileno()] > 1  # When it was last used.


def test_a_fetch_that_waits_is_answered_before_the_ack_of_what_it_waits_for(turns: Turns) -> None:
    (producer, _), (consumer, ours) = turns.pairs
    consumer.send(fetch_of(0))
    turns.take()
    assert turns.clients[ours.fileno()] == PARKED
    assert turns.waiting[0][WAITING_COUNT] == 1
    assert answered(consumer) == 0
    producer.send(ONE)
    turn = turns.take()
    assert (answered(consumer), answered(producer)) == (1, 1)
    assert turns.waiting[0][WAITING_COUNT] == 0
    assert turns.clients[ours.fileno()] > 0
    assert (turn[MOVED], turn[HAS_IDLED]) == (0, 1)  # Nobody is left to be told.


def test_a_fetch_that_wants_more_waits_on_and_others_behind_it_are_answered(turns: Turns) -> None:
    (producer, _), (patient, ours) = turns.pairs
    patient.send(fetch_of(0, min_bytes=3 * len(batch(b"v"))))
    turns.take()
    for count in (0, 0, 1):
        producer.send(ONE)
        turns.take()
        assert answered(patient) == count
    assert turns.clients[ours.fileno()] > 0


def test_one_who_waits_in_the_loop_leaves_the_turn_to_it_and_the_kernels_own_are_answered(
    turns: Turns,
) -> None:
    (producer, _), (consumer, _) = turns.pairs
    consumer.send(fetch_of(0))
    turns.take()
    turns.watched[SLOTS[10]] = 1
    producer.send(ONE)
    turn = turns.take()
    assert (turn[MOVED], answered(consumer), answered(producer)) == (1, 1, 0)


@pytest.mark.parametrize(
    "sent", [fetch_of(0) * 2, fetch_of(0)[:-1], fetch_of(99), ONE + fetch_of(0)]
)
def test_two_fetches_half_a_one_one_in_error_and_one_behind_an_ack_are_left(
    turns: Turns, sent: bytes
) -> None:
    client, ours = turns.pairs[0]
    client.send(sent)
    turn = turns.take()
    assert turn[LEFT_FD] == ours.fileno()
    assert bytes(turns.data[: len(sent)]) == sent
    assert turns.waiting[0][WAITING_COUNT] == answered(client) == 0


@pytest.mark.parametrize("has_waited", [True, False])
def test_a_fetchs_answer_that_a_socket_does_not_take_is_left(
    turns: Turns, has_waited: bool
) -> None:
    (producer, _), (consumer, ours) = turns.pairs
    if has_waited:
        consumer.send(fetch_of(0))
        turns.take()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    ours.setblocking(False)
    try:
        while True:
            ours.send(b"x")
    except BlockingIOError:
        producer.send(ONE)
    turn = turns.take()
    if not has_waited:
        consumer.send(fetch_of(0))
        turn = turns.take()
    size = turns.fetching[0][STATE_OUT_BYTES]
    assert (turn[UNSENT_FD], turn[UNSENT], turn[UNSENT_END]) == (ours.fileno(), 0, size)
    assert turns.waiting[0][WAITING_COUNT] == 0
