"""Fetches that wait for records, in a table where a kernel finds and answers them.

    table      int64: their number, a lower bound of their deadlines (monotonic ns), then a row for
               each: its client's descriptor, the bytes of the request, its deadline, and the slots
               of its partitions
    requests   uint8: the request of row i, without its size, from i * REQUEST_BYTES_MAX on
    awaited    int32 by slot: how many rows ask for a partition

Rows are in no order: the last one replaces a removed one.
"""

import numpy as np

from shm.kernels.base.bytes import copy_bytes
from shm.kernels.base.jit import kernel
from shm.kernels.request.fetch import (
    PLACES_MAX,
    STATE_MAX_WAIT_MS,
    STATE_PLACE_COUNT,
    STATE_PLACES,
)

WAITING_COUNT, WAITING_DUE_NS = 0, 1
WAITING_AT = 8  # The first row.
W_FD, W_BYTES, W_DUE_NS, W_SLOT_COUNT, W_SLOTS = 0, 1, 2, 3, 4
WAITING_WORDS = W_SLOTS + PLACES_MAX
WAITING_MAX = 256  # Rows. When the table is full, requests wait in Python.
REQUEST_BYTES_MAX = 1024  # As many partitions as the kernel answers, in topics of usual names.
NEVER_NS = 2**63 - 1
# The first row begins behind the table's own words, or its client is a deadline.
assert WAITING_DUE_NS < WAITING_AT
_SLOT_MASK = 0xFFFFFFFF


def new_waiting(slots: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """An empty table, room for its requests, and `awaited` for `slots` partitions."""
    table = np.zeros(WAITING_AT + WAITING_WORDS * WAITING_MAX, np.int64)
    table[WAITING_DUE_NS] = NEVER_NS
    requests = np.zeros(WAITING_MAX * REQUEST_BYTES_MAX, np.uint8)
    return table, requests, np.zeros(slots, np.int32)


@kernel
def waiting_at(row):
    """Where a row begins in the table."""
    return WAITING_AT + WAITING_WORDS * row


@kernel
def add_waiting(waiting, fd, data, start, end, state, now_ns):
    """Keep the request in data[start:end], for which answer_fetch returned WAITS; False: no room.

    `waiting` is (table, requests, awaited); `state` is as answer_fetch has left it.
    """
    table, requests, awaited = waiting
    row, size = table[WAITING_COUNT], end - start
    if row == WAITING_MAX or size > REQUEST_BYTES_MAX:
        return False
    at, due_ns = waiting_at(row), now_ns + state[STATE_MAX_WAIT_MS] * 1_000_000
    table[at + W_FD], table[at + W_BYTES], table[at + W_DUE_NS] = fd, size, due_ns
    table[at + W_SLOT_COUNT] = state[STATE_PLACE_COUNT]
    for i in range(state[STATE_PLACE_COUNT]):
        slot = state[STATE_PLACES + i] & _SLOT_MASK
        table[at + W_SLOTS + i] = slot
        awaited[slot] += 1
    copy_bytes(requests, row * REQUEST_BYTES_MAX, data, start, size)
    table[WAITING_COUNT] = row + 1
    table[WAITING_DUE_NS] = min(table[WAITING_DUE_NS], due_ns)
    return True


@kernel
def asks_for(table, row, slot):
    """Whether a row waits for a partition."""
    at, is_asked = waiting_at(row), False
    for i in range(table[at + W_SLOT_COUNT]):
        is_asked |= table[at + W_SLOTS + i] == slot
    return is_asked


@kernel
def remove_waiting(waiting, row):
    """Forget a row."""
    table, requests, awaited = waiting
    at, last = waiting_at(row), table[WAITING_COUNT] - 1
    for i in range(table[at + W_SLOT_COUNT]):
        awaited[table[at + W_SLOTS + i]] -= 1
    table[WAITING_COUNT] = last
    if row == last:
        return
    source = waiting_at(last)
    for i in range(WAITING_WORDS):
        table[at + i] = table[source + i]
    to, start = row * REQUEST_BYTES_MAX, last * REQUEST_BYTES_MAX
    copy_bytes(requests, to, requests, start, table[at + W_BYTES])
