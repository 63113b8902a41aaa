"""Sessions in the kernel's turns: the steps of shm.kernels.session.shard, by the session's row.

    table      int64: a row for each session: its socket's descriptor; address and length of its
               memory and of its `side`
    watchers   int64 by slot: the sessions that watch a partition

Sets of sessions are words with a bit for each row. A row's memory stays mapped, and its `side`
alive, as long as it is in the table.
"""

import numpy as np

from shm.kernels.base import libc
from shm.kernels.base.atomics import address, bytes_at, load_acquire, words_at
from shm.kernels.base.jit import kernel
from shm.kernels.session.shard import (
    fall_asleep,
    must_ring,
    put_answers,
    spin_for_requests,
    take_requests,
    tell_event,
)
from shm.kernels.session.words import BELLS_IN_VAIN, WATCH_SEEN, WATCH_VERSION

S_FD, S_MEMORY, S_MEMORY_BYTES, S_SIDE, S_SIDE_WORDS = range(5)
SESSION_WORDS = 5
SESSIONS_MAX = 60  # A bit of a word each. Any further session is served by the loop.
BELLS_MAX = 512  # Read at once. A client rings once for each time that the shard falls asleep.
_BELL_BYTES = 1
# A set with the bit of the sign never ends when it is shifted to the right.
assert SESSIONS_MAX < 63


def new_sessions(slots: int) -> tuple[np.ndarray, np.ndarray]:
    """An empty table, and the watchers of `slots` partitions: none."""
    return np.zeros(SESSIONS_MAX * SESSION_WORDS, np.int64), np.zeros(slots, np.int64)


@kernel
def _ring(table, at, memory):
    """Wake a client. A socket that takes no bell holds enough of them, or is about to close."""
    flags = np.int32(libc.MSG_DONTWAIT | libc.MSG_NOSIGNAL)
    libc.send(np.int32(table[at + S_FD]), address(memory, 0), _BELL_BYTES, flags)


@kernel
def take_session(table, row, out):
    """Copy a session's requests to `out`; returns how many bytes, or -1: the loop must handle
    it."""
    at = SESSION_WORDS * row
    memory, side = bytes_at(table, at + S_MEMORY), words_at(table, at + S_SIDE)
    if load_acquire(memory, 8 * WATCH_VERSION) != side[WATCH_SEEN]:
        return np.int64(-1)
    size = np.int64(take_requests(memory, side, out))
    if size > 0:
        side[BELLS_IN_VAIN] = 0
    return max(np.int64(-1), size)


@kernel
def tell_sessions(table, sessions):
    """Count an event for these sessions, and ring those that sleep."""
    for row in range(SESSIONS_MAX):
        at = SESSION_WORDS * row
        if sessions >> row & 1:
            memory, side = bytes_at(table, at + S_MEMORY), words_at(table, at + S_SIDE)
            if tell_event(memory, side):
                _ring(table, at, memory)


@kernel
def answer_session(table, row, answers):
    """Hand over answers; returns how many bytes it had room for."""
    at = SESSION_WORDS * row
    memory, side = bytes_at(table, at + S_MEMORY), words_at(table, at + S_SIDE)
    put = np.int64(put_answers(memory, side, answers))
    if must_ring(memory, side):
        _ring(table, at, memory)
    return max(np.int64(0), put)


@kernel
def let_sleep(table, sessions):
    """Let sessions with an empty inbox sleep; returns the others."""
    awake = np.int64(0)
    for row in range(SESSIONS_MAX):
        at = SESSION_WORDS * row
        if sessions >> row & 1:
            memory, side = bytes_at(table, at + S_MEMORY), words_at(table, at + S_SIDE)
            awake |= np.int64(not fall_asleep(memory, side)) << row
    return awake


@kernel
def any_requests(table, sessions, rounds):
    """Whether any of these inboxes has a request; checks each at most `rounds` times."""
    has_some = False
    for row in range(SESSIONS_MAX):
        at = SESSION_WORDS * row
        if sessions >> row & 1:
            memory, side = bytes_at(table, at + S_MEMORY), words_at(table, at + S_SIDE)
            has_some |= spin_for_requests(memory, side, rounds)
    return has_some
