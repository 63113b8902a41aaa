"""Requests of clients that may not do everything, taken by their bitmaps (shm.kernels.log.bitmaps).

    LIMITS    two words for each descriptor: the row of its client's bitmaps, and when it was last
              used (monotonic ns). The row may be NOBODYS: then nothing is taken
    BITMAPS   with BITMAP_WORDS for each
    ACCESS    the word that is raised before a change of rights is answered. ACCESS_VERSION is what
              it was when the bitmaps were made to follow the rights

What a client sends after it has learned that a right is gone meets a higher version, and the turn
leaves it to Python. So it does whatever a bitmap has no bit for: Python answers in Kafka's way, and
sets the bit if the client has the right. Nothing of such a request is taken here before.

Others pay nothing for this. Their words in `clients` lead elsewhere, and so does the first byte of
a parked request, which is BARRED while a limited client's waits: `answer_fetch` leaves it.
"""

import numpy as np

from shm.kernels.base import libc, words
from shm.kernels.base.atomics import load_acquire, words_at
from shm.kernels.base.jit import kernel
from shm.kernels.base.wire import SIZE_BYTES
from shm.kernels.log.bitmaps import READS, WRITES, bitmap_at
from shm.kernels.request.fetch import ANSWERED, LEFT, STATE_START, WAITS, answer_limited_fetch
from shm.kernels.request.produce import produce_limited
from shm.kernels.turn.parked import PARKED_COUNT, REQUEST_BYTES_MAX, W_BYTES, park, parked_at
from shm.kernels.turn.requests import (
    begin_plan,
    end_plan,
    is_one_fetch,
    now_ns,
    receive_once,
    send_fetched,
)
from shm.kernels.turn.words import (
    ACCESS,
    ACCESS_VERSION,
    BITMAP_WORDS,
    BITMAPS,
    LEFT_FD,
    LEFT_STOP,
    LEVEL,
    LIMITED_HELD,
    LIMITS,
    PARKED,
    UNSENT_FD,
)

L_ROW, L_USED_NS = 0, 1
LIMIT_WORDS = 2
BARRED = 0x80  # No API has a key that begins so.


@kernel
def _are_rights_old(turn):
    """Whether rights have changed since the bitmaps followed them."""
    return load_acquire(words_at(turn, ACCESS), 0) != turn[ACCESS_VERSION]


@kernel
def _bitmap_of(turn, fd, operation):
    """Where a client's bitmap of an operation begins."""
    row = words_at(turn, LIMITS)[LIMIT_WORDS * fd + L_ROW]
    return bitmap_at(turn[BITMAP_WORDS], row, operation)


@kernel
def _use(turn, fd):
    """The client uses its connection now; returns when that is."""
    at_ns = now_ns(turn, libc.CLOCK_MONOTONIC)
    words_at(turn, LIMITS)[LIMIT_WORDS * fd + L_USED_NS] = at_ns
    return at_ns


@kernel
def _leave_all(turn, plan):
    """Leave everything that was received, as if nobody had looked at it."""
    plan[words.HEAD_START] = plan[words.HEAD_OUT_BYTES] = plan[words.HEAD_CLOSE] = 0
    plan[words.HEAD_REQUEST_COUNT] = plan[words.HEAD_TOPIC_COUNT] = plan[words.HEAD_ROW_COUNT] = 0
    plan[words.HEAD_LEVEL], plan[words.HEAD_PARSED] = words.LEVEL_NONE, words.STOP_RIGHTS
    turn[LEFT_STOP] = words.STOP_OTHER_API


@kernel
def _ask(turn, fd, data, start, end, log, fetching):
    """The outcome of a client's Fetch in data[start:end]: see answer_fetch."""
    state, out = fetching
    memory, links, _, directory = log
    state[STATE_START] = start
    at = _bitmap_of(turn, fd, READS)
    where = memory, links, directory
    return answer_limited_fetch(data, end, where, state, out, words_at(turn, BITMAPS), at)


@kernel
def _take_fetch(turn, fd, count, clients, data, log, fetching, parked):
    """As that of shm.kernels.turn.receive."""
    if not is_one_fetch(turn, fd, count, data):
        return WAITS
    outcome = _ask(turn, fd, data, SIZE_BYTES, count, log, fetching)
    if outcome == ANSWERED:
        send_fetched(turn, fd, log[0], fetching)
    elif outcome == WAITS:
        row, at_ns = parked[0][PARKED_COUNT], words_at(turn, LIMITS)[LIMIT_WORDS * fd + L_USED_NS]
        if park(parked, fd, data, SIZE_BYTES, count, fetching[0], at_ns):
            parked[1][row * REQUEST_BYTES_MAX] = BARRED
            clients[fd] = PARKED
            return ANSWERED
    return outcome


@kernel
def _take_requests(turn, fd, count, clients, data, log, producing, fetching, parked):
    """Take what was received; whether that was all."""
    plan, out = producing
    memory, links, producers, directory = log
    begin_plan(turn, plan, count)
    if _are_rights_old(turn):
        _leave_all(turn, plan)
        return False
    at, where = _bitmap_of(turn, fd, WRITES), (memory, links, producers, directory)
    turn[LEFT_STOP] = produce_limited(data, where, plan, out, words_at(turn, BITMAPS), at)
    if turn[LEFT_STOP] == words.STOP_RIGHTS:
        _leave_all(turn, plan)
        return False
    if end_plan(turn, fd, count, plan):
        if clients[fd] == LIMITED_HELD:  # The answer must not overtake those that are held.
            turn[LEVEL] = words.DURABILITY_DISK
        return True
    is_other = turn[LEFT_STOP] == words.STOP_OTHER_API and plan[words.HEAD_START] == 0
    if not is_other or clients[fd] == LIMITED_HELD:
        return False
    outcome = _take_fetch(turn, fd, count, clients, data, log, fetching, parked)
    if outcome == LEFT:
        plan[words.HEAD_PARSED] = words.STOP_FETCH_LEFT
    return outcome == ANSWERED


@kernel
def take_limited(turn, fd, clients, data, log, producing, fetching, parked):
    """Receive once and take the requests; returns the bytes received, or -1: leave it to the
    loop."""
    count = receive_once(fd, data)
    if count <= 0:
        return np.int64(-1)
    _use(turn, fd)
    if _take_requests(turn, fd, count, clients, data, log, producing, fetching, parked):
        return np.int64(-1) if turn[UNSENT_FD] >= 0 else count
    turn[LEFT_FD] = fd
    return np.int64(-1)


@kernel
def is_barred(requests, row):
    """Whether the parked request of a row is of a limited client."""
    return requests[row * REQUEST_BYTES_MAX] == BARRED


@kernel
def answer_barred(turn, row, fd, log, fetching, parked):
    """The outcome of a limited client's parked request; LEFT if its rights may have changed. It is
    not barred any more once it is answered."""
    table, requests, _ = parked
    start = row * REQUEST_BYTES_MAX
    if _are_rights_old(turn):
        return LEFT
    requests[start] = 0
    end = start + table[parked_at(row) + W_BYTES]
    outcome = _ask(turn, fd, requests, start, end, log, fetching)
    if outcome == ANSWERED:
        _use(turn, fd)
    else:
        requests[start] = BARRED
    return outcome
