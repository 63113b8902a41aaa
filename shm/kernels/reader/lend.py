"""Walks a log's index for a reader: finds the next batches of some partitions to lend it.

Runs in the reader's process, on memory mapped read-only. Its own state is two int64 arrays:

    wanted   [W_FIELDS, partitions], sorted by W_NUMBER: the partitions read, and their progress
    cursor   [CURSOR_WORDS]: the next index entry to examine, and counts kept for the caller

    place_rows     W_SEEKING → W_HERE (the ring has what comes next) or W_AWAY (it does not)
    lend_batches   from the cursor on, batches of the partitions that are W_HERE → facts

With isolation level read_committed (KIP-98) a reader reads below the last stable offset. The ring
does not say which of these records were aborted, so a partition is W_AWAY up to its last aborted
records.

Offsets are contiguous, so a batch above W_NEXT means that the reader missed records: the partition
is then W_AWAY, and its records are fetched instead. This memory may change at any time: each
position is bounds-checked before use, and the caller checks `oldest_position` again after using the
lent batches.
"""

import numpy as np

from shm.kernels.base import words
from shm.kernels.base.bytes import get32, get64
from shm.kernels.base.jit import kernel
from shm.kernels.base.memory import (
    entry_attributes,
    entry_base_offset,
    entry_bytes,
    entry_partition,
    entry_position,
    entry_record_count,
    get_partition,
    get_word,
    ring_at,
)
from shm.kernels.reader.glance import acquire_partition, acquire_word, word_after_reading
from shm.kernels.record.records import (
    B_AT,
    B_ATTRIBUTES,
    B_BASE_OFFSET,
    B_BASE_TIMESTAMP,
    B_COUNT,
    B_END,
    B_FIELDS,
    B_INTACT,
    B_LAST_OFFSET,
    B_LEADER_EPOCH,
    B_MAX_TIMESTAMP,
    B_PRODUCER_ID,
    B_RECORDS_AT,
    B_RECORDS_END,
)

# Facts of a batch that lies in a ring: those of shm.kernels.record.records, and these.
F_POSITION = B_FIELDS  # Of its frame.
F_ROW = B_FIELDS + 1  # The column of `wanted` it is lent for.
F_START = B_FIELDS + 2  # Records below this offset were not asked for.
F_FIELDS = B_FIELDS + 3

W_NUMBER = 0
W_SLOT = 1  # Its row in the partition table as last seen, -1: none.
W_STATE = 2
W_NEXT = 3  # The offset the reader wants next.
W_AFTER = 4  # … and once it has taken what it was just lent.
W_LIMIT = 5  # What bounded it when that was last looked at, -1 without a row.
W_MOVED = 6  # Not of its column: a list of the columns that the last call has moved.
W_FIELDS = 7

W_HERE = 0
W_AWAY = 1
W_SEEKING = 2

CURSOR_ENTRY = 0
CURSOR_GENERATION = 1  # The log's, when the entry was set.
CURSOR_MOVED = 2  # How many columns the last call has moved.
CURSOR_AWAY = 3  # Not 0: some are W_AWAY.
CURSOR_BOUND = 4  # The column that bounds what is read: the HWM's, or the last stable offset's.
CURSOR_WORDS = 5
# Kernels check no bounds: a field more is the progress of another partition, whose records would be
# passed over.
assert W_MOVED < W_FIELDS
assert CURSOR_BOUND < CURSOR_WORDS

READ_UNCOMMITTED, READ_COMMITTED = words.P_HIGH_WATERMARK, words.P_LAST_STABLE

# How many entries behind an open transaction a reader examines, at each call.
LOOKED_AHEAD_MAX = 4096

OVERTAKEN = -1

# What an entry is for a reader.
PASS = 0  # Of another partition, or had already.
WAIT = 1  # Not visible yet.
SKIP = 2  # A marker of a transaction: no records, but offsets.
TAKE = 3


@kernel
def oldest_position(memory):
    """The position from which the ring still has every frame, even while one is being written."""
    end = max(word_after_reading(memory, words.WORD_CLAIMED), acquire_word(memory, words.WORD_TAIL))
    return max(
        acquire_word(memory, words.WORD_RING_START), end - get_word(memory, words.WORD_RING_BYTES)
    )


