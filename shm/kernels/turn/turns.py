"""Takes whole turns of a shard in one call, for frequent requests: Produce, and Fetch near the end.

    wait      until a socket or a session's inbox has input: spin for a moment, then sleep
    receive   one recv a socket, or the requests in an inbox (shm.kernels.turn.receive): append
              the batches of Produce requests; answer a Fetch or park it; look again, a bounded
              number of times, while more input arrives
    write     one pwrite of the appended frames to the WAL segment
    show      move high watermarks; ring the sessions that watch; answer fetches that waited
    hold      answers of a turn with records of `disk` topics; have these synced
    send      the answers to Produce requests, and those held whose records are on disk

The kernel takes turn after turn. It returns when its time is over, when nothing arrives until the
next timer is due, when a new catalog was published, and when it meets a case of the loop: another
connection or request, an answer that it cannot hold, a log without room, a full socket, records
that a request of the loop waits for, a system call that failed. Then `turn` and `plan` say how far
the turn got, and smq.app.shard.turns.quick_turns hands the rest to the loop, which gives the same
answers. Descriptors are level-triggered: input that was not read is reported again.

shm.kernels.turn.words describes the words and `clients`.
"""

import numpy as np

from shm.kernels.base import libc, words
from shm.kernels.base.atomics import address, load_acquire
from shm.kernels.base.jit import kernel
from shm.kernels.base.memory import get_word, release_word, ring_at
from shm.kernels.base.times import bucket_of
from shm.kernels.log.visible import publish
from shm.kernels.request.fetch import ANSWERED, LEFT, STATE_START, WAITS, answer_fetch
from shm.kernels.turn.held import (
    HELD_COUNT,
    HELD_SHOWN,
    HELD_WANTED,
    hold_answers,
    may_hold,
    push_sync,
    send_held,
)
from shm.kernels.turn.limited import answer_barred, is_barred
from shm.kernels.turn.parked import (
    PARKED_COUNT,
    PARKED_DUE_NS,
    REQUEST_BYTES_MAX,
    W_BYTES,
    W_FD,
    asks_for,
    parked_at,
    unpark,
)
from shm.kernels.turn.receive import ready, receive
from shm.kernels.turn.requests import now_ns, send_fetched
from shm.kernels.turn.sessions import (
    answer_session,
    any_requests,
    let_sleep,
    tell_sessions,
)
from shm.kernels.turn.spin import SPIN_SESSION_NS, SPIN_SYNC_NS, may_spin, note_spin
from shm.kernels.turn.words import (
    ANSWER_WORDS,
    AWAKE,
    BEGAN_FETCHED,
    BEGAN_NS,
    BEGAN_PRODUCED,
    CATALOG,
    DUE_NS,
    HAS_IDLED,
    IS_SHORT,
    IS_WATCHED,
    LEFT_FD,
    LEVEL,
    LIMITED,
    MOVED,
    RECEIVED,
    ROW,
    ROW_COUNT,
    ROW_END,
    ROW_FD,
    ROW_START,
    ROWS_AT,
    RUNG_FD,
    SESSION,
    SPIN_NS,
    SPIN_UNTIL_NS,
    TIME_SUMS_AT,
    TIMES_AT,
    TURN_COUNT,
    TURNS_NS,
    UNSENT_FD,
    UNTIL_NS,
    WAL_END,
    WAL_FD,
    WAL_START,
    WATCH_ALL,
)

SESSION_LOOKS = 20  # At the inboxes that are awake, before sockets are looked at again.
MS_NS = 1_000_000


@kernel
def _wait_awake(turn, events, sessions, until_ns):
    """As ready(), spinning; 0: no socket has input.

    Yields the core to other processes: otherwise a client would wait for it until the scheduler's
    next tick.
    """
    count = np.int64(0)
    while count == 0 and not any_requests(sessions[0], turn[AWAKE], SESSION_LOOKS):
        if now_ns(turn, libc.CLOCK_MONOTONIC) >= until_ns:
            break
        libc.sched_yield()
        count = ready(turn, events, 0)
    return count


