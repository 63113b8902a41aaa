"""What a turn does with received requests, whoever sent them."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from shm.kernels.base import libc
from shm.kernels.base.words import (
    HEAD_CLOSE,
    HEAD_END,
    HEAD_LEVEL,
    HEAD_OUT_BYTES,
    HEAD_OUT_START,
    HEAD_START,
    STOP_NEED_MORE,
    STOP_OTHER_API,
)
from shm.kernels.turn.requests import (
    begin_plan,
    end_plan,
    is_one_fetch,
    now_ns,
    receive_once,
)
from shm.kernels.turn.words import LEFT_STOP, LEVEL, RECEIVED, ROW_COUNT, ROW_FD, ROWS_AT
from tests.shm.kernels.turn_rig import ONE, Turns, fetch_of

FD = 7


@pytest.fixture
def turns(tmp_path: Path) -> Iterator[Turns]:
    turns = Turns(tmp_path / "wal")
    yield turns
    turns.close()


def received(sent: bytes) -> np.ndarray:
    return np.frombuffer(bytearray(sent), np.uint8)


def test_the_clock_is_the_systems(turns: Turns) -> None:
    before = time.monotonic_ns()
    assert before <= now_ns(turns.turn, libc.CLOCK_MONOTONIC) <= time.monotonic_ns()


def test_a_receive_does_not_wait(turns: Turns) -> None:
    client, ours = turns.pairs[0]
    assert receive_once(ours.fileno(), turns.data) == -1
    client.send(b"some")
    assert receive_once(ours.fileno(), turns.data) == 4
    assert bytes(turns.data[:4]) == b"some"
    os.close(client.detach())
    assert receive_once(ours.fileno(), turns.data) == 0


@pytest.mark.parametrize(
    ("stop", "start", "closes", "is_all"),
    [
        (STOP_NEED_MORE, 100, 0, True),
        (STOP_NEED_MORE, 99, 0, False),  # A part of a request is behind.
        (STOP_OTHER_API, 100, 0, False),
        (STOP_NEED_MORE, 100, 1, False),
    ],
)
def test_answers_are_noted_when_the_bytes_were_nothing_but_produce(
    turns: Turns, stop: int, start: int, closes: int, *, is_all: bool
) -> None:
    turn, plan = turns.turn, turns.plan
    begin_plan(turn, plan, 100)
    assert (plan[HEAD_START], plan[HEAD_END], turn[RECEIVED]) == (0, 100, 1)
    turn[LEFT_STOP], plan[HEAD_START], plan[HEAD_CLOSE] = stop, start, closes
    plan[HEAD_LEVEL], plan[HEAD_OUT_START], plan[HEAD_OUT_BYTES] = 2, 50, 10
    assert bool(end_plan(turn, FD, 100, plan)) == is_all
    assert turn[ROW_COUNT] == is_all
    if is_all:
        assert turn[ROWS_AT : ROWS_AT + 3].tolist() == [FD, 50, 60]
        assert (turn[LEVEL], plan[HEAD_OUT_START]) == (2, 60)


def test_one_fetch_is_one_whole_request_and_behind_no_answer(turns: Turns) -> None:
    whole = fetch_of(0)
    for sent, is_it in ((whole, True), (whole[:-1], False), (whole * 2, False), (ONE, False)):
        assert bool(is_one_fetch(turns.turn, FD, len(sent), received(sent))) == is_it
    turns.turn[ROW_COUNT], turns.turn[ROWS_AT + ROW_FD] = 1, FD
    assert not is_one_fetch(turns.turn, FD, len(whole), received(whole))
