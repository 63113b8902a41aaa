"""Appending batches to a log: check, place, copy once, publish.

A row of the plan (shm.kernels.log.plan) says which bytes of the receive buffer go to which
partition. A shard that serves several logs calls this for each: it skips the rows of other logs.
"""

import numpy as np

from shm.kernels.base import words
from shm.kernels.base.atomics import fence
from shm.kernels.base.bytes import copy_bytes, get16, get32, get64, put16, put32, put64
from shm.kernels.base.crc32c import crc32c
from shm.kernels.base.frames import batch_crc_is_good, frame_bytes, write_frame_header
from shm.kernels.base.jit import kernel
from shm.kernels.base.memory import (
    get_partition,
    get_word,
    release_word,
    ring_at,
    set_partition,
    set_word,
)
from shm.kernels.log.handles import handles_are_good
from shm.kernels.log.index import append_entry
from shm.kernels.log.plan import row_at
from shm.kernels.log.producers import (
    ACCEPT,
    DUPLICATE,
    R_OPEN,
    check_sequence,
    producer_row,
    remember_batch,
)
from shm.kernels.record.batches import (
    CORRUPT_MESSAGE,
    INVALID_TXN_STATE,
    check_content,
    check_shape,
    check_size,
    check_times,
    is_idempotent,
    sequences_of,
)
from shm.kernels.record.references import may_refer

NOT_LEADER_OR_FOLLOWER = 6
KAFKA_STORAGE_ERROR = 56


@kernel
def place_of(memory, position):
    """The index of a position in the memory, if the ring has it."""
    return ring_at(memory) + position % get_word(memory, words.WORD_RING_BYTES)


@kernel
def claim(memory, end):
    """Announce that the ring is about to be written up to position `end`.

    SYNC POINT with shm.reader: the claim is seen before any byte it covers changes. A reader reads
    bytes, then the claim: bytes at most a ring's length below it have not been touched.
    """
    release_word(memory, words.WORD_CLAIMED, end)
    fence()


@kernel
def pad_to(memory, end):
    """Fill the log from its tail up to `end` with one padding frame."""
    tail = get_word(memory, words.WORD_TAIL)
    claim(memory, end)
    stamps = (get_word(memory, words.WORD_SYNCED), get_word(memory, words.WORD_GENERATION))
    size = end - tail - words.FRAME_HEADER_BYTES
    write_frame_header(
        memory, place_of(memory, tail), tail, stamps, size, 0, words.FRAME_KIND_PADDING, 0
    )
    release_word(memory, words.WORD_TAIL, end)


@kernel
def make_room(memory, size):
    """Make the next `size` bytes after the tail free and whole; False: the log must drain first.

    Frames cross neither the ring's end nor a WAL segment's. Frames that the WAL file does not have
    yet are not overwritten, nor are index entries that are still needed.
    """
    entries = get_word(memory, words.WORD_INDEX_TAIL) + 1 - get_word(memory, words.WORD_INDEX_KEEP)
    if entries > get_word(memory, words.WORD_INDEX_CAPACITY):
        return False
    ring_bytes = get_word(memory, words.WORD_RING_BYTES)
    written = get_word(memory, words.WORD_WRITTEN)
    while True:
        tail = get_word(memory, words.WORD_TAIL)
        if tail == get_word(memory, words.WORD_SEGMENT_END):
            set_word(
                memory, words.WORD_SEGMENT_END, tail + get_word(memory, words.WORD_SEGMENT_BYTES)
            )
        limit = min(get_word(memory, words.WORD_SEGMENT_END), tail - tail % ring_bytes + ring_bytes)
        fits = tail + size <= limit
        end = tail + size if fits else limit
        if end - written > ring_bytes:
            return False
        if fits:
            return True
        pad_to(memory, limit)


