"""Idempotent producers: the last batches of each, and the check of the next.

One table for a log, int64 [rows, 32], made once in its largest size (shm.producer_table):

    0                   header (the H_ words)
    1 … capacity        producers; a row never moves, those that are free form a list
    capacity + 1 …      buckets of the hash: for each the first row of its chain, 0: none

A row:

    0 partition's number + 1 (0: free)   1 producer id   2 epoch   3 batches known (0-5)
    4 newest batch's place (0-4)         5 time of the last append, on the time line
    6 + 4 i: first sequence, last sequence, base offset, timestamp    of batch i of the last five
    26 next row of the bucket, or of the free list
    27 the row that appended last before this one did, 28 the one that did after it; 0: none
    29 1 + the epoch of the coordinator that wrote the last marker, 0: none was written
    30 1: a transaction of the producer is open in the partition

Partitions are identified by their numbers, which are never reused: no search finds the rows of a
deleted partition, so they may be dropped later. When no row is free, the producer whose last append
is oldest is dropped. Clients choose producer ids, so the hash is SipHash-1-3 (Aumasson, Bernstein
2012) under a random key: no client can choose ids that fall into one bucket.

The rules are Kafka's ProducerAppendInfo (KIP-98, KIP-360): an exact duplicate of one of the last
five batches gets the original answer; anything else must follow the last sequence; a new epoch
starts at 0; an unknown producer may start anywhere. Sequences wrap from 2^31 - 1 to 0. A marker's
epoch becomes the producer's; a new epoch has no batches yet.
"""

import numpy as np

from shm.kernels.base import words
from shm.kernels.base.bytes import get16, get64
from shm.kernels.base.jit import kernel
from shm.kernels.base.siphash import sip_end, sip_round, sip_start
from shm.kernels.record.batches import sequences_of

PRODUCER_COLUMNS = 32
PRODUCER_BATCHES = 5
R_PARTITION = 0
R_PRODUCER_ID = 1
R_EPOCH = 2
R_BATCH_COUNT = 3
R_NEWEST = 4
R_LAST_MS = 5
R_BATCHES = 6
R_STATE_END = R_BATCHES + 4 * PRODUCER_BATCHES  # The rest is private to this table.
R_NEXT = 26
R_OLDER = 27
R_NEWER = 28
R_COORDINATOR_EPOCH = 29
R_OPEN = 30
# A sixth batch, or a word more, would lie in the links, or in the next row: that producer's resent
# batches would be appended again.
assert R_STATE_END <= R_NEXT
assert R_OPEN < PRODUCER_COLUMNS

H_COUNT = 0  # Rows in use.
H_CAPACITY = 1
H_BUCKET_MASK = 2
H_KEY = 3  # Two words.
H_FREE = 5  # The first row of the free list; 0: none.
H_TOP = 6  # No row above this was ever used.
H_OLDEST = 7  # The row that appended longest ago; 0: none.
H_NEWEST = 8  # The one that appended last.
assert H_NEWEST < PRODUCER_COLUMNS

ACCEPT = 0
DUPLICATE = -1
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
INVALID_PRODUCER_EPOCH = 47
SEQUENCE_MAX = 0x7FFFFFFF
# Sequences wrap by this as a mask. If it were none, the batch that wraps would be refused for good.
assert SEQUENCE_MAX & (SEQUENCE_MAX + 1) == 0


# --- The hash -------------------------------------------------------------------------------------


@kernel
def producer_hash(producers, number, producer_id):
    """SipHash-1-3 of (partition's number, producer id), two words, under the table's key."""
    k0, k1 = np.uint64(producers[0, H_KEY]), np.uint64(producers[0, H_KEY + 1])
    v0, v1, v2, v3 = sip_start(k0, k1)
    for word in (np.uint64(number), np.uint64(producer_id), np.uint64(16 << 56)):
        v3 ^= word
        v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
        v0 ^= word
    v0, v1, v2, v3 = sip_end(v0, v1, v2 ^ np.uint64(0xFF), v3)
    return v0 ^ v1 ^ v2 ^ v3


@kernel
def _bucket(producers, number, producer_id):
    """The place of a producer's bucket: (row, column)."""
    mask = np.uint64(producers[0, H_BUCKET_MASK])
    bucket = np.int64(producer_hash(producers, number, producer_id) & mask)
    return 1 + producers[0, H_CAPACITY] + bucket // PRODUCER_COLUMNS, bucket % PRODUCER_COLUMNS


@kernel
def producer_row(producers, number, producer_id):
    """The row of a producer on a partition; 0: it is not known."""
    at, column = _bucket(producers, number, producer_id)
    row = producers[at, column]
    while row != 0 and (
        producers[row, R_PRODUCER_ID] != producer_id or producers[row, R_PARTITION] != number + 1
    ):
        row = producers[row, R_NEXT]
    return row


# --- Rows that come and go ------------------------------------------------------------------------


