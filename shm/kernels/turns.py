"""Whole turns of a shard in one call, for what is most frequent: small requests.

    wait      until a connection has something, awake for a moment before giving up
    receive   one recv a connection: Produce requests are parsed, appended and answered
              (shm.kernels.produce), a Fetch is answered (shm.kernels.fetch_request) or waits
              (shm.kernels.waiting); look again, as long as more has come meanwhile
    write     one pwrite of what was appended
    show      high watermarks move; fetches that waited for that are answered
    send      the answers to what was appended

Turn after turn is taken until something else comes up: a connection that the kernel may not take,
bytes that are no whole requests of these kinds, a log that must be helped along, a full socket,
records that others wait for, an error of any call. That is left to the loop as it stands
(smq.app.shard_server), which decides nothing differently. Descriptors are level-triggered: what was
not received is announced again.

`clients` (int64 by descriptor) says what the kernel may do: when a connection was last used
(monotonic ns) if it has no request begun and no answer due; else LOOPS, or PARKED while its fetch
stands in the table of shm.kernels.waiting.

A turn's words (int64, private):

    in    EPOLL, IS_WATCHED (of any partition, that is: somebody waits for whatever moves),
          SPIN_NS (how long to wait awake), TURNS_NS (when to return at the latest);
          WAL_FD, WAL_START, WAL_END: the segment at the tail, its first position and its end
    out   TURN_COUNT; HAS_IDLED (nothing came); RECEIVED (how often something did)
          LEFT_FD (-1, or of which connection the plan holds a run that is not finished), LEFT_STOP
          MOVED (slots in `touched` of which somebody is still to be told)
          LEVEL (the highest durability of what a turn appended)
          ROW, ROW_COUNT: the answers [ROW, ROW_COUNT) are not sent
          UNSENT_FD (-1, or to which connection a Fetch's answer has gone in part only), UNSENT,
          UNSENT_END: what is left of it
    ROW_WORDS for each answer, from ROWS_AT on: descriptor, start and end in `out`
"""

import platform

import numpy as np
from numba import types

from shm.atomics import address
from shm.kernels.bytes import get16, get32
from shm.kernels.fetch_request import (
    ANSWERED,
    FETCH_KEY,
    STATE_OUT_BYTES,
    STATE_START,
    WAITS,
    answer_fetch,
)
from shm.kernels.jit import kernel
from shm.kernels.memory import get_word, release_word, ring_at
from shm.kernels.plan import (
    HEAD_CLOSE,
    HEAD_END,
    HEAD_LEVEL,
    HEAD_NOW_MS,
    HEAD_OUT_BYTES,
    HEAD_OUT_START,
    HEAD_START,
    STOP_NEED_MORE,
    STOP_OTHER_API,
)
from shm.kernels.produce import produce
from shm.kernels.visible import publish
from shm.kernels.waiting import (
    REQUEST_BYTES_MAX,
    W_BYTES,
    W_FD,
    WAITING_COUNT,
    add_waiting,
    asks_for,
    remove_waiting,
    waiting_at,
)
from shm.kernels.words import (
    DURABILITY_DISK,
    DURABILITY_OS,
    WORD_RING_BYTES,
    WORD_TAIL,
    WORD_WRITTEN,
)

(
    EPOLL, IS_WATCHED, SPIN_NS, TURNS_NS, WAL_FD, WAL_START, WAL_END,
    TURN_COUNT, HAS_IDLED, RECEIVED, LEFT_FD, LEFT_STOP, MOVED, LEVEL, ROW, ROW_COUNT,
    UNSENT_FD, UNSENT, UNSENT_END, CLOCK,
) = range(20)  # fmt: skip
ROWS_AT, ROW_WORDS = 24, 3
ROW_FD, ROW_START, ROW_END = 0, 1, 2
ROWS_MAX = 256  # Of one turn.
TURN_WORDS = ROWS_AT + ROW_WORDS * ROWS_MAX
EVENTS_MAX = 64
# struct epoll_event is packed on x86 alone: in words of 32 bits.
EVENT_WORDS, EVENT_FD = (3, 1) if platform.machine() == "x86_64" else (4, 2)
RECEIVE_BYTES = 1024 * 1024  # Of one recv: what fits the caches while it is appended.
LOOKS_MAX = 8  # Of one turn: bounds how long its first answers wait.
SHORT_BYTES = 128 * 1024  # A turn that has received more does not look again.
ANSWERS_BYTES_MIN = 4096  # Room for answers without which a turn does not look again.
EPOLLIN = 1
LOOPS, PARKED = 0, -1  # Instead of a time in `clients`.
SIZE_BYTES = 4
MSG_DONTWAIT, MSG_NOSIGNAL = 0x40, 0x4000
CLOCK_REALTIME, CLOCK_MONOTONIC = 0, 1