@kernel
def _stamp_time_type(memory, start, batch_bytes, is_append_time, wall_ms):
    """Set a batch's timestamp type; compute a new CRC if that changes it."""
    attributes = get16(memory, start + words.BATCH_ATTRIBUTES_AT)
    if is_append_time:
        put16(
            memory, start + words.BATCH_ATTRIBUTES_AT, attributes | words.ATTRIBUTE_LOG_APPEND_TIME
        )
        put64(memory, start + words.BATCH_MAX_TIMESTAMP_AT, wall_ms)
    elif attributes & words.ATTRIBUTE_LOG_APPEND_TIME:
        put16(
            memory, start + words.BATCH_ATTRIBUTES_AT, attributes & ~words.ATTRIBUTE_LOG_APPEND_TIME
        )
    else:
        return
    crc = np.int64(crc32c(memory, start + words.BATCH_ATTRIBUTES_AT, start + batch_bytes))
    put32(memory, start + words.BATCH_CRC_AT, crc)


@kernel
def account(memory, slot, count, batch_bytes, timestamp, now_ms):
    """Move a partition's end and sums after a batch of `count` offsets was appended."""
    set_partition(
        memory, slot, words.P_LOG_END, get_partition(memory, slot, words.P_LOG_END) + count
    )
    if timestamp > get_partition(memory, slot, words.P_MAX_TIMESTAMP):
        set_partition(memory, slot, words.P_MAX_TIMESTAMP, timestamp)
    unsealed = get_partition(memory, slot, words.P_UNSEALED_BYTES)
    if unsealed == 0:
        set_partition(memory, slot, words.P_UNSEALED_SINCE_MS, now_ms)
    set_partition(memory, slot, words.P_UNSEALED_BYTES, unsealed + batch_bytes)


@kernel
def append_batch(memory, links, slot, data, at, batch_bytes, wall_ms, now_ms):
    """Copy one checked batch to the tail and publish its frame; returns its base offset.

    There must be room (make_room).
    """
    position = get_word(memory, words.WORD_TAIL)
    frame = place_of(memory, position)
    start = frame + words.FRAME_HEADER_BYTES
    claim(memory, position + frame_bytes(batch_bytes))
    copy_bytes(memory, start, data, at, batch_bytes)
    base_offset = get_partition(memory, slot, words.P_LOG_END)
    put64(memory, start + words.BATCH_BASE_OFFSET_AT, base_offset)
    put32(memory, start + words.BATCH_LEADER_EPOCH_AT, get_partition(memory, slot, words.P_EPOCH))
    flags = get_partition(memory, slot, words.P_FLAGS)
    _stamp_time_type(memory, start, batch_bytes, flags & words.FLAG_LOG_APPEND_TIME != 0, wall_ms)
    stamps = (get_word(memory, words.WORD_SYNCED), get_word(memory, words.WORD_GENERATION))
    number = get_partition(memory, slot, words.P_NUMBER)
    level = (flags >> words.DURABILITY_SHIFT) & 3
    write_frame_header(
        memory, frame, position, stamps, batch_bytes, number, words.FRAME_KIND_BATCH, level
    )
    count = get32(memory, start + words.BATCH_LAST_OFFSET_DELTA_AT) + 1
    timestamp = get64(memory, start + words.BATCH_MAX_TIMESTAMP_AT)
    shape = (count, batch_bytes, get16(memory, start + words.BATCH_ATTRIBUTES_AT))
    append_entry(memory, links, slot, position, base_offset, timestamp, shape)
    account(memory, slot, count, batch_bytes, timestamp, now_ms)
    set_word(memory, words.COUNTER_BATCHES_IN, get_word(memory, words.COUNTER_BATCHES_IN) + 1)
    set_word(memory, words.COUNTER_RECORDS_IN, get_word(memory, words.COUNTER_RECORDS_IN) + count)
    set_word(memory, words.COUNTER_BYTES_IN, get_word(memory, words.COUNTER_BYTES_IN) + batch_bytes)
    release_word(memory, words.WORD_TAIL, position + frame_bytes(batch_bytes))
    return base_offset