@kernel
def _leave_ages(producers, row):
    """Take a row out of the list by age."""
    older, newer = producers[row, R_OLDER], producers[row, R_NEWER]
    if older != 0:
        producers[older, R_NEWER] = newer
    else:
        producers[0, H_OLDEST] = newer
    if newer != 0:
        producers[newer, R_OLDER] = older
    else:
        producers[0, H_NEWEST] = older


@kernel
def _enter_ages(producers, row):
    """Make a row the newest."""
    newest = producers[0, H_NEWEST]
    producers[row, R_OLDER], producers[row, R_NEWER] = newest, 0
    if newest != 0:
        producers[newest, R_NEWER] = row
    else:
        producers[0, H_OLDEST] = row
    producers[0, H_NEWEST] = row


@kernel
def forget_producer(producers, row):
    """Free a row in use."""
    at, column = _bucket(producers, producers[row, R_PARTITION] - 1, producers[row, R_PRODUCER_ID])
    following = producers[row, R_NEXT]
    if producers[at, column] == row:
        producers[at, column] = following
    else:
        before = producers[at, column]
        while producers[before, R_NEXT] != row:
            before = producers[before, R_NEXT]
        producers[before, R_NEXT] = following
    _leave_ages(producers, row)
    producers[row, R_PARTITION] = 0
    producers[row, R_NEXT] = producers[0, H_FREE]
    producers[0, H_FREE] = row
    producers[0, H_COUNT] -= 1


@kernel
def _take_row(producers, number, producer_id, epoch):
    """A row without batches for a new producer; evicts the oldest if there is no free one."""
    if producers[0, H_COUNT] == producers[0, H_CAPACITY]:
        forget_producer(producers, producers[0, H_OLDEST])
    row = producers[0, H_FREE]
    if row != 0:
        producers[0, H_FREE] = producers[row, R_NEXT]
    else:
        row = producers[0, H_TOP] + 1
        producers[0, H_TOP] = row
    at, column = _bucket(producers, number, producer_id)
    producers[row, R_PARTITION], producers[row, R_PRODUCER_ID] = number + 1, producer_id
    producers[row, R_EPOCH], producers[row, R_BATCH_COUNT] = epoch, 0
    producers[row, R_COORDINATOR_EPOCH] = producers[row, R_OPEN] = 0
    producers[row, R_NEWEST] = PRODUCER_BATCHES - 1
    producers[row, R_NEXT] = producers[at, column]
    producers[at, column] = row
    _enter_ages(producers, row)
    producers[0, H_COUNT] += 1
    return row


@kernel
def expire_producers(producers, oldest_ms, count_max):
    """Forget producers that have been silent since `oldest_ms`, the oldest first; returns how
    many."""
    count = np.int64(0)
    while count < count_max:
        row = producers[0, H_OLDEST]
        if row == 0 or producers[row, R_LAST_MS] >= oldest_ms:
            break
        forget_producer(producers, row)
        count += 1
    return count


@kernel
def _place_in(numbers, number):
    """The place of a number in a sorted array; -1: it is absent."""
    low, high = 0, len(numbers)
    while low < high:
        middle = (low + high) // 2
        if numbers[middle] < number:
            low = middle + 1
        else:
            high = middle
    return low if low < len(numbers) and numbers[low] == number else -1


@kernel
def forget_partitions(producers, first, end, gone):
    """Forget rows [first, end) of deleted partitions; `gone` are their numbers, sorted."""
    for row in range(first, end):
        if producers[row, R_PARTITION] != 0 and (
            _place_in(gone, producers[row, R_PARTITION] - 1) >= 0
        ):
            forget_producer(producers, row)


# --- The rules ------------------------------------------------------------------------------------


@kernel
def check_sequence(producers, row, epoch, sequences):
    """ACCEPT, DUPLICATE with the place of the batch it repeats, or an error code: (code, place).

    `sequences` is (first, last); `row` is 0 for an unknown producer.
    """
    first, last = sequences
    known = producers[row, R_EPOCH]
    follows = True
    if row != 0 and epoch < known:
        return INVALID_PRODUCER_EPOCH, np.int64(0)
    if row != 0 and (epoch > known or producers[row, R_BATCH_COUNT] == 0):
        follows = first == 0
    elif row != 0:
        for i in range(producers[row, R_BATCH_COUNT]):
            at = R_BATCHES + 4 * i
            if producers[row, at] == first and producers[row, at + 1] == last:
                return DUPLICATE, np.int64(at)
        before = producers[row, R_BATCHES + 4 * producers[row, R_NEWEST] + 1]
        follows = first == (before + 1) & SEQUENCE_MAX
    return (ACCEPT if follows else OUT_OF_ORDER_SEQUENCE_NUMBER), np.int64(0)


