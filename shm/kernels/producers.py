"""Idempotent producers: what was last appended by whom, and what may come next.

One table for a log, int64 [capacity, 32], open addressing, capacity a power of two. Row 0 is the
header: its first word counts the rows in use. A row:

    0 partition's slot + 1 (0: free)   1 producer id   2 epoch   3 batches known (0-5)
    4 newest batch's place (0-4)       5 timestamp of the last append, wall ms
    6 + 4 i: first sequence, last sequence, base offset, timestamp    of batch i of the last five

The rules are Kafka's ProducerAppendInfo (KIP-98, KIP-360): an exact duplicate of one of the last
five batches is answered as it was; anything else must follow the last sequence; a new epoch starts
at 0; a producer nobody knows may start anywhere. Sequences wrap from 2^31 - 1 to 0.
"""

import numpy as np

from shm.kernels.batches import sequences_of
from shm.kernels.bytes import get16, get64
from shm.kernels.jit import kernel
from shm.kernels.words import BATCH_PRODUCER_EPOCH_AT, BATCH_PRODUCER_ID_AT

PRODUCER_COLUMNS = 32
PRODUCER_BATCHES = 5
R_SLOT = 0
R_PRODUCER_ID = 1
R_EPOCH = 2
R_BATCH_COUNT = 3
R_NEWEST = 4
R_LAST_MS = 5
R_BATCHES = 6

ACCEPT = 0
DUPLICATE = -1
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
INVALID_PRODUCER_EPOCH = 47
SEQUENCE_MAX = 0x7FFFFFFF


@kernel
def producer_row(producers, slot, producer_id):
    """The row of a producer on a partition, or the free row where it would stand."""
    mask = producers.shape[0] - 1
    mixed = (np.uint64(producer_id) * np.uint64(0x9E3779B97F4A7C15)) ^ (
        np.uint64(slot) * np.uint64(0xC2B2AE3D27D4EB4F)
    )
    row = np.int64(mixed >> np.uint64(20)) & mask
    while True:
        if row != 0:
            if producers[row, R_SLOT] == 0:
                return row
            if producers[row, R_SLOT] == slot + 1 and producers[row, R_PRODUCER_ID] == producer_id:
                return row
        row = (row + 1) & mask


@kernel
def producers_are_full(producers):
    """Whether the table must grow before another row may be taken."""
    return 2 * (producers[0, 0] + 1) > producers.shape[0]


@kernel
def check_sequence(producers, row, epoch, sequences):
    """ACCEPT, DUPLICATE with the place of the batch it repeats, or an error code: (code, place).

    `sequences` is (first, last).
    """
    first, last = sequences
    known = producers[row, R_EPOCH]
    follows = True
    if producers[row, R_SLOT] != 0 and epoch < known:
        return INVALID_PRODUCER_EPOCH, np.int64(0)
    if producers[row, R_SLOT] != 0 and epoch > known:
        follows = first == 0
    elif producers[row, R_SLOT] != 0:
        for i in range(producers[row, R_BATCH_COUNT]):
            at = R_BATCHES + 4 * i
            if producers[row, at] == first and producers[row, at + 1] == last:
                return DUPLICATE, np.int64(at)
        before = producers[row, R_BATCHES + 4 * producers[row, R_NEWEST] + 1]
        follows = first == (before + 1) & SEQUENCE_MAX
    return (ACCEPT if follows else OUT_OF_ORDER_SEQUENCE_NUMBER), np.int64(0)


@kernel
def remember_batch(producers, row, slot, data, at, appended):
    """Note the batch at data[at], appended as `appended`: (base offset, largest timestamp, now)."""
    epoch = get16(data, at + BATCH_PRODUCER_EPOCH_AT)
    if producers[row, R_SLOT] == 0:
        producers[0, 0] += 1
        producers[row, R_SLOT] = slot + 1
        producers[row, R_PRODUCER_ID] = get64(data, at + BATCH_PRODUCER_ID_AT)
        producers[row, R_EPOCH] = epoch - 1
    if producers[row, R_EPOCH] != epoch:
        producers[row, R_EPOCH] = epoch
        producers[row, R_BATCH_COUNT] = 0
        producers[row, R_NEWEST] = PRODUCER_BATCHES - 1
    newest = (producers[row, R_NEWEST] + 1) % PRODUCER_BATCHES
    producers[row, R_NEWEST] = newest
    producers[row, R_BATCH_COUNT] = min(PRODUCER_BATCHES, producers[row, R_BATCH_COUNT] + 1)
    first, last = sequences_of(data, at)
    at = R_BATCHES + 4 * newest
    producers[row, at] = first
    producers[row, at + 1] = last
    producers[row, at + 2] = appended[0]
    producers[row, at + 3] = appended[1]
    producers[row, R_LAST_MS] = appended[2]


@kernel
def rehash_producers(source, target, oldest_ms, slot_kept):
    """Copy the rows whose slot is kept and that are not expired into an empty, larger table."""
    for i in range(1, source.shape[0]):
        slot = source[i, R_SLOT] - 1
        if slot >= 0 and slot_kept[slot] and source[i, R_LAST_MS] >= oldest_ms:
            row = producer_row(target, slot, source[i, R_PRODUCER_ID])
            for column in range(PRODUCER_COLUMNS):  # A row assigned compiles for seconds.
                target[row, column] = source[i, column]
            target[0, 0] += 1