_i32, _i64 = types.int32, types.int64
_recv = types.ExternalFunction("recv", _i64(_i32, _i64, _i64, _i32))
_send = types.ExternalFunction("send", _i64(_i32, _i64, _i64, _i32))
_pwrite = types.ExternalFunction("pwrite", _i64(_i32, _i64, _i64, _i64))
_epoll_wait = types.ExternalFunction("epoll_wait", _i32(_i32, _i64, _i32, _i32))
_sched_yield = types.ExternalFunction("sched_yield", _i32())
_clock_gettime = types.ExternalFunction("clock_gettime", _i32(_i32, _i64))


@kernel
def _now_ns(turn, clock):
    _clock_gettime(np.int32(clock), address(turn, CLOCK))
    return turn[CLOCK] * 1_000_000_000 + turn[CLOCK + 1]


@kernel
def _ready(turn, events):
    """How many descriptors are ready, now."""
    return np.int64(
        _epoll_wait(np.int32(turn[EPOLL]), address(events, 0), np.int32(EVENTS_MAX), np.int32(0))
    )


@kernel
def _wait(turn, events):
    """As _ready(), after waiting awake for a while; 0: nothing has come.

    Whoever else wants the core gets it meanwhile: a client that has to wait for it until the
    scheduler's next tick, 4 ms, was what made the slowest hundredth slow.
    """
    count = _ready(turn, events)
    if count != 0 or turn[TURN_COUNT] == 0 or turn[SPIN_NS] == 0:
        return count
    until_ns = _now_ns(turn, CLOCK_MONOTONIC) + turn[SPIN_NS]
    while count == 0 and _now_ns(turn, CLOCK_MONOTONIC) < until_ns:
        _sched_yield()
        count = _ready(turn, events)
    return count


@kernel
def _send_fetched(turn, fd, fetching):
    """Send a Fetch's answer, or note what the socket has not taken."""
    state, out = fetching
    size = state[STATE_OUT_BYTES]
    sent = _send(np.int32(fd), address(out, 0), size, np.int32(MSG_DONTWAIT | MSG_NOSIGNAL))
    if sent != size:
        turn[UNSENT_FD], turn[UNSENT], turn[UNSENT_END] = fd, max(np.int64(0), sent), size


@kernel
def _is_answered_first(turn, fd):
    """Whether answers of this turn are due to a client."""
    is_due = False
    for i in range(turn[ROW_COUNT]):
        is_due |= turn[ROWS_AT + ROW_WORDS * i + ROW_FD] == fd
    return is_due


@kernel
def _take_fetch(turn, fd, count, clients, data, log, fetching, waiting):
    """Answer what was received, if it is one Fetch request, or have it wait; False: it is left."""
    if count < SIZE_BYTES + 2 or get32(data, 0) != count - SIZE_BYTES:
        return False
    if get16(data, SIZE_BYTES) != FETCH_KEY or _is_answered_first(turn, fd):
        return False
    state, out = fetching
    memory, links, _, directory = log
    state[STATE_START] = SIZE_BYTES
    is_last = False
    outcome = answer_fetch(data, count, is_last, memory, links, directory, state, out)
    if outcome == ANSWERED:
        _send_fetched(turn, fd, fetching)
        return True
    if outcome != WAITS:
        return False
    if not add_waiting(waiting, fd, data, SIZE_BYTES, count, state, clients[fd]):
        return False
    clients[fd] = PARKED
    return True


