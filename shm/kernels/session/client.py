"""The client's end of a session's two rings; shm.kernels.session.shard is the other.

A client writes a request in four steps: find room, write the request, publish the tail, ring the
bell. It may be killed after any of them:

    before the tail is published   the shard sees nothing of the request
    after that                     the request is whole: when the socket closes, the shard takes
                                   what is in the inbox and then drops the session
"""

from shm.kernels.base.atomics import fence, futex_wait, load_acquire, pause, store_release
from shm.kernels.base.bytes import copy_bytes, store32
from shm.kernels.base.jit import kernel
from shm.kernels.session.shard import aligned
from shm.kernels.session.words import (
    ANSWERS_HEAD,
    ANSWERS_TAIL,
    CLIENT_SLEEP,
    COUNT,
    EVENTS,
    IN_BYTES,
    IN_POSITION,
    INBOX_AT,
    INBOX_HEAD,
    INBOX_TAIL,
    OUT_AT,
    OUT_BYTES,
    OUT_POSITION,
    PAD,
    RESTART_BYTES,
    ROOM_SLEEP,
    ROOM_WANTED,
    RUNG,
    RUNG_ROOM,
    SHARD_SLEEP,
    SLEEP,
)


@kernel
def find_room(memory, side, size):
    """Where `size` contiguous bytes are free, or -1. A pad fills the end that is too short.

    An empty inbox restarts at its beginning too: a client that sends little uses few pages and
    cache lines.
    """
    tail, need = side[IN_POSITION], aligned(size)
    free = side[IN_BYTES] - (tail - load_acquire(memory, 8 * INBOX_HEAD))
    at = tail % side[IN_BYTES]
    to_end = side[IN_BYTES] - at
    begins_anew = free == side[IN_BYTES] and at >= max(RESTART_BYTES, need)
    if need <= to_end and not begins_anew:
        return INBOX_AT + at if need <= free else -1
    if to_end + need > free:
        return -1
    store32(memory, INBOX_AT + at, PAD)
    side[IN_POSITION] = tail + to_end
    return INBOX_AT


@kernel
def await_room(memory, side, size, timeout_ns):
    """As find_room, but sleeps for room, at most so long. May return -1 early: try again.

    SYNC POINT with shm.kernels.session.shard._give_back.
    """
    store_release(memory, 8 * ROOM_WANTED, 1)
    fence()
    head = load_acquire(memory, 8 * INBOX_HEAD)
    at = find_room(memory, side, size)
    if at < 0:
        futex_wait(memory, 8 * INBOX_HEAD, head, timeout_ns)
        at = find_room(memory, side, size)
    store_release(memory, 8 * ROOM_WANTED, 0)
    return at


@kernel
def publish_request(memory, side, size):
    """The request of `size` bytes in the room that was found is whole; whether to ring.

    SYNC POINT with take_requests and fall_asleep of shm.kernels.session.shard.
    """
    side[IN_POSITION] += aligned(size)
    store_release(memory, 8 * INBOX_TAIL, side[IN_POSITION])
    fence()
    sleep = load_acquire(memory, 8 * SHARD_SLEEP)
    if sleep & 1 == 0 or sleep == side[RUNG]:
        return False
    side[RUNG] = sleep
    return True


@kernel
def has_news(memory, side):
    """Whether there are answers to take, or events since they were last seen."""
    answers = load_acquire(memory, 8 * ANSWERS_TAIL) != side[OUT_POSITION]
    return answers or load_acquire(memory, 8 * EVENTS) != side[COUNT]


@kernel
def fall_asleep_client(memory, side):
    """Ask for a bell at the next news; False: there is some already, do not sleep.

    SYNC POINT with shm.kernels.session.shard.must_ring: sleep, fence, news here; there news, fence,
    sleep. Either we see the news, or the shard sees that it must ring.
    """
    side[SLEEP] = side[SLEEP] + 1 | 1
    store_release(memory, 8 * CLIENT_SLEEP, side[SLEEP])
    fence()
    if not has_news(memory, side):
        return True
    side[SLEEP] += 1
    store_release(memory, 8 * CLIENT_SLEEP, side[SLEEP])
    return False


@kernel
def wake_client(memory, side):
    """Ask for no more bells; whether there is news. Events count once: check the logs next."""
    if side[SLEEP] & 1:
        side[SLEEP] += 1
        store_release(memory, 8 * CLIENT_SLEEP, side[SLEEP])
    events = load_acquire(memory, 8 * EVENTS)  # Once: counting it as seen reports it.
    seen, side[COUNT] = side[COUNT], events
    return events != seen or load_acquire(memory, 8 * ANSWERS_TAIL) != side[OUT_POSITION]


@kernel
def spin(memory, side, rounds):
    """Look for news up to `rounds` times; whether there are any."""
    for _ in range(rounds):
        if has_news(memory, side):
            return True
        pause()
    return False


@kernel
def take_answers(memory, side, out):
    """Copy bytes of answers to `out`, as many as it holds; returns how many.

    SYNC POINT with shm.kernels.session.shard.put_answers.
    """
    head = side[OUT_POSITION]
    count = min(load_acquire(memory, 8 * ANSWERS_TAIL) - head, out.size)
    at = head % side[OUT_BYTES]
    first = min(count, side[OUT_BYTES] - at)
    copy_bytes(out, 0, memory, side[OUT_AT] + at, first)
    copy_bytes(out, first, memory, side[OUT_AT], count - first)
    side[OUT_POSITION] = head + count
    store_release(memory, 8 * ANSWERS_HEAD, head + count)
    return count


@kernel
def must_ring_for_room(memory, side):
    """Whether the shard waits for answers to be taken and has not been rung for that."""
    fence()
    sleep = load_acquire(memory, 8 * ROOM_SLEEP)
    if sleep & 1 == 0 or sleep == side[RUNG_ROOM]:
        return False
    side[RUNG_ROOM] = sleep
    return True
