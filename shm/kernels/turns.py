"""Whole turns of a shard in one call, for what is most frequent: small Produce requests.

    wait      until a connection has something, awake for a moment before giving up
    receive   one recv a connection; parse, append, write the answers (shm.kernels.produce);
              look again, as long as more has come meanwhile
    write     one pwrite of what was appended
    show      high watermarks move
    send      the answers

Turn after turn is taken until something else comes up: a connection that is not `plain`, bytes that
are no whole Produce requests, a log that must be helped along, a full socket, records that others
wait for, an error of any call. That is left to the loop as it stands (smq.app.shard_server), which
decides nothing differently. Descriptors are level-triggered: what was not received is announced
again.

A turn's words (int64, private):

    in    EPOLL, IS_WATCHED (of any partition, that is: somebody waits for whatever moves),
          SPIN_NS (how long to wait awake), TURNS_NS (when to return at the latest);
          WAL_FD, WAL_START, WAL_END: the segment at the tail, its first position and its end
    out   TURN_COUNT; HAS_IDLED (nothing came); RECEIVED (how often something did)
          LEFT_FD (-1, or of which connection the plan holds a run that is not finished), LEFT_STOP
          MOVED (slots in `touched`); LEVEL (the highest durability of what a turn appended)
          ROW, ROW_COUNT: the answers [ROW, ROW_COUNT) are not sent
    ROW_WORDS for each answer, from ROWS_AT on: descriptor, start and end in `out`
"""

import platform

import numpy as np
from numba import types

from shm.atomics import address
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
)
from shm.kernels.produce import produce
from shm.kernels.visible import publish
from shm.kernels.words import (
    DURABILITY_DISK,
    DURABILITY_OS,
    WORD_RING_BYTES,
    WORD_TAIL,
    WORD_WRITTEN,
)

(
    EPOLL, IS_WATCHED, SPIN_NS, TURNS_NS, WAL_FD, WAL_START, WAL_END,
    TURN_COUNT, HAS_IDLED, RECEIVED, LEFT_FD, LEFT_STOP, MOVED, LEVEL, ROW, ROW_COUNT, CLOCK,
) = range(17)  # fmt: skip
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
MSG_DONTWAIT, MSG_NOSIGNAL = 0x40, 0x4000
CLOCK_REALTIME, CLOCK_MONOTONIC = 0, 1

_i32, _i64 = types.int32, types.int64
_recv = types.ExternalFunction("recv", _i64(_i32, _i64, _i64, _i32))
_send = types.ExternalFunction("send", _i64(_i32, _i64, _i64, _i32))
_pwrite = types.ExternalFunction("pwrite", _i64(_i32, _i64, _i64, _i64))
_epoll_wait = types.ExternalFunction("epoll_wait", _i32(_i32, _i64, _i32, _i32))
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
    """As _ready(), after waiting awake for a while; 0: nothing has come."""
    count = _ready(turn, events)
    if count != 0 or turn[TURN_COUNT] == 0 or turn[SPIN_NS] == 0:
        return count
    until_ns = _now_ns(turn, CLOCK_MONOTONIC) + turn[SPIN_NS]
    while count == 0 and _now_ns(turn, CLOCK_MONOTONIC) < until_ns:
        count = _ready(turn, events)
    return count


@kernel
def _take(turn, fd, data, memory, links, producers, directory, plan, out):
    """Receive once and take the Produce requests; bytes received, or -1: leave it to the loop."""
    count = _recv(np.int32(fd), address(data, 0), RECEIVE_BYTES, np.int32(MSG_DONTWAIT))
    if count <= 0:
        return np.int64(-1)
    turn[RECEIVED] += 1
    plan[HEAD_START], plan[HEAD_END] = 0, count
    plan[HEAD_NOW_MS] = _now_ns(turn, CLOCK_REALTIME) // 1_000_000
    stop = produce(data, memory, links, producers, directory, plan, out)
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
def _receive(turn, events, count, plain, data, memory, links, producers, directory, plan, out):
    """Take what has come on `count` connections and meanwhile; False: the loop must go on."""
    total = np.int64(0)
    for _ in range(LOOKS_MAX):
        for i in range(count):
            mask, fd = events[EVENT_WORDS * i], np.int64(events[EVENT_WORDS * i + EVENT_FD])
            if mask != EPOLLIN or fd >= plain.size or plain[fd] == 0:
                return False
            received = _take(turn, fd, data, memory, links, producers, directory, plan, out)
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
def _show(turn, memory, links, cursors, touched, watched):
    """Move high watermarks; whether nobody need be told of it."""
    upto = get_word(memory, WORD_WRITTEN)
    turn[MOVED] = publish(memory, links, cursors, DURABILITY_OS, upto, touched)
    is_awaited = turn[MOVED] > 0 and turn[IS_WATCHED] != 0
    for i in range(turn[MOVED]):
        is_awaited |= watched[touched[i]] != 0
    return not is_awaited and turn[MOVED] < touched.size


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
    turn,
    events,
    plain,
    data,
    memory,
    links,
    producers,
    directory,
    plan,
    out,
    cursors,
    touched,
    watched,
):
    """Take turns until something comes up that the loop must do (see above), or nothing comes.

    events   int32: room for EVENTS_MAX
    plain    uint8 by descriptor: 1 where a connection has no request begun and no answer due
    watched  uint8 by slot: 1 where somebody waits for a partition's records
    data     uint8 of RECEIVE_BYTES at least; the other arguments are those of `produce`, `publish`
    """
    turn[TURN_COUNT] = turn[HAS_IDLED] = turn[MOVED] = turn[LEVEL] = turn[ROW] = 0
    turn[ROW_COUNT], turn[RECEIVED], turn[LEFT_FD] = 0, 0, -1
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
            turn, events, count, plain, data, memory, links, producers, directory, plan, out
        )
        if turn[LEFT_FD] >= 0 or turn[LEVEL] == DURABILITY_DISK or not _write(turn, memory):
            break
        if not _show(turn, memory, links, cursors, touched, watched):
            break  # Who waits for the records gets them before the acks go: these are not urgent.
        is_going_on &= _send_answers(turn, out)
        is_going_on &= _now_ns(turn, CLOCK_MONOTONIC) < until_ns
