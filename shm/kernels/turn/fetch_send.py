"""Sends the answers of answer_fetch: the response, and the batches that it lends from the ring.

The kernel of the system copies the bytes during the call, and the shard appends nothing meanwhile,
so the lent batches are not overwritten.

    state[STATE_MESSAGE:]   as words: struct msghdr, two struct pollfd, struct iovec [1024] of the
                            message (sendmsg(2), poll(2))
"""

import numpy as np

from shm.kernels.base import libc, words
from shm.kernels.base.atomics import address
from shm.kernels.base.jit import kernel
from shm.kernels.base.memory import get_word, ring_at
from shm.kernels.request.fetch import (
    LENT_AT,
    LENT_BYTES,
    LENT_MAX,
    LENT_POSITION,
    LENT_WORDS,
    PLACES_MAX,
    STATE_LENT,
    STATE_LENT_BYTES,
    STATE_LENT_COUNT,
    STATE_MESSAGE,
    STATE_OUT_BYTES,
    STATE_WORDS,
)

_MESSAGE_IOV, _MESSAGE_IOV_COUNT = STATE_MESSAGE + 2, STATE_MESSAGE + 3
_POLL = STATE_MESSAGE + 7  # Two of struct pollfd.
_VECTORS = STATE_MESSAGE + 9
_VECTOR_WORDS = 2
ROOM_MS = 1  # A client without room for this long is left to the loop.
# Each batch is a piece; so is what stands before each partition, and behind the last. No kernel
# checks whether one is left: the system would be given other memory to send as records.
assert LENT_MAX + PLACES_MAX + 1 <= (STATE_WORDS - _VECTORS) // _VECTOR_WORDS


@kernel
def _add_piece(state, at, size):
    """Add the `size` bytes at an address to the message."""
    if size > 0:
        row = _VECTORS + _VECTOR_WORDS * state[_MESSAGE_IOV_COUNT]
        state[row], state[row + 1] = at, size
        state[_MESSAGE_IOV_COUNT] += 1


@kernel
def _fill_message(memory, state, out):
    """Point the message at the parts of the response, and at the batches between them."""
    ring, ring_bytes, at = ring_at(memory), get_word(memory, words.WORD_RING_BYTES), np.int64(0)
    state[_MESSAGE_IOV], state[_MESSAGE_IOV_COUNT] = address(state, _VECTORS), 0
    for i in range(state[STATE_LENT_COUNT]):
        row = STATE_LENT + LENT_WORDS * i
        _add_piece(state, address(out, at), state[row + LENT_AT] - at)
        at = state[row + LENT_AT]
        place = ring + state[row + LENT_POSITION] % ring_bytes
        _add_piece(state, address(memory, place), state[row + LENT_BYTES])
    _add_piece(state, address(out, at), state[STATE_OUT_BYTES] - at)


@kernel
def _take_off(state, sent):
    """Remove the first `sent` bytes from the message."""
    row = _VECTORS + (state[_MESSAGE_IOV] - address(state, _VECTORS)) // 8
    while sent > 0:
        size = min(sent, state[row + 1])
        state[row] += size
        state[row + 1] -= size
        sent -= size
        if state[row + 1] == 0:
            row += _VECTOR_WORDS
            state[_MESSAGE_IOV_COUNT] -= 1
    state[_MESSAGE_IOV] = address(state, row)


@kernel
def _has_room(fd, epoll, state):
    """Wait a moment for room in the socket, whose client is reading.

    Work for another client ends the wait.
    """
    state[_POLL], state[_POLL + 1] = fd | libc.POLLOUT << 32, epoll | libc.POLLIN << 32
    if libc.poll(address(state, _POLL), np.int64(2), np.int32(ROOM_MS)) <= 0:
        return False
    return state[_POLL] >> 48 & libc.POLLOUT != 0


@kernel
def send_answer(fd, epoll, memory, state, out):
    """Send it; returns how many bytes the socket took."""
    flags, total = np.int32(libc.MSG_DONTWAIT | libc.MSG_NOSIGNAL), np.int64(0)
    left = state[STATE_OUT_BYTES] + state[STATE_LENT_BYTES]
    _fill_message(memory, state, out)
    while True:
        sent = libc.sendmsg(np.int32(fd), address(state, STATE_MESSAGE), flags)
        if sent <= 0:
            return total
        total, left = total + sent, left - sent
        if left == 0:
            return total
        _take_off(state, sent)
        if not _has_room(fd, epoll, state):
            return total
