"""The receiving part of a turn (shm.kernels.turn.turns): from sockets and sessions' inboxes.

It appends Produce requests (shm.kernels.request.produce) and notes their answers in the turn's
rows. It answers a Fetch at once (shm.kernels.request.fetch), or parks it until records
arrive (shm.kernels.turn.parked). Clients that may not do everything: shm.kernels.turn.limited.
"""

import numpy as np

from shm.kernels.base import libc, words
from shm.kernels.base.atomics import address
from shm.kernels.base.jit import kernel
from shm.kernels.base.wire import SIZE_BYTES
from shm.kernels.request.fetch import ANSWERED, LEFT, STATE_START, WAITS, answer_fetch
from shm.kernels.request.produce import produce
from shm.kernels.turn.limited import take_limited
from shm.kernels.turn.parked import park
from shm.kernels.turn.requests import (
    begin_plan,
    end_plan,
    is_one_fetch,
    now_ns,
    receive_once,
    send_fetched,
)
from shm.kernels.turn.sessions import (
    BELLS_MAX,
    S_FD,
    SESSION_WORDS,
    SESSIONS_MAX,
    take_session,
)
from shm.kernels.turn.words import (
    AWAKE,
    BELLS,
    CLOCK,
    EPOLL,
    EVENT_FD,
    EVENT_WORDS,
    EVENTS_MAX,
    HELD,
    IS_WATCHED,
    LEFT_FD,
    LEFT_STOP,
    LEVEL,
    LOOPS,
    PARKED,
    RECEIVED,
    ROW_COUNT,
    ROWS_MAX,
    RUNG_FD,
    SESSION,
    SESSION_SPIN_NS,
    SPIN_UNTIL_NS,
    SYNCS,
    UNSENT_FD,
)

LOOKS_MAX = 8  # In one turn: bounds how long its first answers wait.
SHORT_BYTES = 128 * 1024  # A turn that has received more does not look again.
ANSWERS_BYTES_MIN = 4096  # Room for answers without which a turn does not look again.
# Each session and each event may bring an answer, and no kernel checks whether a row is left: an
# answer without one would be an ack that nobody gets, of records that are then sent again.
assert SESSIONS_MAX + EVENTS_MAX <= ROWS_MAX


@kernel
def ready(turn, events, timeout_ms):
    """How many descriptors are ready within `timeout_ms`; -1: a signal arrived."""
    epoll, count, timeout_ms = np.int32(turn[EPOLL]), np.int32(EVENTS_MAX), np.int32(timeout_ms)
    return np.int64(libc.epoll_wait(epoll, address(events, 0), count, timeout_ms))


@kernel
def _take_fetch(turn, fd, count, clients, data, log, fetching, parked):
    """Answer or park the received bytes if they are one Fetch request: ANSWERED.

    LEFT: its kernel leaves it; WAITS: the loop must ask.
    """
    if not is_one_fetch(turn, fd, count, data):
        return WAITS
    state, out = fetching
    memory, links, _, directory = log
    state[STATE_START] = SIZE_BYTES
    is_last = False
    outcome = answer_fetch(data, count, is_last, memory, links, directory, state, out)
    if outcome == ANSWERED:
        send_fetched(turn, fd, memory, fetching)
    elif outcome == WAITS and park(parked, fd, data, SIZE_BYTES, count, state, clients[fd]):
        clients[fd] = PARKED
        return ANSWERED
    return outcome


@kernel
def _produce(turn, fd, count, data, log, producing):
    """Append the Produce requests in data[:count]; whether data[:count] was nothing else."""
    plan, out = producing
    memory, links, producers, directory = log
    begin_plan(turn, plan, count)
    turn[LEFT_STOP] = produce(data, memory, links, producers, directory, plan, out)
    return end_plan(turn, fd, count, plan)


@kernel
def _take(turn, fd, clients, data, log, producing, fetching, parked):
    """Receive once and take the requests; returns the bytes received, or -1: leave it to the
    loop."""
    count = receive_once(fd, data)
    if count <= 0:
        return np.int64(-1)
    is_held = clients[fd] == HELD
    if not is_held:
        clients[fd] = now_ns(turn, libc.CLOCK_MONOTONIC)
    if _produce(turn, fd, count, data, log, producing):
        if is_held:  # The answer must not overtake those that are held.
            turn[LEVEL] = words.DURABILITY_DISK
        return count
    plan = producing[0]
    is_other = turn[LEFT_STOP] == words.STOP_OTHER_API and plan[words.HEAD_START] == 0
    if is_other and not is_held:
        outcome = _take_fetch(turn, fd, count, clients, data, log, fetching, parked)
        if outcome == ANSWERED:
            return np.int64(-1) if turn[UNSENT_FD] >= 0 else count
        if outcome == LEFT:
            plan[words.HEAD_PARSED] = words.STOP_FETCH_LEFT
    turn[LEFT_FD] = fd
    return np.int64(-1)


