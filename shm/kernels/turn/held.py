"""Answers to Produce requests of `disk` topics, held until a sync has reached their records.

    table     int64: the words below, then rows in a ring, oldest first: the client's descriptor
              (-1: taken by the loop), the bytes of the answer, how many are sent, the position that
              must be on disk, and when the row began (monotonic ns)
    answers   uint8: the answer of row i from i * HELD_BYTES_MAX on
    box       the mailbox of the sync thread (shm.kernels.log.sync)

A row's position is never below that of the row before it: answers go out in the order in which they
were held, and so do those of one client, which may ask on meanwhile.
"""

import numpy as np

from shm.kernels.base import libc, words
from shm.kernels.base.atomics import address, load_acquire
from shm.kernels.base.bytes import copy_bytes
from shm.kernels.base.jit import kernel
from shm.kernels.base.times import bucket_of
from shm.kernels.log.sync import BOX_DONE, BOX_ERRNO, BOX_REQUESTED, BOX_WORDS, post_sync
from shm.kernels.turn.words import (
    ANSWER_WORDS,
    HELD,
    LEVEL,
    LIMITED,
    LIMITED_HELD,
    ROW,
    ROW_COUNT,
    ROW_END,
    ROW_FD,
    ROW_START,
    ROWS_AT,
    SESSION,
    TIME_SUMS_AT,
    TIMES_AT,
    WAL_FD,
    WAL_START,
)

# HELD_MAY: 0, and every answer is left to the loop. HELD_WANTED: up to here syncs are wanted.
# HELD_SHOWN: what is on disk is shown up to here. HELD_SLOW_NS: an answer that was held for longer
# is sent by the loop, which records slow requests.
HELD_FIRST, HELD_COUNT, HELD_MAY, HELD_WANTED, HELD_SHOWN, HELD_SLOW_NS = range(6)
HELD_AT = 8  # The first row.
H_FD, H_BYTES, H_SENT, H_POSITION, H_BEGAN_NS = 0, 1, 2, 3, 4
HELD_WORDS = 5
HELD_MAX = 256  # Rows. When the table is full, answers wait in Python.
HELD_BYTES_MAX = 1024  # A longer answer waits in Python.
assert HELD_SLOW_NS < HELD_AT


def new_held(box: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """An empty table, room for answers, and the box of the log's sync thread; without one nothing
    is held."""
    table = np.zeros(HELD_AT + HELD_WORDS * HELD_MAX, np.int64)
    table[HELD_MAY] = box is not None
    answers = np.zeros(HELD_MAX * HELD_BYTES_MAX, np.uint8)
    return table, answers, np.zeros(BOX_WORDS, np.int64) if box is None else box


@kernel
def held_at(table, i):
    """Where the i-th oldest row begins in the table."""
    return HELD_AT + HELD_WORDS * ((table[HELD_FIRST] + i) % HELD_MAX)


@kernel
def may_hold(turn, clients, held):
    """Whether all answers of a turn can be held, or need not."""
    if turn[LEVEL] != words.DURABILITY_DISK:
        return True
    table, count = held[0], turn[ROW_COUNT] - turn[ROW]
    may = table[HELD_MAY] != 0 and table[HELD_COUNT] + count <= HELD_MAX
    for i in range(turn[ROW], turn[ROW_COUNT]):
        row = ROWS_AT + ANSWER_WORDS * i
        may &= clients[turn[row + ROW_FD]] > SESSION
        may &= turn[row + ROW_END] - turn[row + ROW_START] <= HELD_BYTES_MAX
    return may


@kernel
def hold_answers(turn, clients, out, held, position, began_ns):
    """Hold all answers of a turn until what is below `position` is on disk."""
    table, answers, _ = held
    while turn[ROW] < turn[ROW_COUNT]:
        row, at = ROWS_AT + ANSWER_WORDS * turn[ROW], held_at(table, table[HELD_COUNT])
        fd, start = turn[row + ROW_FD], turn[row + ROW_START]
        table[at + H_FD], table[at + H_BYTES] = fd, turn[row + ROW_END] - start
        table[at + H_SENT], table[at + H_POSITION], table[at + H_BEGAN_NS] = 0, position, began_ns
        to = (at - HELD_AT) // HELD_WORDS * HELD_BYTES_MAX
        copy_bytes(answers, to, out, start, table[at + H_BYTES])
        clients[fd] = LIMITED_HELD if LIMITED_HELD <= clients[fd] <= LIMITED else HELD
        table[HELD_COUNT] += 1
        turn[ROW] += 1


@kernel
def push_sync(turn, memory, held):
    """Have wanted syncs done, one after another; False: the loop must do that."""
    table, _, box = held
    if load_acquire(box, BOX_ERRNO) != 0:
        return False
    synced = load_acquire(memory, 8 * words.WORD_SYNCED)
    if table[HELD_WANTED] <= synced or load_acquire(box, BOX_DONE) != box[BOX_REQUESTED]:
        return True
    # Segments are synced in their order.
    return synced >= turn[WAL_START] and post_sync(box, turn[WAL_FD], table[HELD_WANTED])


@kernel
def _pop(table, clients, at_ns):
    """Remove the oldest row; its client may be served as any other once it has no more."""
    fd = table[held_at(table, 0) + H_FD]
    table[HELD_FIRST] = (table[HELD_FIRST] + 1) % HELD_MAX
    table[HELD_COUNT] -= 1
    has_more = fd < 0
    for i in range(table[HELD_COUNT]):
        has_more |= table[held_at(table, i) + H_FD] == fd
    if not has_more:
        clients[fd] = at_ns if clients[fd] == HELD else LIMITED


@kernel
def _send_row(turn, held, at, at_ns):
    """Send a row's answer; False: the loop must."""
    table, answers, _ = held
    took_ns, size = at_ns - table[at + H_BEGAN_NS], table[at + H_BYTES] - table[at + H_SENT]
    if table[HELD_SLOW_NS] <= took_ns:
        return False
    start = (at - HELD_AT) // HELD_WORDS * HELD_BYTES_MAX + table[at + H_SENT]
    flags = np.int32(libc.MSG_DONTWAIT | libc.MSG_NOSIGNAL)
    sent = libc.send(np.int32(table[at + H_FD]), address(answers, start), size, flags)
    table[at + H_SENT] += max(np.int64(0), sent)
    if sent != size:
        return False
    turn[TIMES_AT + bucket_of(took_ns)] += 1
    turn[TIME_SUMS_AT] += took_ns
    return True


@kernel
def send_held(turn, memory, clients, held, at_ns):
    """Send the answers whose records are on disk; False: the loop must send one."""
    table, synced = held[0], load_acquire(memory, 8 * words.WORD_SYNCED)
    while table[HELD_COUNT] > 0:
        at = held_at(table, 0)
        if table[at + H_FD] >= 0:
            if table[at + H_POSITION] > synced:
                return True
            if not _send_row(turn, held, at, at_ns):
                return False
        _pop(table, clients, at_ns)
    return True