@kernel
def has_from(memory, position):
    """Whether the ring still has every frame from there on."""
    return oldest_position(memory) <= position


@kernel
def oldest_entry(memory):
    """The entry from which the index still has every entry, even while one is being written."""
    tail = word_after_reading(memory, words.WORD_INDEX_TAIL)
    return max(0, tail + 1 - get_word(memory, words.WORD_INDEX_CAPACITY))


@kernel
def first_whole_entry(memory, first, tail):
    """The first entry of [first, tail) that the index has and whose frame the ring has."""
    capacity, oldest = get_word(memory, words.WORD_INDEX_CAPACITY), oldest_position(memory)
    low, high = max(first, oldest_entry(memory)), tail
    while low < high:
        middle = (low + high) // 2
        if entry_position(memory, middle % capacity) < oldest:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def has_row(memory, slot, number):
    """Whether a row of the partition table is this partition's."""
    if not 0 <= slot < get_word(memory, words.WORD_PARTITION_COUNT):
        return False
    in_use = get_partition(memory, slot, words.P_FLAGS) & words.FLAG_IN_USE != 0
    return in_use and get_partition(memory, slot, words.P_NUMBER) == number


@kernel
def find_row(memory, number):
    """The row of a partition, -1: it has none."""
    for slot in range(acquire_word(memory, words.WORD_PARTITION_COUNT)):
        if has_row(memory, slot, number):
            return np.int64(slot)
    return np.int64(-1)


@kernel
def look_at_limits(memory, wanted, bound):
    """Update W_LIMIT to what is visible now. A restarted shard may have moved the rows."""
    for row in range(wanted.shape[1]):
        number = wanted[W_NUMBER, row]
        if not has_row(memory, wanted[W_SLOT, row], number):
            wanted[W_SLOT, row] = find_row(memory, number)
        slot = wanted[W_SLOT, row]
        wanted[W_LIMIT, row] = -1 if slot < 0 else acquire_partition(memory, slot, bound)


@kernel
def _is_not_to_read(memory, wanted, cursor, row):
    """Whether records may come next that compaction has removed, that another log has or leads, or
    of aborted transactions.

    To be called after W_LIMIT was updated: an abort is in P_ABORTED_END before the limit passes it.
    """
    slot = wanted[W_SLOT, row]
    if slot < 0:
        return False
    if get_partition(memory, slot, words.P_FLAGS) & words.FLAG_TAIL:
        return True
    end = get_partition(memory, slot, words.P_COMPACTED_END)
    end = max(end, get_partition(memory, slot, words.P_LED_FROM))
    if cursor[CURSOR_BOUND] == READ_COMMITTED:
        end = max(end, get_partition(memory, slot, words.P_ABORTED_END))
    return wanted[W_NEXT, row] < end


@kernel
def wanted_row(wanted, number):
    """The column of `wanted` with this number, -1: none."""
    low, high = 0, wanted.shape[1]
    while low < high:
        middle = (low + high) // 2
        if wanted[W_NUMBER, middle] < number:
            low = middle + 1
        else:
            high = middle
    found = low < wanted.shape[1] and wanted[W_NUMBER, low] == number
    return np.int64(low) if found else np.int64(-1)


@kernel
def _place_at(memory, wanted, row, i):
    """Examine an entry of a partition that seeks its place; whether the reader continues there."""
    base, offset = entry_base_offset(memory, i), wanted[W_NEXT, row]
    if base > offset:
        wanted[W_STATE, row] = W_AWAY
    elif base + entry_record_count(memory, i) > offset:
        wanted[W_STATE, row] = W_HERE
        return True
    return False


@kernel
def _place_at_tail(memory, wanted, row):
    """Place a partition whose next record has no index entry.

    It is here if that record is yet to come, but not if it was overwritten before it was visible.
    Offsets below the log start are nowhere.
    """
    slot, offset = wanted[W_SLOT, row], wanted[W_NEXT, row]
    if wanted[W_STATE, row] == W_SEEKING:
        is_end = slot >= 0 and get_partition(memory, slot, words.P_LOG_END) == offset
        wanted[W_STATE, row] = W_HERE if is_end else W_AWAY
    if slot >= 0 and offset < get_partition(memory, slot, words.P_LOG_START):
        wanted[W_STATE, row] = W_AWAY


