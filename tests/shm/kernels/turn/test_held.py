"""Answers that a kernel holds until their records are on disk."""

import os
import select
import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from shm.kernels.base.words import (
    DURABILITY_DISK,
    TIME_BUCKETS,
    WORD_SYNCED,
    WORD_WRITTEN,
)
from shm.kernels.log.sync import (
    BOX_DONE,
    BOX_ERRNO,
    BOX_REQUESTED,
    BOX_REQUESTS,
    BOX_REQUESTS_AT,
    BOX_WORDS,
)
from shm.kernels.turn.held import (
    H_FD,
    HELD_AT,
    HELD_BYTES_MAX,
    HELD_COUNT,
    HELD_MAX,
    HELD_SLOW_NS,
    HELD_WANTED,
    held_at,
    hold_answers,
    may_hold,
    new_held,
    send_held,
)
from shm.kernels.turn.words import (
    ANSWER_WORDS,
    HAS_IDLED,
    HELD,
    LEFT_FD,
    LEVEL,
    LOOPS,
    RECEIVED,
    ROW,
    ROW_COUNT,
    ROWS_AT,
    SESSION,
    SYNCS,
    TIMES_AT,
    TURN_WORDS,
    WAL_START,
)
from tests.shm.kernels.turn_rig import LONG_NS, ONE, SAFE, Turns, answered, fetch_of


