"""What a turn does with received requests, whoever sent them: see shm.kernels.turn.receive."""

import numpy as np

from shm.kernels.base import libc, words
from shm.kernels.base.atomics import address
from shm.kernels.base.bytes import get16, get32
from shm.kernels.base.jit import kernel
from shm.kernels.base.wire import SIZE_BYTES
from shm.kernels.request.fetch import FETCH_KEY, STATE_LENT_BYTES, STATE_OUT_BYTES
from shm.kernels.turn.fetch_send import send_answer
from shm.kernels.turn.words import (
    AHEAD_MS,
    ANSWER_WORDS,
    CLOCK,
    EPOLL,
    LEFT_STOP,
    LEVEL,
    RECEIVED,
    ROW_COUNT,
    ROW_END,
    ROW_FD,
    ROW_START,
    ROWS_AT,
    UNSENT_FD,
    UNSENT_START,
)

RECEIVE_BYTES = 1024 * 1024  # Of one recv: what fits the caches while it is appended.


@kernel
def now_ns(turn, clock):
    """The time of a clock of the system, in ns."""
    libc.clock_gettime(np.int32(clock), address(turn, CLOCK))
    return turn[CLOCK] * 1_000_000_000 + turn[CLOCK + 1]


@kernel
def receive_once(fd, data):
    """Receive what a client has sent; how many bytes, 0 or less: none."""
    flags = np.int32(libc.MSG_DONTWAIT)
    return np.int64(libc.recv(np.int32(fd), address(data, 0), RECEIVE_BYTES, flags))


@kernel
def send_fetched(turn, fd, memory, fetching):
    """Send a Fetch's answer, or record what the socket has not taken."""
    state, out = fetching
    sent = send_answer(fd, turn[EPOLL], memory, state, out)
    if sent != state[STATE_OUT_BYTES] + state[STATE_LENT_BYTES]:
        turn[UNSENT_FD], turn[UNSENT_START] = fd, sent


@kernel
def begin_plan(turn, plan, count):
    """Before the Produce requests in `count` received bytes are taken."""
    turn[RECEIVED] += 1
    plan[words.HEAD_START], plan[words.HEAD_END] = 0, count
    plan[words.HEAD_WALL_MS] = now_ns(turn, libc.CLOCK_REALTIME) // 1_000_000
    plan[words.HEAD_NOW_MS] = now_ns(turn, libc.CLOCK_MONOTONIC) // 1_000_000 + turn[AHEAD_MS]


@kernel
def end_plan(turn, fd, count, plan):
    """Note the answers of a plan, for LEFT_STOP; whether the received bytes were nothing else."""
    if (
        turn[LEFT_STOP] != words.STOP_NEED_MORE
        or plan[words.HEAD_START] < count
        or plan[words.HEAD_CLOSE] != 0
    ):
        return False
    turn[LEVEL] = max(turn[LEVEL], plan[words.HEAD_LEVEL])
    if plan[words.HEAD_OUT_BYTES] > 0:
        row = ROWS_AT + ANSWER_WORDS * turn[ROW_COUNT]
        turn[row + ROW_FD] = fd
        turn[row + ROW_START] = plan[words.HEAD_OUT_START]
        turn[row + ROW_END] = plan[words.HEAD_OUT_START] = (
            plan[words.HEAD_OUT_START] + plan[words.HEAD_OUT_BYTES]
        )
        turn[ROW_COUNT] += 1
    return True


@kernel
def _is_answered_first(turn, fd):
    """Whether this turn has an unsent answer for a client."""
    is_due = False
    for i in range(turn[ROW_COUNT]):
        is_due |= turn[ROWS_AT + ANSWER_WORDS * i + ROW_FD] == fd
    return is_due


@kernel
def is_one_fetch(turn, fd, count, data):
    """Whether the received bytes are one Fetch request, and no answer must go out before its."""
    if count < SIZE_BYTES + 2 or get32(data, 0) != count - SIZE_BYTES:
        return False
    return get16(data, SIZE_BYTES) == FETCH_KEY and not _is_answered_first(turn, fd)
