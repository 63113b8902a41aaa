"""The shard's end of a session's two rings; shm.kernels.session.client is the other.

A client, even a malicious one, can write this memory (uint8, laid out by shm.session) at any time.
So each word is read once, by an atomic load, and checked before use; bytes are copied before they
are parsed; the shard keeps its positions in `side` (int64, private) and never reads them back.
"""

from shm.kernels.base.atomics import fence, futex_wake, load_acquire, pause, store_release
from shm.kernels.base.bytes import copy_bytes, put32
from shm.kernels.base.jit import kernel
from shm.kernels.base.wire import SIZE_BYTES
from shm.kernels.session.words import (
    ALIGNMENT_BYTES,
    ANSWERS_HEAD,
    ANSWERS_TAIL,
    CLIENT_SLEEP,
    COUNT,
    EVENTS,
    FAULT_CUT,
    FAULT_HEAD,
    FAULT_SIZE,
    FAULT_TAIL,
    IN_BYTES,
    IN_POSITION,
    INBOX_AT,
    INBOX_HEAD,
    INBOX_TAIL,
    OUT_AT,
    OUT_BYTES,
    OUT_POSITION,
    OUT_SLEEP,
    PAD,
    REQUEST_MAX,
    ROOM_SLEEP,
    ROOM_WANTED,
    RUNG,
    SHARD_SLEEP,
    SLEEP,
)

REQUEST_BYTES_MIN = 8  # Key, version and correlation: what the parser looks at first.


@kernel
def aligned(size):
    """The bytes that a request takes in the inbox."""
    return (size + ALIGNMENT_BYTES - 1) & -ALIGNMENT_BYTES


@kernel
def size_of(word):
    """The big-endian int32 in the low half of a word."""
    size = (word & 255) << 24 | (word & 0xFF00) << 8 | (word >> 8) & 0xFF00 | (word >> 24) & 255
    return size - ((size & 0x80000000) << 1)


@kernel
def _request_bytes(memory, side, head, tail):
    """The request at `head`: its bytes with the size, 0 for a pad, or a fault."""
    at = head % side[IN_BYTES]
    size = size_of(load_acquire(memory, INBOX_AT + at))
    to_end = side[IN_BYTES] - at
    if size == PAD:
        return 0 if to_end <= tail - head else FAULT_CUT
    if size < REQUEST_BYTES_MIN or size > side[REQUEST_MAX]:
        return FAULT_SIZE
    if aligned(SIZE_BYTES + size) > min(to_end, tail - head):
        return FAULT_CUT
    return SIZE_BYTES + size


@kernel
def _give_back(memory, head):
    """Free the inbox up to `head`, and wake a client that waits for room.

    SYNC POINT with shm.kernels.session.client.await_room: head, fence, ROOM_WANTED here; there
    ROOM_WANTED, fence, head. One of the two sees the other's.
    """
    store_release(memory, 8 * INBOX_HEAD, head)
    fence()
    if load_acquire(memory, 8 * ROOM_WANTED) != 0:
        futex_wake(memory, 8 * INBOX_HEAD, 1)


@kernel
def _tail(memory, side, head):
    """The current end of the inbox, or a fault."""
    tail = load_acquire(memory, 8 * INBOX_TAIL)
    if tail - head < 0 or tail - head > side[IN_BYTES] or tail % ALIGNMENT_BYTES != 0:
        return FAULT_TAIL
    return tail


@kernel
def _awake(memory, side):
    """No bell is needed."""
    if side[SLEEP] & 1:
        side[SLEEP] += 1
        store_release(memory, 8 * SHARD_SLEEP, side[SLEEP])