@kernel
def append_adoption(memory, number, data):
    """Append a frame of FRAME_KIND_ADOPTION with `data` (uint8), which no limit refuses; returns
    its position, or -1 if the log must be written first.

    It must fill whole lines, and be shorter than ring and segment.
    """
    size = frame_bytes(data.size)
    if not make_room(memory, size):
        return np.int64(-1)
    position = get_word(memory, words.WORD_TAIL)
    frame = place_of(memory, position)
    claim(memory, position + size)
    copy_bytes(memory, frame + words.FRAME_HEADER_BYTES, data, np.int64(0), np.int64(data.size))
    stamps = (get_word(memory, words.WORD_SYNCED), get_word(memory, words.WORD_GENERATION))
    kind, level = words.FRAME_KIND_ADOPTION, words.DURABILITY_DISK
    write_frame_header(memory, frame, position, stamps, data.size, number, kind, level)
    release_word(memory, words.WORD_TAIL, position + size)
    return position


@kernel
def append_marker(memory, links, slot, data, wall_ms, now_ms):
    """Append a control batch of our own, which no limit refuses; returns its offset, or -1 if the
    log must be written first."""
    if not make_room(memory, frame_bytes(data.size)):
        return np.int64(-1)
    return append_batch(
        memory, links, slot, data, np.int64(0), np.int64(data.size), wall_ms, now_ms
    )


@kernel
def _check(plan, row, data, memory, slot):
    """Check a row's batch, except its sequence: (error, bytes of the batch).

    Notes the log start for errors with which Kafka returns it: those that its log finds in a batch.
    """
    flags = get_partition(memory, slot, words.P_FLAGS)
    if flags & words.FLAG_TAIL:
        plan[words.HEAD_LED_ELSEWHERE] = 1
        return NOT_LEADER_OR_FOLLOWER, np.int64(0)
    if flags & words.FLAG_READ_ONLY:
        return KAFKA_STORAGE_ERROR, np.int64(0)
    at = plan[row + words.ROW_AT]
    end, version = at + plan[row + words.ROW_BYTES], plan[row + words.ROW_VERSION]
    error, size = check_shape(data, at, end, version, plan[row + words.ROW_TRANSACTIONAL])
    if error == 0:
        error = check_size(memory, slot, size)
    if error == 0 and not batch_crc_is_good(data, at, size):
        error = CORRUPT_MESSAGE
    if error != 0:
        return error, size
    plan[row + words.ROW_LOG_START] = get_partition(memory, slot, words.P_LOG_START)
    error = check_content(data, at, size)
    if error == 0:
        error = check_times(data, at, memory, slot, plan[words.HEAD_WALL_MS])
    return error, size


@kernel
def _find_producer(producers, number, data, at, plan, row):
    """Check an idempotent batch's sequence: (its producer's row or 0, whether to append).

    A duplicate gets the answer of the original, with its largest timestamp.
    """
    place = producer_row(producers, number, get64(data, at + words.BATCH_PRODUCER_ID_AT))
    epoch = get16(data, at + words.BATCH_PRODUCER_EPOCH_AT)
    verdict, known = check_sequence(producers, place, epoch, sequences_of(data, at))
    is_transactional = get16(data, at + words.BATCH_ATTRIBUTES_AT) & words.ATTRIBUTE_TRANSACTIONAL
    if verdict == ACCEPT and place != 0 and producers[place, R_OPEN] != 0 and not is_transactional:
        verdict = INVALID_TXN_STATE
    if verdict == DUPLICATE:
        plan[row + words.ROW_BASE_OFFSET] = producers[place, known + 2]
        plan[row + words.ROW_APPEND_TIME] = producers[place, known + 3]
    elif verdict != ACCEPT:
        plan[row + words.ROW_ERROR] = verdict
    return place, verdict == ACCEPT


@kernel
def _records_are_good(memory, slot, data, plan, row, size):
    """Whether a batch's records may be appended; False: Python must check them."""
    if plan[row + words.ROW_STATE] == words.REFERENCES_CHECKED:
        return True
    if get_partition(memory, slot, words.P_FLAGS) & words.FLAG_LOOKED_INTO:
        return False
    if not may_refer(data, plan[row + words.ROW_AT], size):
        return True
    if size > words.HANDLES_BYTES_MAX:
        return False
    plan[words.HEAD_BUDGET] -= words.HANDLES_COST * size
    return handles_are_good(plan, row, data, size)