@kernel
def _take(turn, fd, clients, data, log, producing, fetching, waiting):
    """Receive once and take the requests; bytes received, or -1: leave it to the loop."""
    plan, out = producing
    memory, links, producers, directory = log
    count = _recv(np.int32(fd), address(data, 0), RECEIVE_BYTES, np.int32(MSG_DONTWAIT))
    if count <= 0:
        return np.int64(-1)
    turn[RECEIVED] += 1
    clients[fd] = _now_ns(turn, CLOCK_MONOTONIC)
    plan[HEAD_START], plan[HEAD_END] = 0, count
    plan[HEAD_NOW_MS] = _now_ns(turn, CLOCK_REALTIME) // 1_000_000
    stop = produce(data, memory, links, producers, directory, plan, out)
    is_other = stop == STOP_OTHER_API and plan[HEAD_START] == 0
    if is_other and _take_fetch(turn, fd, count, clients, data, log, fetching, waiting):
        return np.int64(-1) if turn[UNSENT_FD] >= 0 else count
    if stop != STOP_NEED_MORE or plan[HEAD_START] < count or plan[HEAD_CLOSE] != 0:
        turn[LEFT_FD], turn[LEFT_STOP] = fd, stop
        return np.int64(-1)
    turn[LEVEL] = max(turn[LEVEL], plan[HEAD_LEVEL])
    if plan[HEAD_OUT_BYTES] > 0:
        row = ROWS_AT + ROW_WORDS * turn[ROW_COUNT]
        turn[row + ROW_FD] = fd
        turn[row + ROW_START] = plan[HEAD_OUT_START]
        turn[row + ROW_END] = plan[HEAD_OUT_START] = plan[HEAD_OUT_START] + plan[HEAD_OUT_BYTES]
        turn[ROW_COUNT] += 1
    return count


@kernel
def _receive(turn, events, count, clients, data, log, producing, fetching, waiting):
    """Take what has come on `count` connections and meanwhile; False: the loop must go on."""
    plan, out = producing
    total = np.int64(0)
    for _ in range(LOOKS_MAX):
        for i in range(count):
            mask, fd = events[EVENT_WORDS * i], np.int64(events[EVENT_WORDS * i + EVENT_FD])
            if mask != EPOLLIN or fd >= clients.size or clients[fd] <= LOOPS:
                return False
            received = _take(turn, fd, clients, data, log, producing, fetching, waiting)
            if received < 0:
                return False
            total += received
        room = out.size - plan[HEAD_OUT_START]
        if turn[IS_WATCHED] != 0 or total > SHORT_BYTES or room < ANSWERS_BYTES_MIN:
            return True
        if turn[ROW_COUNT] + EVENTS_MAX > ROWS_MAX:
            return True
        count = _ready(turn, events)
        if count <= 0:
            return True
    return True


@kernel
def _write(turn, memory):
    """Have the WAL take what was appended, if that is one write; whether it has everything."""
    start, end = get_word(memory, WORD_WRITTEN), get_word(memory, WORD_TAIL)
    if start == end:
        return True
    ring_bytes = get_word(memory, WORD_RING_BYTES)
    place = start % ring_bytes
    if start < turn[WAL_START] or end > turn[WAL_END] or place + end - start > ring_bytes:
        return False
    source, at = address(memory, ring_at(memory) + place), start - turn[WAL_START]
    if _pwrite(np.int32(turn[WAL_FD]), source, end - start, at) != end - start:
        return False
    release_word(memory, WORD_WRITTEN, end)
    return True


@kernel
def _answer_row(turn, row, clients, log, fetching, waiting):
    """Answer the fetch of a row if there is enough for it now; False: the loop must go on."""
    state, out = fetching
    memory, links, _, directory = log
    table, requests, _ = waiting
    fd, size = table[waiting_at(row) + W_FD], table[waiting_at(row) + W_BYTES]
    start = state[STATE_START] = row * REQUEST_BYTES_MAX
    is_last = False
    outcome = answer_fetch(requests, start + size, is_last, memory, links, directory, state, out)
    if outcome != ANSWERED:
        return outcome == WAITS
    remove_waiting(waiting, row)
    clients[fd] = _now_ns(turn, CLOCK_MONOTONIC)
    _send_fetched(turn, fd, fetching)
    return turn[UNSENT_FD] < 0


