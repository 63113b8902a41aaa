"""Turns over a real epoll, sockets and a file; what the loop makes of them: test_quick_turns."""

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread, get_ident
from time import monotonic_ns

import pytest

from shm.kernels.base.words import WORD_TAIL, WORD_WRITTEN
from shm.kernels.turn.parked import PARKED_COUNT
from shm.kernels.turn.words import (
    CATALOG,
    DUE_NS,
    HAS_IDLED,
    IS_WATCHED,
    LEFT_FD,
    MOVED,
    PARKED,
    RECEIVED,
    ROW,
    ROW_COUNT,
    SPIN_NS,
    TURN_COUNT,
    TURNS_NS,
    UNSENT_FD,
    UNSENT_START,
    WAL_END,
    WAL_FD,
)
from tests.oracle.batches import batch
from tests.shm.kernels.rig import SLOTS
from tests.shm.kernels.turn_rig import LONG_NS, ONE, OTHER, SAFE, Turns, answered, fetch_of


@pytest.fixture
def turns(tmp_path: Path) -> Iterator[Turns]:
    turns = Turns(tmp_path / "wal", clients=2)
    yield turns
    turns.close()


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


@pytest.mark.parametrize("is_any", [True, False])
def test_a_turn_returns_to_waiters_of_the_loop_before_the_acks(turns: Turns, is_any: bool) -> None:
    client, _ = turns.pairs[0]
    turns.turn[IS_WATCHED], turns.watched[SLOTS[10]] = is_any, not is_any
    client.send(ONE)
    turn = turns.take()
    assert (turn[TURN_COUNT], turn[HAS_IDLED], turn[MOVED]) == (1, 0, 1)
    assert turns.touched[0] == SLOTS[10]
    assert (turn[ROW], turn[ROW_COUNT], answered(client)) == (0, 1, 0)


def test_a_waiter_for_another_partition_does_not_end_the_turn(turns: Turns) -> None:
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
def test_batches_that_cannot_be_written_are_neither_acknowledged_nor_visible(
    turns: Turns, word: int
) -> None:
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
    turns.turn[DUE_NS] = monotonic_ns() + LONG_NS
    client.send(ONE)
    turn = turns.take()
    assert (turn[TURN_COUNT], turn[HAS_IDLED]) == (1, 0)


def test_it_sleeps_and_takes_what_comes_until_that_is_not_its_own(turns: Turns) -> None:
    client, ours = turns.pairs[0]
    client.settimeout(10)
    turns.turn[DUE_NS] = monotonic_ns() + LONG_NS

    def ask_and_wait() -> None:
        for _ in range(20):
            client.send(ONE)
            assert client.recv(1 << 16)
        client.send(OTHER)

    thread = Thread(target=ask_and_wait)
    thread.start()
    turn = turns.take()
    thread.join()
    assert (turn[LEFT_FD], turn[HAS_IDLED], turn[RECEIVED]) == (ours.fileno(), 0, 21)
    assert turns.high_watermark(10) == 20


@pytest.mark.parametrize("is_fetch", [True, False])
def test_it_sleeps_until_something_is_due(turns: Turns, is_fetch: bool) -> None:
    client, _ = turns.pairs[0]
    started_ns = monotonic_ns()
    turns.turn[DUE_NS] = started_ns + (LONG_NS if is_fetch else 20_000_000)
    if is_fetch:
        client.send(fetch_of(0, wait_ms=20))
    assert turns.take()[HAS_IDLED] == 1
    assert monotonic_ns() >= started_ns + 20_000_000
    started_ns = monotonic_ns()
    turns.take()  # It is due now.
    assert monotonic_ns() < started_ns + LONG_NS


def test_a_signal_ends_its_sleep(turns: Turns) -> None:
    heard, is_awake = list[int](), Event()
    before = signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))
    turns.turn[DUE_NS] = monotonic_ns() + LONG_NS
    main = get_ident()

    def call() -> None:
        while not is_awake.wait(0.01):
            signal.pthread_kill(main, signal.SIGUSR1)

    thread, started_ns = Thread(target=call), monotonic_ns()
    thread.start()
    assert turns.take()[HAS_IDLED] == 1
    assert monotonic_ns() < started_ns + LONG_NS
    is_awake.set()
    thread.join()
    assert heard
    signal.signal(signal.SIGUSR1, before)


def test_nothing_is_received_under_a_catalog_that_is_not_the_one_published(turns: Turns) -> None:
    client, _ = turns.pairs[0]
    turns.turn[DUE_NS] = monotonic_ns() + LONG_NS

    def publish_and_ask() -> None:
        turns.published[0] += 1
        client.send(ONE)

    thread = Thread(target=publish_and_ask)
    thread.start()
    turn = turns.take()
    thread.join()
    assert (turn[TURN_COUNT], turn[RECEIVED], turn[HAS_IDLED]) == (0, 0, 0)
    turn[CATALOG], turn[DUE_NS] = 1, 0
    assert turns.take()[RECEIVED] == 1
    assert answered(client) == 1


def test_a_fetch_that_waits_is_answered_before_the_ack_of_what_it_waits_for(turns: Turns) -> None:
    (producer, _), (consumer, ours) = turns.pairs
    consumer.send(fetch_of(0))
    turns.take()
    assert turns.clients[ours.fileno()] == PARKED
    assert turns.parked[0][PARKED_COUNT] == 1
    assert answered(consumer) == 0
    producer.send(ONE)
    turn = turns.take()
    assert (answered(consumer), answered(producer)) == (1, 1)
    assert turns.parked[0][PARKED_COUNT] == 0
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
    assert (turn[UNSENT_FD], turn[UNSENT_START]) == (ours.fileno(), 0)
    assert turns.parked[0][PARKED_COUNT] == 0