@kernel
def place_rows(memory, wanted, cursor):
    """Find where W_SEEKING partitions continue; moves the cursor back as far as needed."""
    cursor[CURSOR_GENERATION] = acquire_word(memory, words.WORD_GENERATION)
    cursor[CURSOR_AWAY] = 0
    look_at_limits(memory, wanted, cursor[CURSOR_BOUND])
    capacity, tail = (
        get_word(memory, words.WORD_INDEX_CAPACITY),
        acquire_word(memory, words.WORD_INDEX_TAIL),
    )
    entry = first_whole_entry(memory, 0, tail)
    is_overtaken = cursor[CURSOR_ENTRY] < entry
    cursor[CURSOR_ENTRY] = max(entry, min(cursor[CURSOR_ENTRY], tail))
    seeking = 0
    for row in range(wanted.shape[1]):
        if is_overtaken and wanted[W_STATE, row] == W_HERE:
            wanted[W_STATE, row] = W_SEEKING
        seeking += wanted[W_STATE, row] == W_SEEKING
    while entry < tail and seeking > 0:
        i = entry % capacity
        row = wanted_row(wanted, entry_partition(memory, i))
        if row >= 0 and wanted[W_STATE, row] == W_SEEKING:
            if _place_at(memory, wanted, row, i):
                cursor[CURSOR_ENTRY] = min(cursor[CURSOR_ENTRY], entry)
            seeking -= wanted[W_STATE, row] != W_SEEKING
        entry += 1
    for row in range(wanted.shape[1]):
        _place_at_tail(memory, wanted, row)
        if _is_not_to_read(memory, wanted, cursor, row):
            wanted[W_STATE, row] = W_AWAY
        cursor[CURSOR_AWAY] |= wanted[W_STATE, row]


@kernel
def _fill_fact(memory, i, facts, row):
    """The facts of the batch of index slot i, from its entry and its header; False: impossible."""
    ring_bytes = get_word(memory, words.WORD_RING_BYTES)
    position, size = entry_position(memory, i), entry_bytes(memory, i)
    at = position % ring_bytes + words.FRAME_HEADER_BYTES
    if position < 0 or size < words.BATCH_HEADER_BYTES or at + size > ring_bytes:
        return False
    base_offset, start = entry_base_offset(memory, i), ring_at(memory) + at
    facts[B_AT, row] = at
    facts[B_END, row] = at + size
    facts[B_BASE_OFFSET, row] = base_offset
    facts[B_LAST_OFFSET, row] = base_offset + entry_record_count(memory, i) - 1
    facts[B_LEADER_EPOCH, row] = get32(memory, start + words.BATCH_LEADER_EPOCH_AT)
    facts[B_ATTRIBUTES, row] = entry_attributes(memory, i)
    facts[B_BASE_TIMESTAMP, row] = get64(memory, start + words.BATCH_BASE_TIMESTAMP_AT)
    facts[B_MAX_TIMESTAMP, row] = get64(memory, start + words.BATCH_MAX_TIMESTAMP_AT)
    facts[B_PRODUCER_ID, row] = get64(memory, start + words.BATCH_PRODUCER_ID_AT)
    facts[B_COUNT, row] = get32(memory, start + words.BATCH_RECORD_COUNT_AT)
    facts[B_RECORDS_AT, row] = at + words.BATCH_HEADER_BYTES
    facts[B_RECORDS_END, row] = at + size
    facts[B_INTACT, row] = 1  # The shard checked the CRC when it took the batch.
    facts[F_POSITION, row] = position
    return True


@kernel
def _verdict(memory, wanted, cursor, row, i):
    """Classify the batch of index slot i for the reader of its partition.

    A batch above the next offset means that records are missing.
    """
    if row < 0 or wanted[W_STATE, row] != W_HERE:
        return PASS
    base, offset = entry_base_offset(memory, i), wanted[W_AFTER, row]
    end = base + entry_record_count(memory, i)
    if end <= offset:
        return PASS
    if end > wanted[W_LIMIT, row]:
        return WAIT
    if base > offset:
        wanted[W_STATE, row] = W_AWAY
        cursor[CURSOR_AWAY] = 1
        return PASS
    return SKIP if entry_attributes(memory, i) & words.ATTRIBUTE_CONTROL != 0 else TAKE