@kernel
def _take_session(turn, row, is_rung, data, log, producing, sessions):
    """Take the requests in a session's inbox; returns the bytes, or -1: leave it to the loop."""
    table = sessions[0]
    fd, bells = table[SESSION_WORDS * row + S_FD], np.int64(0)
    if is_rung:
        bells = libc.recv(np.int32(fd), address(data, 0), BELLS_MAX, np.int32(libc.MSG_DONTWAIT))
        if bells <= 0:
            return np.int64(-1)  # The client hung up; epoll reports that to the loop again.
        turn[AWAKE] |= np.int64(1) << row
    size = take_session(table, row, data)
    if size < 0 or (size == 0 and is_rung):
        turn[RUNG_FD], turn[BELLS] = fd, bells
        return np.int64(-1)
    if size > 0 and turn[SESSION_SPIN_NS] != 0:
        turn[SPIN_UNTIL_NS] = now_ns(turn, libc.CLOCK_MONOTONIC) + turn[SESSION_SPIN_NS]
    if size > 0 and not _produce(turn, fd, size, data, log, producing):
        turn[LEFT_FD] = fd
        return np.int64(-1)
    return size


@kernel
def _take_awake(turn, data, log, producing, sessions):
    """Take the requests in the inboxes of awake sessions; returns the bytes, or -1."""
    total, awake, is_rung = np.int64(0), turn[AWAKE], False
    for row in range(SESSIONS_MAX):
        if awake >> row & 1:
            size = _take_session(turn, row, is_rung, data, log, producing, sessions)
            if size < 0:
                return size
            total += size
    return total


@kernel
def _is_ours(clients, mask, fd):
    """Whether a descriptor's event is for the kernel."""
    if mask != libc.EPOLLIN or fd >= clients.size:
        return False
    return clients[fd] != LOOPS and clients[fd] != PARKED


@kernel
def _take_sync(turn, fd):
    """Take the word that a sync has ended (shm.kernels.turn.held)."""
    turn[RECEIVED] += 1
    libc.read(np.int32(fd), address(turn, CLOCK), 8)
    return np.int64(0)


@kernel
def _take_events(turn, events, count, clients, data, log, producing, fetching, parked, sessions):
    """Take the input of `count` descriptors; returns the bytes, or -1: the loop must continue."""
    total = np.int64(0)
    for i in range(count):
        mask, fd = events[EVENT_WORDS * i], np.int64(events[EVENT_WORDS * i + EVENT_FD])
        if not _is_ours(clients, mask, fd):
            return np.int64(-1)
        if clients[fd] <= SESSION:
            row, is_rung = SESSION - clients[fd], True
            size = _take_session(turn, row, is_rung, data, log, producing, sessions)
        elif clients[fd] > SYNCS:
            size = _take(turn, fd, clients, data, log, producing, fetching, parked)
        elif clients[fd] == SYNCS:
            size = _take_sync(turn, fd)
        else:
            size = take_limited(turn, fd, clients, data, log, producing, fetching, parked)
        if size < 0:
            return size
        total += size
    return total


@kernel
def _may_look_again(turn, total, room):
    """Whether a turn that has received `total` bytes may receive more before it answers."""
    if turn[IS_WATCHED] != 0 or total > SHORT_BYTES or room < ANSWERS_BYTES_MIN:
        return False
    return turn[ROW_COUNT] + EVENTS_MAX <= ROWS_MAX


@kernel
def receive(turn, events, count, clients, data, log, producing, fetching, parked, sessions):
    """Take the input of `count` connections, and what arrives meanwhile; False: the loop must
    continue."""
    plan, out = producing
    total = _take_awake(turn, data, log, producing, sessions)
    if total < 0:
        return False
    for _ in range(LOOKS_MAX):
        size = _take_events(
            turn, events, count, clients, data, log, producing, fetching, parked, sessions
        )
        if size < 0:
            return False
        total += size
        if not _may_look_again(turn, total, out.size - plan[words.HEAD_OUT_START]):
            return True
        count = ready(turn, events, 0)
        if count <= 0:
            return True
    return True