@kernel
def take_requests(memory, side, out):
    """Copy whole requests from the inbox to `out`, with their sizes, as many as it holds.

    Returns how many bytes, or a fault once the requests before it have been taken.
    `out` holds the largest request. SYNC POINT with shm.kernels.session.client.publish_request.
    """
    _awake(memory, side)
    head, taken = side[IN_POSITION], 0
    tail = _tail(memory, side, head)
    if tail < 0:
        return tail
    while head < tail:
        size = _request_bytes(memory, side, head, tail)
        if size < 0:
            if taken == 0:
                return size
            break
        at = head % side[IN_BYTES]
        if size == 0:
            head += side[IN_BYTES] - at
            continue
        if size > out.size - taken:
            break
        copy_bytes(out, taken, memory, INBOX_AT + at, size)
        put32(out, taken, size - SIZE_BYTES)  # As it was checked, whatever it is by now.
        head, taken = head + aligned(size), taken + size
    if head != side[IN_POSITION]:
        side[IN_POSITION] = head
        _give_back(memory, head)
    return taken


@kernel
def spin_for_requests(memory, side, rounds):
    """Check the inbox up to `rounds` times; whether it has a request."""
    for _ in range(rounds):
        if load_acquire(memory, 8 * INBOX_TAIL) != side[IN_POSITION]:
            return True
        pause()
    return False


@kernel
def fall_asleep(memory, side):
    """Fall asleep until a bell; False: the inbox is not empty, and we do not sleep.

    SYNC POINT with shm.kernels.session.client.publish_request: sleep, fence, tail here; there tail,
    fence, sleep. Either we see the request, or the client sees that it must ring.
    """
    side[SLEEP] = side[SLEEP] + 1 | 1
    store_release(memory, 8 * SHARD_SLEEP, side[SLEEP])
    fence()
    if load_acquire(memory, 8 * INBOX_TAIL) == side[IN_POSITION]:
        return True
    _awake(memory, side)
    return False


@kernel
def _put_some(memory, side, answers, at):
    """Copy as much of answers[at:] as there is room for; the bytes copied, or a fault."""
    tail = side[OUT_POSITION]
    head = load_acquire(memory, 8 * ANSWERS_HEAD)
    capacity = side[OUT_BYTES]
    if tail - head < 0 or tail - head > capacity:
        return FAULT_HEAD
    count = min(answers.size - at, capacity - (tail - head))
    place = tail % capacity
    first = min(count, capacity - place)
    copy_bytes(memory, side[OUT_AT] + place, answers, at, first)
    copy_bytes(memory, side[OUT_AT], answers, at + first, count - first)
    side[OUT_POSITION] = tail + count
    store_release(memory, 8 * ANSWERS_TAIL, tail + count)
    return count


@kernel
def put_answers(memory, side, answers):
    """Copy answers to the client, as many as there is room for; the bytes copied, or a fault.

    If some are left, the client rings when it has taken some. SYNC POINT with take_answers of
    shm.kernels.session.client: ROOM_SLEEP, fence, head here; there head, fence, ROOM_SLEEP.
    """
    if side[OUT_SLEEP] & 1:
        side[OUT_SLEEP] += 1
        store_release(memory, 8 * ROOM_SLEEP, side[OUT_SLEEP])
    count = _put_some(memory, side, answers, 0)
    if count < 0 or count == answers.size:
        return count
    side[OUT_SLEEP] += 1
    store_release(memory, 8 * ROOM_SLEEP, side[OUT_SLEEP])
    fence()
    more = _put_some(memory, side, answers, count)
    return more if more < 0 else count + more


@kernel
def must_ring(memory, side):
    """Whether the client sleeps and has not been rung for it; call after publishing.

    SYNC POINT with shm.kernels.session.client.fall_asleep_client.
    """
    fence()
    sleep = load_acquire(memory, 8 * CLIENT_SLEEP)
    if sleep & 1 == 0 or sleep == side[RUNG]:
        return False
    side[RUNG] = sleep
    return True


@kernel
def tell_event(memory, side):
    """Count an event of a watched partition; whether to ring."""
    side[COUNT] += 1
    store_release(memory, 8 * EVENTS, side[COUNT])
    return must_ring(memory, side)