@kernel
def _answer_waiting(turn, slot, clients, log, fetching, waiting):
    """Answer the fetches that waited for a partition; False: the loop must go on.

    From the last row on: the one that takes the place of a row that went has been looked at.
    """
    table, is_done = waiting[0], True
    for row in range(table[WAITING_COUNT] - 1, -1, -1):
        if is_done and asks_for(table, row, slot):
            is_done = _answer_row(turn, row, clients, log, fetching, waiting)
    return is_done


@kernel
def _show(turn, clients, log, fetching, waiting, cursors, touched, watched):
    """Move high watermarks and answer who waited for it; whether nobody else need be told."""
    memory, links, _, _ = log
    awaited = waiting[2]
    upto = get_word(memory, WORD_WRITTEN)
    turn[MOVED] = publish(memory, links, cursors, DURABILITY_OS, upto, touched)
    if turn[MOVED] == 0:
        return True
    if turn[MOVED] == touched.size or turn[IS_WATCHED] != 0:
        return False
    is_done = True
    for i in range(turn[MOVED]):
        is_done &= watched[touched[i]] == 0
        if awaited[touched[i]] > 0:
            is_done &= _answer_waiting(turn, touched[i], clients, log, fetching, waiting)
        if turn[UNSENT_FD] >= 0:
            return False
    if is_done:
        turn[MOVED] = 0
    return is_done


@kernel
def _send_answers(turn, out):
    """Send what was answered; whether all of it went."""
    while turn[ROW] < turn[ROW_COUNT]:
        row = ROWS_AT + ROW_WORDS * turn[ROW]
        start, end = turn[row + ROW_START], turn[row + ROW_END]
        flags = np.int32(MSG_DONTWAIT | MSG_NOSIGNAL)
        sent = _send(np.int32(turn[row + ROW_FD]), address(out, start), end - start, flags)
        if sent != end - start:
            turn[row + ROW_START] += max(np.int64(0), sent)
            return False
        turn[ROW] += 1
    return True


@kernel
def take_turns(
    turn, events, clients, data, log, producing, fetching, waiting, cursors, touched, watched
):
    """Take turns until something comes up that the loop must do (see above), or nothing comes.

    events      int32: room for EVENTS_MAX
    data        uint8 of RECEIVE_BYTES at least
    log         (memory, links, producers, directory): see `produce`
    producing   (plan, out): see `produce`
    fetching    (state, out): see `answer_fetch`
    waiting     see `add_waiting`
    cursors, touched   see `publish`
    watched     uint8 by slot: 1 where somebody waits of whom only the loop knows
    """
    plan, out = producing
    memory = log[0]
    turn[TURN_COUNT] = turn[HAS_IDLED] = turn[MOVED] = turn[LEVEL] = turn[ROW] = 0
    turn[ROW_COUNT], turn[RECEIVED], turn[LEFT_FD], turn[UNSENT_FD] = 0, 0, -1, -1
    until_ns = _now_ns(turn, CLOCK_MONOTONIC) + turn[TURNS_NS]
    is_going_on = True
    while is_going_on:
        count = _wait(turn, events)
        if count <= 0:
            turn[HAS_IDLED] = 1
            break
        turn[TURN_COUNT] += 1
        turn[ROW] = turn[ROW_COUNT] = plan[HEAD_OUT_START] = 0
        is_going_on = _receive(
            turn, events, count, clients, data, log, producing, fetching, waiting
        )
        if turn[LEFT_FD] >= 0 or turn[UNSENT_FD] >= 0 or turn[LEVEL] == DURABILITY_DISK:
            break
        if not _write(turn, memory):
            break
        # Who waits for the records gets them before the acks go: these are not urgent.
        if not _show(turn, clients, log, fetching, waiting, cursors, touched, watched):
            break
        is_going_on &= _send_answers(turn, out)
        is_going_on &= _now_ns(turn, CLOCK_MONOTONIC) < until_ns