@kernel
def _look(turn, events, sessions, spin, held):
    """How many descriptors are ready: at once, or after spinning if that is worth it."""
    count, is_tried = ready(turn, events, 0), turn[IS_SHORT] != 0 and may_spin(spin)
    turn[IS_SHORT] = 0
    if count == 0 and (is_tried or turn[AWAKE] != 0):
        spin_ns = SPIN_SESSION_NS if turn[AWAKE] != 0 else turn[SPIN_NS]
        if held[0][HELD_COUNT] > 0:
            spin_ns = max(spin_ns, SPIN_SYNC_NS)
        until_ns = now_ns(turn, libc.CLOCK_MONOTONIC) + spin_ns * is_tried
        if turn[AWAKE] != 0:
            until_ns = max(until_ns, min(turn[SPIN_UNTIL_NS], turn[UNTIL_NS]))
        count = _wait_awake(turn, events, sessions, until_ns)
    if is_tried:
        note_spin(spin, count != 0 or any_requests(sessions[0], turn[AWAKE], 1))
    return count


@kernel
def _sleep(turn, events, due_ns):
    """As ready(), asleep until there is input; at most until something is due, which comes first:
    a login may be over."""
    at_ns = now_ns(turn, libc.CLOCK_MONOTONIC)
    if at_ns >= due_ns:
        return np.int64(0)
    count = ready(turn, events, (due_ns - at_ns + MS_NS - 1) // MS_NS)
    woken_ns = now_ns(turn, libc.CLOCK_MONOTONIC)
    turn[UNTIL_NS] += woken_ns - at_ns  # It is time awake that is limited.
    return count if woken_ns < due_ns else np.int64(0)


@kernel
def _rest(turn, sessions, at_ns):
    """Let the awake sessions sleep once their time is over, unless their inbox has a request."""
    if turn[AWAKE] != 0 and at_ns >= turn[SPIN_UNTIL_NS]:
        turn[AWAKE] = let_sleep(sessions[0], turn[AWAKE])


@kernel
def _wait(turn, events, sessions, spin, parked, held):
    """How many descriptors are ready; -1: nothing is, nor in the inboxes that are awake."""
    count = _look(turn, events, sessions, spin, held)
    if count > 0 or any_requests(sessions[0], turn[AWAKE], 1):
        return count
    _rest(turn, sessions, now_ns(turn, libc.CLOCK_MONOTONIC))
    if turn[AWAKE] != 0:
        return np.int64(0 if turn[SPIN_UNTIL_NS] <= turn[UNTIL_NS] else -1)
    count = _sleep(turn, events, min(turn[DUE_NS], parked[0][PARKED_DUE_NS]))
    return count if count > 0 else np.int64(-1)


@kernel
def _write(turn, memory):
    """Write the appended frames to the WAL if one pwrite can; whether the WAL has all of them."""
    start, end = get_word(memory, words.WORD_WRITTEN), get_word(memory, words.WORD_TAIL)
    if start == end:
        return True
    ring_bytes = get_word(memory, words.WORD_RING_BYTES)
    place = start % ring_bytes
    if start < turn[WAL_START] or end > turn[WAL_END] or place + end - start > ring_bytes:
        return False
    source, at = address(memory, ring_at(memory) + place), start - turn[WAL_START]
    if libc.pwrite(np.int32(turn[WAL_FD]), source, end - start, at) != end - start:
        return False
    release_word(memory, words.WORD_WRITTEN, end)
    return True


@kernel
def _answer_row(turn, row, clients, log, fetching, parked):
    """Answer the fetch of a row if it has enough records now; False: the loop must continue."""
    state, out = fetching
    memory, links, _, directory = log
    table, requests, _ = parked
    fd, size = table[parked_at(row) + W_FD], table[parked_at(row) + W_BYTES]
    start = state[STATE_START] = row * REQUEST_BYTES_MAX
    is_last = False
    outcome = answer_fetch(requests, start + size, is_last, memory, links, directory, state, out)
    standing = np.int64(LIMITED)
    if outcome == ANSWERED:
        standing = now_ns(turn, libc.CLOCK_MONOTONIC)
    elif outcome == LEFT and is_barred(requests, row):
        outcome = answer_barred(turn, row, fd, log, fetching, parked)
    if outcome != ANSWERED:
        return outcome == WAITS
    unpark(parked, row)
    clients[fd] = standing
    send_fetched(turn, fd, memory, fetching)
    return turn[UNSENT_FD] < 0


@kernel
def _answer_parked(turn, slot, clients, log, fetching, parked):
    """Answer the fetches that waited for a partition; False: the loop must continue.

    Goes from the last row down: a row that replaces a removed one has been examined already.
    """
    table, is_done = parked[0], True
    for row in range(table[PARKED_COUNT] - 1, -1, -1):
        if is_done and asks_for(table, row, slot):
            is_done = _answer_row(turn, row, clients, log, fetching, parked)
    return is_done


@kernel
def _show_level(
    turn, level, upto, clients, log, fetching, parked, sessions, cursors, touched, watched
):
    """Move a level's high watermarks up to a position, and answer the fetches that waited for them;
    whether that was all."""
    memory, links, _, _ = log
    awaited, (table, watchers) = parked[2], sessions
    turn[MOVED] = publish(memory, links, cursors, level, upto, touched)
    if turn[MOVED] == 0:
        return True
    if turn[MOVED] == touched.size or turn[IS_WATCHED] != 0:
        return False
    is_done, concerned = True, turn[WATCH_ALL]
    for i in range(turn[MOVED]):
        concerned |= watchers[touched[i]]
    tell_sessions(table, concerned)
    for i in range(turn[MOVED]):
        is_done &= watched[touched[i]] == 0
        if awaited[touched[i]] > 0:
            is_done &= _answer_parked(turn, touched[i], clients, log, fetching, parked)
        if turn[UNSENT_FD] >= 0:
            return False
    if is_done:
        turn[MOVED] = 0
    return is_done


@kernel
def _show(turn, clients, log, fetching, parked, sessions, cursors, touched, watched, held):
    """Show what is written, and what is on disk; whether that was all."""
    memory, table = log[0], held[0]
    upto = get_word(memory, words.WORD_WRITTEN)
    is_done = _show_level(
        turn, words.DURABILITY_OS, upto, clients, log, fetching, parked, sessions, cursors,
        touched, watched,
    )  # fmt: skip
    upto = load_acquire(memory, 8 * words.WORD_SYNCED)
    if not is_done or upto == table[HELD_SHOWN]:
        return is_done
    table[HELD_SHOWN] = upto
    return _show_level(
        turn, words.DURABILITY_DISK, upto, clients, log, fetching, parked, sessions, cursors,
        touched, watched,
    )  # fmt: skip


@kernel
def _sync(turn, clients, memory, out, held):
    """Have what the turn has appended synced, and hold its answers, if its level says so; False:
    the loop must continue."""
    if turn[LEVEL] != words.DURABILITY_DISK:
        return push_sync(turn, memory, held)
    written = held[0][HELD_WANTED] = get_word(memory, words.WORD_WRITTEN)
    if not push_sync(turn, memory, held):
        return False
    hold_answers(turn, clients, out, held, written, turn[BEGAN_NS])
    turn[BEGAN_PRODUCED] = get_word(memory, words.COUNTER_PRODUCE_REQUESTS)  # They are not done.
    return True


@kernel
def _send_some(fd, clients, sessions, out, start, end):
    """Send one of the answers; returns how many bytes went."""
    if clients[fd] <= SESSION:
        return answer_session(sessions[0], SESSION - clients[fd], out[start:end])
    flags = np.int32(libc.MSG_DONTWAIT | libc.MSG_NOSIGNAL)
    return max(np.int64(0), libc.send(np.int32(fd), address(out, start), end - start, flags))


@kernel
def _send_answers(turn, clients, sessions, out):
    """Send the answers; whether all of them went."""
    while turn[ROW] < turn[ROW_COUNT]:
        row = ROWS_AT + ANSWER_WORDS * turn[ROW]
        start, end = turn[row + ROW_START], turn[row + ROW_END]
        sent = _send_some(turn[row + ROW_FD], clients, sessions, out, start, end)
        if sent != end - start:
            turn[row + ROW_START] += sent
            return False
        turn[ROW] += 1
    return True


@kernel
def _begin(turn):
    """Reset the outputs of a run."""
    turn[TURN_COUNT] = turn[HAS_IDLED] = turn[MOVED] = turn[ROW] = 0
    turn[ROW_COUNT], turn[RECEIVED], turn[LEVEL] = 0, 0, words.LEVEL_NONE
    turn[LEFT_FD] = turn[UNSENT_FD] = turn[RUNG_FD] = -1


@kernel
def _begin_turn(turn, memory):
    """Begin a turn: there is input."""
    turn[TURN_COUNT] += 1
    turn[IS_SHORT] = 1
    turn[ROW] = turn[ROW_COUNT] = 0
    turn[LEVEL] = words.LEVEL_NONE
    turn[BEGAN_NS] = now_ns(turn, libc.CLOCK_MONOTONIC)
    turn[BEGAN_PRODUCED] = get_word(memory, words.COUNTER_PRODUCE_REQUESTS)
    turn[BEGAN_FETCHED] = get_word(memory, words.COUNTER_FETCH_REQUESTS)


@kernel
def _note_times(turn, memory, at_ns):
    """Record how long the turn's requests took."""
    took_ns = at_ns - turn[BEGAN_NS]
    produced = get_word(memory, words.COUNTER_PRODUCE_REQUESTS) - turn[BEGAN_PRODUCED]
    fetched = get_word(memory, words.COUNTER_FETCH_REQUESTS) - turn[BEGAN_FETCHED]
    bucket = bucket_of(took_ns)
    turn[TIMES_AT + bucket] += produced
    turn[TIMES_AT + words.TIME_BUCKETS + bucket] += fetched
    turn[TIME_SUMS_AT] += produced * took_ns
    turn[TIME_SUMS_AT + 1] += fetched * took_ns


@kernel
def _send(turn, clients, sessions, memory, out, held):
    """Send what is due, and record the turn's times; whether there may be another turn."""
    is_done = _send_answers(turn, clients, sessions, out)
    at_ns = now_ns(turn, libc.CLOCK_MONOTONIC)
    is_done &= send_held(turn, memory, clients, held, at_ns)
    _note_times(turn, memory, at_ns)
    return is_done and at_ns < turn[UNTIL_NS]


@kernel
def take_turns(
    turn,
    events,
    clients,
    data,
    log,
    producing,
    fetching,
    parked,
    sessions,
    cursors,
    touched,
    watched,
    spin,
    published,
    held,
):
    """Take turns until the loop must continue, nothing arrives, or the time is over (see above).

    events      int32: room for EVENTS_MAX
    data        uint8: at least receive.RECEIVE_BYTES, and a session's largest request
    log         (memory, links, producers, directory): see `produce`
    producing   (plan, out): see `produce`
    fetching    (state, out): see `answer_fetch`
    parked      see `park`
    sessions    (table, watchers): see shm.kernels.turn.sessions
    cursors, touched   see `publish`
    watched     int32 by slot: not 0 where a request waits that only the loop knows
    spin        see shm.kernels.turn.spin
    published   int64: the version of the catalog that was published last
    held        see shm.kernels.turn.held
    """
    plan, out = producing
    _begin(turn)
    turn[UNTIL_NS], is_going_on = now_ns(turn, libc.CLOCK_MONOTONIC) + turn[TURNS_NS], True
    while is_going_on:
        count = _wait(turn, events, sessions, spin, parked, held)
        if count < 0:
            turn[HAS_IDLED] = 1
            break
        if load_acquire(published, 0) != turn[CATALOG]:
            break
        _begin_turn(turn, log[0])
        plan[words.HEAD_OUT_START] = 0
        is_going_on = receive(
            turn, events, count, clients, data, log, producing, fetching, parked, sessions
        )
        is_left = turn[LEFT_FD] >= 0 or turn[UNSENT_FD] >= 0 or not may_hold(turn, clients, held)
        if is_left or not _write(turn, log[0]):
            break
        is_held = _sync(turn, clients, log[0], out, held)
        # Answer waiting fetches before sending acks, which are less urgent.
        is_shown = _show(
            turn, clients, log, fetching, parked, sessions, cursors, touched, watched, held
        )
        if not is_held or not is_shown:
            break
        is_going_on &= _send(turn, clients, sessions, log[0], out, held)
        if not is_going_on:
            _rest(turn, sessions, now_ns(turn, libc.CLOCK_MONOTONIC))
