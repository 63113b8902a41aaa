"""The sync thread's loop: waits on a futex, calls fdatasync, publishes the synced position.

It does not hold the GIL: a slow disk delays only requests that wait for it. Its mailbox is an int64
array in the shard's own memory:

    0 REQUESTED   requests ever posted (futex)     1 STOP       nonzero: leave
    2 ERRNO       nonzero: a sync failed; syncing stops until it is cleared
    3 DONE        requests served                  4 EVENT_FD   written to after each round
    5 ONE         the bytes written there          6 CLOCK      clock_gettime's result, two words
    8 + 2 * (n % 64)   the n-th request: descriptor, position synced when it is done

SYNC POINT with smq.log.sync: the poster fills the request, then releases REQUESTED; acquiring it
here makes the whole request visible. DONE is released after WORD_SYNCED.
"""

import numpy as np

from shm.kernels.base import libc, words
from shm.kernels.base.atomics import address, futex_wait, futex_wake, load_acquire, store_release
from shm.kernels.base.jit import kernel
from shm.kernels.base.memory import get_word, release_word, set_word
from shm.kernels.base.times import bucket_of

BOX_WORDS = 136
BOX_REQUESTED, BOX_STOP, BOX_ERRNO, BOX_DONE, BOX_EVENT_FD, BOX_ONE = 0, 1, 2, 3, 4, 5
BOX_CLOCK = 6
BOX_REQUESTS_AT = 8
BOX_REQUESTS = 64
# The clock's two words, and the requests, must not reach into what is behind them: with another
# descriptor in a request, another file is synced, and records are acked that no disk has.
assert BOX_CLOCK + 2 <= BOX_REQUESTS_AT
assert BOX_REQUESTS_AT + 2 * BOX_REQUESTS <= BOX_WORDS
WAIT_NS = 1_000_000_000
LOOKS = 300  # Spin before sleeping: a client that was just acknowledged may send again at once.


@kernel
def _now_ns(box):
    libc.clock_gettime(np.int32(libc.CLOCK_MONOTONIC), address(box, BOX_CLOCK))
    return box[BOX_CLOCK] * 1_000_000_000 + box[BOX_CLOCK + 1]


@kernel
def _count_sync(memory, took_ns):
    set_word(memory, words.COUNTER_SYNCS, get_word(memory, words.COUNTER_SYNCS) + 1)
    set_word(memory, words.COUNTER_SYNC_NS, get_word(memory, words.COUNTER_SYNC_NS) + took_ns)
    bucket = words.COUNTER_SYNC_TIMES + bucket_of(took_ns)
    set_word(memory, bucket, get_word(memory, bucket) + 1)


@kernel
def _sync_round(memory, box, done, requested):
    """Serve the requests [done, requested); returns how many are served now, or -1 on failure."""
    while done < requested:
        fd = box[BOX_REQUESTS_AT + 2 * (done % BOX_REQUESTS)]
        last = done
        while last + 1 < requested and box[BOX_REQUESTS_AT + 2 * ((last + 1) % BOX_REQUESTS)] == fd:
            last += 1
        upto = box[BOX_REQUESTS_AT + 2 * (last % BOX_REQUESTS) + 1]
        began_ns = _now_ns(box)
        if libc.fdatasync(np.int32(fd)) != 0:
            return np.int64(-1)
        _count_sync(memory, _now_ns(box) - began_ns)
        release_word(memory, words.WORD_SYNCED, upto)
        done = last + 1
        store_release(box, BOX_DONE, done)
    return done


@kernel
def _wait(box, requested):
    """Wait for a new request, spinning for a moment first; at most WAIT_NS."""
    for _ in range(LOOKS):
        if load_acquire(box, BOX_REQUESTED) != requested or load_acquire(box, BOX_STOP) != 0:
            return
        libc.sched_yield()
    futex_wait(box, BOX_REQUESTED, requested, WAIT_NS)


@kernel
def sync_loop(memory, box):
    """Serve sync requests until BOX_STOP. Runs in a thread of its own, without the GIL."""
    box[BOX_ONE] = 1
    while load_acquire(box, BOX_STOP) == 0:
        requested = load_acquire(box, BOX_REQUESTED)
        # First ERRNO: once it is cleared, DONE says that what failed was done otherwise.
        has_failed = load_acquire(box, BOX_ERRNO) != 0
        done = load_acquire(box, BOX_DONE)
        if has_failed or done >= requested:
            _wait(box, requested)
            continue
        if _sync_round(memory, box, done, requested) < 0:
            store_release(box, BOX_ERRNO, 5)
        libc.write(np.int32(box[BOX_EVENT_FD]), address(box, BOX_ONE), 8)


@kernel
def post_sync(box, fd, upto):
    """Request a sync of fd, after which everything below `upto` is synced; False: the box is
    full."""
    requested = box[BOX_REQUESTED]
    if requested - load_acquire(box, BOX_DONE) >= BOX_REQUESTS:
        return False
    box[BOX_REQUESTS_AT + 2 * (requested % BOX_REQUESTS)] = fd
    box[BOX_REQUESTS_AT + 2 * (requested % BOX_REQUESTS) + 1] = upto
    store_release(box, BOX_REQUESTED, requested + 1)
    futex_wake(box, BOX_REQUESTED, 1)
    return True


@kernel
def stop_sync(box):
    """Make sync_loop return."""
    store_release(box, BOX_STOP, 1)
    futex_wake(box, BOX_REQUESTED, 1)