@kernel
def _make_way(memory, slot, data, plan, row, size):
    """0 if a new batch of `size` bytes may be appended now, otherwise why not yet (STOP_…).

    A batch that the WAL has no space for is refused with an error in the row.
    """
    if not _records_are_good(memory, slot, data, plan, row, size):
        return words.STOP_REFERENCES
    if get_word(memory, words.WORD_TAIL) + frame_bytes(size) > get_word(
        memory, words.WORD_SPACE_END
    ):
        plan[row + words.ROW_ERROR], plan[row + words.ROW_LOG_START] = KAFKA_STORAGE_ERROR, -1
        return 0
    return 0 if make_room(memory, frame_bytes(size)) else words.STOP_LOG_FULL


@kernel
def _append_row(memory, links, producers, data, plan, row):
    """Append one row's batch; returns 0, or the reason why the log must be helped first."""
    slot, at = plan[row + words.ROW_CODE] & 0xFFFFFFFF, plan[row + words.ROW_AT]
    if get_partition(memory, slot, words.P_FLAGS) & words.FLAG_CLOSED:
        return words.STOP_CLOSED
    wall_ms, now_ms = plan[words.HEAD_WALL_MS], plan[words.HEAD_NOW_MS]
    error, size = _check(plan, row, data, memory, slot)
    plan[row + words.ROW_ERROR] = error
    if error != 0:
        return 0
    idempotent, place = is_idempotent(data, at), np.int64(0)
    number = get_partition(memory, slot, words.P_NUMBER)
    if idempotent:
        place, is_new = _find_producer(producers, number, data, at, plan, row)
        if not is_new:
            return 0
    stop = _make_way(memory, slot, data, plan, row, size)
    if stop != 0 or plan[row + words.ROW_ERROR] != 0:
        return stop
    base_offset = append_batch(memory, links, slot, data, at, size, wall_ms, now_ms)
    stamped = get_partition(memory, slot, words.P_FLAGS) & words.FLAG_LOG_APPEND_TIME
    plan[row + words.ROW_BASE_OFFSET] = base_offset
    plan[row + words.ROW_APPEND_TIME] = wall_ms if stamped else -1
    if idempotent:
        timestamp = wall_ms if stamped else get64(data, at + words.BATCH_MAX_TIMESTAMP_AT)
        remember_batch(producers, place, number, data, at, (base_offset, timestamp, now_ms))
    return 0


@kernel
def append_rows(memory, links, producers, data, plan):
    """Append the plan's rows that belong to this log and are not done; sets the plan's stop reason.

    Returns 0 when none is left, STOP_LOG_FULL if the WAL must be written first, or STOP_REFERENCES
    if the caller must check a row's records or handles (shm.kernels.log.handles): resolve that,
    then call again. STOP_STEP: HEAD_BUDGET is used up, so call again in a later turn. STOP_CLOSED:
    a row's partition moves, so call again once it is open, or led elsewhere.
    """
    log = get_word(memory, words.WORD_LOG)
    for i in range(plan[words.HEAD_ROW_COUNT]):
        row = row_at(plan, i)
        if plan[row + words.ROW_STATE] == words.DONE or plan[row + words.ROW_CODE] >> 32 != log:
            continue
        stop = words.STOP_STEP
        if plan[words.HEAD_BUDGET] > 0:
            plan[words.HEAD_BUDGET] -= words.ROW_COST_BYTES + max(0, plan[row + words.ROW_BYTES])
            stop = _append_row(memory, links, producers, data, plan, row)
        if stop != 0:
            plan[words.HEAD_STOP], plan[words.HEAD_STOPPED_ROW] = stop, i
            return stop
        plan[row + words.ROW_STATE] = words.DONE
        if plan[row + words.ROW_ERROR] == 0:
            slot = plan[row + words.ROW_CODE] & 0xFFFFFFFF
            level = (get_partition(memory, slot, words.P_FLAGS) >> words.DURABILITY_SHIFT) & 3
            plan[words.HEAD_LEVEL] = max(plan[words.HEAD_LEVEL], level)
    return 0
