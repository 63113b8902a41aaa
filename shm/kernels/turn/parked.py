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

PARKED_COUNT, PARKED_DUE_NS = 0, 1
PARKED_AT = 8  # The first row.
W_FD, W_BYTES, W_DUE_NS, W_SLOT_COUNT, W_SLOTS = 0, 1, 2, 3, 4
PARKED_WORDS = W_SLOTS + PLACES_MAX
PARKED_MAX = 256  # Rows. When the table is full, requests wait in Python.
REQUEST_BYTES_MAX = 1024  # As many partitions as the kernel answers, in topics of usual names.
NEVER_NS = 2**63 - 1
# The first row begins behind the table's own words, or its client is a deadline.
assert PARKED_DUE_NS < PARKED_AT
_SLOT_MASK = 0xFFFFFFFF


def new_parked(slots: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """An empty table, room for its requests, and `awaited` for `slots` partitions."""
    table = np.zeros(PARKED_AT + PARKED_WORDS * PARKED_MAX, np.int64)
    table[PARKED_DUE_NS] = NEVER_NS
    requests = np.zeros(PARKED_MAX * REQUEST_BYTES_MAX, np.uint8)
    return table, requests, np.zeros(slots, np.int32)


@kernel
def parked_at(row):
    """Where a row begins in the table."""
    return PARKED_AT + PARKED_WORDS * row


@kernel
def park(parked, fd, data, start, end, state, now_ns):
    """Keep the request in data[start:end], for which answer_fetch returned WAITS; False: no room.

    `parked` is (table, requests, awaited); `state` is as answer_fetch has left it.
    """
    table, requests, awaited = parked
    row, size = table[PARKED_COUNT], end - start
    if row == PARKED_MAX or size > REQUEST_BYTES_MAX:
        return False
    at, due_ns = parked_at(row), now_ns + state[STATE_MAX_WAIT_MS] * 1_000_000
    table[at + W_FD], table[at + W_BYTES], table[at + W_DUE_NS] = fd, size, due_ns
    table[at + W_SLOT_COUNT] = state[STATE_PLACE_COUNT]
    for i in range(state[STATE_PLACE_COUNT]):
        slot = state[STATE_PLACES + i] & _SLOT_MASK
        table[at + W_SLOTS + i] = slot
        awaited[slot] += 1
    copy_bytes(requests, row * REQUEST_BYTES_MAX, data, start, size)
    table[PARKED_COUNT] = row + 1
    table[PARKED_DUE_NS] = min(table[PARKED_DUE_NS], due_ns)
    return True


@kernel
def asks_for(table, row, slot):
    """Whether a row waits for a partition."""
    at, is_asked = parked_at(row), False
    for i in range(table[at + W_SLOT_COUNT]):
        is_asked |= table[at + W_SLOTS + i] == slot
    return is_asked


@kernel
def unpark(parked, row):
    """Forget a row."""
    table, requests, awaited = parked
    at, last = parked_at(row), table[PARKED_COUNT] - 1
    for i in range(table[at + W_SLOT_COUNT]):
        awaited[table[at + W_SLOTS + i]] -= 1
    table[PARKED_COUNT] = last
    if row == last:
        return
    source = parked_at(last)
    for i in range(PARKED_WORDS):
        table[at + i] = table[source + i]
    to, start = row * REQUEST_BYTES_MAX, last * REQUEST_BYTES_MAX
    copy_bytes(requests, to, requests, start, table[at + W_BYTES])