@kernel
def _move(wanted, cursor, row, offset):
    """Record where a partition continues once the lent batches are taken."""
    if wanted[W_AFTER, row] == wanted[W_NEXT, row]:
        wanted[W_MOVED, cursor[CURSOR_MOVED]] = row
        cursor[CURSOR_MOVED] += 1
    wanted[W_AFTER, row] = offset


@kernel
def _begin(memory, wanted, cursor):
    """Update the limits; False: the cursor's entry, its frame or its life is gone."""
    look_at_limits(memory, wanted, cursor[CURSOR_BOUND])
    cursor[CURSOR_MOVED] = 0
    for row in range(wanted.shape[1]):
        wanted[W_AFTER, row] = wanted[W_NEXT, row]
        if _is_not_to_read(memory, wanted, cursor, row):
            wanted[W_STATE, row] = cursor[CURSOR_AWAY] = W_AWAY
    entry, tail = cursor[CURSOR_ENTRY], acquire_word(memory, words.WORD_INDEX_TAIL)
    if cursor[CURSOR_GENERATION] != acquire_word(memory, words.WORD_GENERATION) or entry > tail:
        return False
    if entry == tail:
        return True
    i = entry % get_word(memory, words.WORD_INDEX_CAPACITY)
    return entry >= oldest_entry(memory) and entry_position(memory, i) >= oldest_position(memory)


@kernel
def _go_on_at(memory, wanted, cursor, entry, waiting):
    """Continue at `entry`, or from `waiting` on if a batch there is not visible yet.

    Other partitions' batches behind it go ahead. An open transaction may last long: then it is
    W_AWAY.
    """
    cursor[CURSOR_ENTRY] = entry if waiting < 0 else waiting
    if waiting < 0 or entry - waiting <= LOOKED_AHEAD_MAX:
        return
    i = waiting % get_word(memory, words.WORD_INDEX_CAPACITY)
    row = wanted_row(wanted, entry_partition(memory, i))
    if row < 0 or cursor[CURSOR_BOUND] != READ_COMMITTED:
        return
    if wanted[W_LIMIT, row] < get_partition(memory, wanted[W_SLOT, row], words.P_HIGH_WATERMARK):
        wanted[W_STATE, row] = cursor[CURSOR_AWAY] = W_AWAY


@kernel
def lend_batches(memory, wanted, cursor, facts, bytes_max):
    """Fill `facts` [F_FIELDS, rows] with the next batches of W_HERE partitions.

    Visible batches only, about `bytes_max` bytes of them, at least one. Moves the cursor and
    W_AFTER, and lists the moved columns in W_MOVED. Returns how many, or OVERTAKEN: then nothing is
    lent, and W_HERE partitions must seek.

    The limits are read first: everything below them is in the index by then.
    """
    if not _begin(memory, wanted, cursor):
        return OVERTAKEN
    first, tail = cursor[CURSOR_ENTRY], acquire_word(memory, words.WORD_INDEX_TAIL)
    capacity = get_word(memory, words.WORD_INDEX_CAPACITY)
    entry, waiting, count, left = first, np.int64(-1), 0, bytes_max
    while entry < tail and count < facts.shape[1] and left > 0:
        i = entry % capacity
        row = wanted_row(wanted, entry_partition(memory, i))
        verdict = _verdict(memory, wanted, cursor, row, i)
        if verdict == WAIT and waiting < 0:
            waiting = entry
        elif verdict == TAKE:
            if not _fill_fact(memory, i, facts, count):
                return OVERTAKEN
            facts[F_ROW, count], facts[F_START, count] = row, wanted[W_AFTER, row]
            left -= entry_bytes(memory, i)
            count += 1
        if verdict >= SKIP:
            _move(wanted, cursor, row, entry_base_offset(memory, i) + entry_record_count(memory, i))
        entry += 1
    if first < tail and first < oldest_entry(memory):
        return OVERTAKEN
    _go_on_at(memory, wanted, cursor, entry, waiting)
    return count