@kernel
def _begin_epoch(producers, row, epoch):
    """Make a row the newest; forget its batches if the epoch is new."""
    if producers[0, H_NEWEST] != row:
        _leave_ages(producers, row)
        _enter_ages(producers, row)
    if producers[row, R_EPOCH] != epoch:
        producers[row, R_EPOCH] = epoch
        producers[row, R_BATCH_COUNT] = 0
        producers[row, R_NEWEST] = PRODUCER_BATCHES - 1


@kernel
def fence_producer(producers, number, producer_id, epoch, coordinator_epoch, now_ms):
    """Record a marker: batches of an earlier epoch are refused from now on."""
    row = producer_row(producers, number, producer_id)
    if row == 0:
        row = _take_row(producers, number, producer_id, epoch)
    _begin_epoch(producers, row, epoch)
    producers[row, R_LAST_MS] = now_ms
    producers[row, R_COORDINATOR_EPOCH] = coordinator_epoch + 1
    producers[row, R_OPEN] = 0


@kernel
def remember_batch(producers, row, number, data, at, appended):
    """Record the batch at data[at], appended as `appended`: (base offset, largest timestamp, now).

    `row` is the result of producer_row.
    """
    epoch = get16(data, at + words.BATCH_PRODUCER_EPOCH_AT)
    if row == 0:
        row = _take_row(producers, number, get64(data, at + words.BATCH_PRODUCER_ID_AT), epoch)
    _begin_epoch(producers, row, epoch)
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


# --- Rows in checkpoints --------------------------------------------------------------------------


@kernel
def _swap_batches(rows, row, i, j):
    for word in range(4):
        at, other = R_BATCHES + 4 * i + word, R_BATCHES + 4 * j + word
        kept = rows[row, at]
        rows[row, at] = rows[row, other]
        rows[row, other] = kept


@kernel
def _clip_row(rows, row, end):
    """Keep only batches below offset `end` in a row, in offset order; whether the row still holds
    anything: a marker's epoch stays even if the log lost the marker."""
    before = rows[row, R_BATCH_COUNT]
    count = _clip_batches(rows, row, end)
    return count > 0 or before == 0 or rows[row, R_COORDINATOR_EPOCH] != 0


@kernel
def _clip_batches(rows, row, end):
    """Forget batches at or above offset `end`; how many remain."""
    before, count = rows[row, R_BATCH_COUNT], np.int64(0)
    for i in range(before):
        if rows[row, R_BATCHES + 4 * i + 2] < end:
            _swap_batches(rows, row, i, count)
            count += 1
    if count == before:  # Each was swapped with itself.
        return count
    for i in range(1, count):
        at = i
        while at > 0 and rows[row, R_BATCHES + 4 * at + 2] < rows[row, R_BATCHES + 4 * at - 2]:
            _swap_batches(rows, row, at, at - 1)
            at -= 1
    rows[row, R_BATCH_COUNT] = count
    rows[row, R_NEWEST] = (count - 1) % PRODUCER_BATCHES  # As in a row that never had one.
    return count


@kernel
def clip_producers(producers, numbers, ends):
    """Forget batches at or above their partition's end, and producers of which nothing remains.

    `numbers` are those of all partitions, sorted; `ends` the offset for each.
    """
    for row in range(1, producers[0, H_TOP] + 1):
        if producers[row, R_PARTITION] != 0:
            i = _place_in(numbers, producers[row, R_PARTITION] - 1)
            if i < 0 or not _clip_row(producers, row, ends[i]):
                forget_producer(producers, row)


@kernel
def file_producers(rows, numbers, ends, out):
    """Copy rows of a table for a checkpoint, clipped as by clip_producers; returns how many.

    In `out` they have the plain partition number, and no fields private to the table.
    """
    count = np.int64(0)
    for row in range(rows.shape[0]):
        number = rows[row, R_PARTITION] - 1
        i = _place_in(numbers, number) if number >= 0 else -1
        if i < 0 or not _clip_row(rows, row, ends[i]):
            continue
        for column in range(PRODUCER_COLUMNS):  # A row assigned compiles for seconds.
            is_kept = column < R_STATE_END or column == R_COORDINATOR_EPOCH
            out[count, column] = rows[row, column] if is_kept else 0
        out[count, R_PARTITION] = number
        count += 1
    return count


@kernel
def restore_producers(producers, rows):
    """Enter the rows of a checkpoint into a table; the one that appended last must come last."""
    for i in range(rows.shape[0]):
        number, producer_id = rows[i, R_PARTITION], rows[i, R_PRODUCER_ID]
        row = producer_row(producers, number, producer_id)
        if row == 0:
            row = _take_row(producers, number, producer_id, rows[i, R_EPOCH])
        else:
            _leave_ages(producers, row)
            _enter_ages(producers, row)
        for column in range(R_EPOCH, R_STATE_END):
            producers[row, column] = rows[i, column]
        producers[row, R_COORDINATOR_EPOCH] = rows[i, R_COORDINATOR_EPOCH]
