"""Sessions by number: what shm.kernels.session.shard does with one, done with the right one."""

import os
import socket
from collections.abc import Iterator

import numpy as np
import pytest

from shm.kernels.session import client as client_kernels, words
from shm.kernels.turn.sessions import (
    S_FD,
    S_MEMORY,
    S_MEMORY_BYTES,
    S_SIDE,
    S_SIDE_WORDS,
    SESSION_WORDS,
    answer_session,
    any_requests,
    let_sleep,
    new_sessions,
    take_session,
    tell_sessions,
)
from shm.session import SessionMemory
from tests.shm.kernels.sessions import ANSWERS_BYTES, INBOX_BYTES, Pair, request

ROW = 3


class Listed:
    """A session in a row of a table, its client, and their socket."""

    def __init__(self) -> None:
        memory = SessionMemory.create(INBOX_BYTES, ANSWERS_BYTES)
        self.pair = Pair(memory, SessionMemory.attach(memory.fd))
        os.close(memory.fd)
        self.ours, self.client = socket.socketpair()
        self.table, _ = new_sessions(1)
        row = self.table[SESSION_WORDS * ROW :]
        row[S_FD], row[S_SIDE_WORDS] = self.ours.fileno(), len(memory.side)
        row[S_MEMORY], row[S_MEMORY_BYTES] = memory.memory.ctypes.data, len(memory.memory)
        row[S_SIDE] = memory.side.ctypes.data

    def take(self) -> bytes | int:
        out = np.zeros(4096, np.uint8)
        taken = int(take_session(self.table, ROW, out))
        return taken if taken < 0 else bytes(out[:taken])

    def sleep(self) -> None:
        side = self.pair.client
        assert client_kernels.fall_asleep_client(side.memory, side.side)

    def bells(self) -> int:
        try:
            return len(self.client.recv(100, socket.MSG_DONTWAIT))
        except BlockingIOError:
            return 0


@pytest.fixture
def listed() -> Iterator[Listed]:
    listed = Listed()
    yield listed
    listed.ours.close()
    listed.client.close()


def test_requests_are_taken_and_bells_were_not_in_vain(listed: Listed) -> None:
    listed.pair.shard.side[words.BELLS_IN_VAIN] = 5
    assert listed.take() == b""
    assert listed.pair.shard.side[words.BELLS_IN_VAIN] == 5
    listed.pair.send(request(b"a request"))
    assert listed.take() == request(b"a request")
    assert listed.pair.shard.side[words.BELLS_IN_VAIN] == 0


def test_another_watch_list_and_a_fault_are_for_the_loop(listed: Listed) -> None:
    listed.pair.client.watch([1])
    assert listed.take() == -1
    listed.pair.shard.watched()
    for word in range(words.EVENTS, words.INBOX_TAIL):
        listed.pair.client.words[word] = 7
    assert listed.take() == b"", "which list was read is not for the client to say"
    listed.pair.client.words[words.INBOX_TAIL] = 7
    assert listed.take() == -1


def test_answers_and_events_ring_once_for_each_sleep(listed: Listed) -> None:
    assert answer_session(listed.table, ROW, np.frombuffer(b"answer", np.uint8)) == 6
    assert listed.bells() == 0
    assert listed.pair.answers(100) == b"answer"
    listed.sleep()
    tell_sessions(listed.table, 0)
    assert listed.bells() == 0
    for _ in range(2):
        tell_sessions(listed.table, 1 << ROW)
    assert answer_session(listed.table, ROW, np.frombuffer(b"more", np.uint8)) == 4
    assert listed.bells() == 1


def test_of_answers_there_is_no_room_for_it_says_how_many_went(listed: Listed) -> None:
    answers = np.zeros(ANSWERS_BYTES + 5, np.uint8)
    assert answer_session(listed.table, ROW, answers) == ANSWERS_BYTES
    listed.pair.client.words[words.ANSWERS_HEAD] = 1 << 40
    assert answer_session(listed.table, ROW, answers) == 0


def test_a_session_with_a_request_stays_awake(listed: Listed) -> None:
    assert let_sleep(listed.table, 1 << ROW) == 0
    assert listed.pair.shard.words[words.SHARD_SLEEP] & 1 == 1
    assert not any_requests(listed.table, 1 << ROW, 2)
    assert listed.pair.send(request(b"ring for me"))
    assert any_requests(listed.table, 1 << ROW, 2)
    assert not any_requests(listed.table, 0, 2)
    assert let_sleep(listed.table, 1 << ROW) == 1 << ROW
    assert listed.pair.shard.words[words.SHARD_SLEEP] & 1 == 0


def test_telling_a_session_whose_socket_is_closed_does_nothing(listed: Listed) -> None:
    listed.sleep()
    listed.client.close()
    tell_sessions(listed.table, 1 << ROW)
    assert listed.take() == b""