class Disk(Turns):
    """A rig whose sync thread is the test."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, clients=2)
        self.box = np.zeros(BOX_WORDS, np.int64)
        self.held = new_held(self.box)
        self.table = self.held[0]
        self.table[HELD_SLOW_NS] = LONG_NS
        self.told = os.eventfd(0, os.EFD_NONBLOCK)
        self.epoll.register(self.told, select.EPOLLIN)
        self.clients[self.told] = SYNCS

    def close(self) -> None:
        os.close(self.told)
        super().close()

    def posted(self) -> list[tuple[int, int]]:
        """The syncs that are asked for: descriptor and position."""
        numbers = range(self.box[BOX_DONE], self.box[BOX_REQUESTED])
        places = [BOX_REQUESTS_AT + 2 * (number % BOX_REQUESTS) for number in numbers]
        return [(int(self.box[at]), int(self.box[at + 1])) for at in places]

    def sync(self) -> None:
        """Do what the thread does with the next one."""
        [(fd, upto)] = self.posted()
        assert fd == self.wal
        self.rig.log.words[WORD_SYNCED] = upto
        self.box[BOX_DONE] += 1
        os.eventfd_write(self.told, 1)

    def word(self, client: int) -> int:
        return int(self.clients[self.pairs[client][1].fileno()])


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path / "wal")
    yield disk
    disk.close()


def test_an_answer_goes_out_once_its_records_are_on_disk(disk: Disk) -> None:
    (one, _), (two, _) = disk.pairs
    one.send(SAFE)
    turn = disk.take()
    assert (turn[HAS_IDLED], turn[LEFT_FD], disk.table[HELD_COUNT]) == (1, -1, 1)
    written = disk.rig.log.words[WORD_WRITTEN]
    assert disk.posted() == [(disk.wal, written)]
    two.send(2 * SAFE)
    disk.take()
    assert disk.posted() == [(disk.wal, written)], "a sync runs"
    assert (answered(one), answered(two), disk.high_watermark(11)) == (0, 0, 0)
    disk.sync()
    assert disk.take()[RECEIVED] == 1
    assert (answered(one), answered(two), disk.high_watermark(11)) == (1, 0, 1)
    assert disk.word(0) > 0
    assert disk.word(1) == HELD
    assert disk.posted() == [(disk.wal, disk.rig.log.words[WORD_WRITTEN])], "one for all"
    disk.sync()
    disk.take()
    assert (answered(two), disk.high_watermark(11)) == (2, 3)
    assert (disk.table[HELD_COUNT], disk.posted()) == (0, [])


def test_a_client_may_produce_on_and_is_answered_in_order(disk: Disk) -> None:
    client, _ = disk.pairs[0]
    client.send(SAFE)
    disk.take()
    client.send(ONE)
    disk.take()
    assert (disk.high_watermark(10), answered(client)) == (1, 0)
    disk.sync()
    disk.take()
    assert (answered(client), disk.word(0)) == (1, HELD)
    disk.sync()
    disk.take()
    assert answered(client) == 1
    assert disk.word(0) > 0


def test_another_request_of_a_client_with_a_held_answer_is_left_to_the_loop(disk: Disk) -> None:
    client, ours = disk.pairs[0]
    client.send(SAFE)
    disk.take()
    client.send(fetch_of(0))
    turn = disk.take()
    assert turn[LEFT_FD] == ours.fileno()
    assert (disk.word(0), answered(client)) == (HELD, 0)


def test_records_of_requests_without_answers_are_synced_and_shown(disk: Disk) -> None:
    client, _ = disk.pairs[0]
    acks_at = SAFE.index(b"\xff\xff", 14)
    client.send(SAFE[:acks_at] + bytes(2) + SAFE[acks_at + 2 :])
    disk.take()
    assert disk.table[HELD_COUNT] == 0
    disk.sync()
    disk.take()
    assert disk.high_watermark(11) == 1


@pytest.mark.parametrize("case", ["no thread", "full", "session", "long"])
def test_the_loop_gets_an_answer_that_cannot_be_held_before_its_records_are_written(
    disk: Disk, case: str
) -> None:
    client, ours = disk.pairs[0]
    if case == "no thread":
        disk.held = new_held()
    elif case == "full":
        disk.table[HELD_COUNT] = HELD_MAX
        disk.table[HELD_AT + H_FD :: 5] = 99
    turn, clients = np.zeros(TURN_WORDS, np.int64), disk.clients
    turn[LEVEL], turn[ROW_COUNT] = DURABILITY_DISK, 1
    turn[ROWS_AT : ROWS_AT + ANSWER_WORDS] = ours.fileno(), 0, HELD_BYTES_MAX + (case == "long")
    if case == "session":
        clients[ours.fileno()] = SESSION - 3
    assert not may_hold(turn, clients, disk.held)
    if case in {"no thread", "full"}:
        client.send(SAFE)
        turn = disk.take()
        assert (turn[ROW], turn[ROW_COUNT]) == (0, 1)
        assert disk.rig.log.words[WORD_WRITTEN] == 0


def test_a_failed_sync_is_left_to_the_loop(disk: Disk) -> None:
    client, _ = disk.pairs[0]
    client.send(SAFE)
    disk.take()
    disk.box[BOX_ERRNO] = 5
    os.eventfd_write(disk.told, 1)
    turn = disk.take()
    assert (turn[HAS_IDLED], answered(client), disk.high_watermark(11)) == (0, 0, 0)
    client.send(SAFE)
    turn = disk.take()
    assert (turn[HAS_IDLED], turn[ROW], turn[ROW_COUNT]) == (0, 0, 1)


def test_a_segment_before_must_be_synced_first_by_the_loop(disk: Disk) -> None:
    client, _ = disk.pairs[0]
    client.send(ONE)
    disk.take()
    disk.turn[WAL_START] = disk.rig.log.words[WORD_WRITTEN]
    client.recv(1000)
    client.send(ONE + SAFE)
    turn = disk.take()
    assert (turn[HAS_IDLED], turn[ROW], turn[ROW_COUNT], disk.posted()) == (0, 0, 1, [])
    assert disk.table[HELD_WANTED] == disk.rig.log.words[WORD_WRITTEN]
    assert (disk.high_watermark(10), disk.high_watermark(11)) == (2, 0), "what is written is shown"


def test_a_slow_answer_is_left_to_the_loop_and_others_are_counted(disk: Disk) -> None:
    client, _ = disk.pairs[0]
    client.send(SAFE)
    disk.take()
    assert not disk.turn[TIMES_AT : TIMES_AT + TIME_BUCKETS].any()
    disk.table[HELD_SLOW_NS] = 1
    disk.sync()
    assert disk.take()[HAS_IDLED] == 0
    assert (answered(client), disk.table[HELD_COUNT]) == (0, 1)
    disk.table[HELD_SLOW_NS] = LONG_NS
    os.eventfd_write(disk.told, 1)
    disk.take()
    assert answered(client) == 1
    assert disk.turn[TIMES_AT : TIMES_AT + TIME_BUCKETS].sum() == 1


def test_the_rest_of_an_answer_that_a_full_socket_has_not_taken_is_left(disk: Disk) -> None:
    client, ours = disk.pairs[0]
    client.send(SAFE)
    disk.take()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    ours.setblocking(False)
    try:
        while True:
            ours.send(bytes(1000))
    except BlockingIOError:
        pass
    disk.sync()
    assert disk.take()[HAS_IDLED] == 0
    assert disk.table[HELD_COUNT] == 1


def test_answers_go_out_in_order_however_often_the_table_has_gone_round(disk: Disk) -> None:
    [(client, ours), _] = disk.pairs
    turn, memory, fd = disk.turn, disk.rig.log.memory, ours.fileno()
    out, expected = np.zeros(64, np.uint8), b""
    for number in range(3 * HELD_MAX):
        text = b"%d " % number
        out[: len(text)] = np.frombuffer(text, np.uint8)
        turn[ROW], turn[ROW_COUNT] = 0, 1
        turn[ROWS_AT : ROWS_AT + ANSWER_WORDS] = fd, 0, len(text)
        hold_answers(turn, disk.clients, out, disk.held, number, 0)
        is_taken = number % 7 == 3
        expected += b"" if is_taken else text
        if is_taken:  # By the loop.
            disk.table[held_at(disk.table, disk.table[HELD_COUNT] - 1) + H_FD] = -1
        if number % 200 == 199:
            disk.rig.log.words[WORD_SYNCED] = number
            assert send_held(turn, memory, disk.clients, disk.held, 9)
            assert client.recv(1 << 16) == expected
            assert (disk.table[HELD_COUNT], disk.clients[fd]) == (0, 9)
            expected = b""
    assert disk.clients[fd] == HELD
    disk.clients[fd] = LOOPS
