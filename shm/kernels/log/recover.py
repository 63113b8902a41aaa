"""Recovers a log: scans WAL bytes for frames and replays them into the index and the tables."""

import numpy as np

from shm.kernels.base import words
from shm.kernels.base.bytes import get16, get32, get64, load32, load64, load_u32
from shm.kernels.base.frames import (
    batch_crc_is_good_by_sums,
    frame_bytes,
    frame_check,
    frame_is_good_by_sums,
)
from shm.kernels.base.jit import kernel
from shm.kernels.base.memory import get_partition, set_partition
from shm.kernels.log.append import account
from shm.kernels.log.index import append_entry
from shm.kernels.log.producers import (
    DUPLICATE,
    check_sequence,
    producer_row,
    remember_batch,
)
from shm.kernels.record.batches import is_idempotent, sequences_of

SCAN_COLUMNS = 9
S_AT = 0  # The frame's place in the scanned bytes.
S_BYTES = 1  # Of the batch.
S_KIND = 2
S_PARTITION = 3  # Its number.
S_SYNCED = 4
S_LEVEL = 5
S_EPOCH = 6  # The batch's leader epoch.
S_BASE_OFFSET = 7
S_GENERATION = 8
# Kernels check no bounds: a column more is the place of the next frame, which a start would skip.
assert S_GENERATION < SCAN_COLUMNS


@kernel
def next_frame(data, at):
    """The start of the frame after the good one at data[at]."""
    size = load32(data, at + words.FRAME_BYTES_AT)
    if load32(data, at + words.FRAME_KIND_AT) == words.FRAME_KIND_PADDING:
        return at + words.FRAME_HEADER_BYTES + size
    return at + frame_bytes(size)


@kernel
def scan_frames(data, at, end, first_position, generation, rows, sums):
    """Walk the good frames of data[at:end]; data[0] has position `first_position`.

    rows   int64 [n, 9], one for each frame (the S_ columns)
    sums   of data (shm.kernels.base.crc_sums), the same for all of a walk: bad frames may be many,
           and each as long as the rest

    Returns (frames, where it stopped, generation of the last good frame). It stops at the end, when
    `rows` is full, or at the first bad frame: a bad header, a bad batch CRC, or a generation below
    the previous one. Frames of unknown kinds are good; their S_EPOCH and S_BASE_OFFSET are not
    written.
    """
    count = np.int64(0)
    while at < end and count < rows.shape[0]:
        if not frame_is_good_by_sums(data, at, end, first_position + at, sums):
            break
        stamped = load_u32(data, at + words.FRAME_GENERATION_AT)
        size = load32(data, at + words.FRAME_BYTES_AT)
        kind = load32(data, at + words.FRAME_KIND_AT)
        batch = at + words.FRAME_HEADER_BYTES
        if stamped < generation:
            break
        if kind == words.FRAME_KIND_BATCH and not batch_crc_is_good_by_sums(
            data, batch, size, sums
        ):
            break
        generation = stamped
        rows[count, S_AT] = at
        rows[count, S_BYTES] = size
        rows[count, S_KIND] = kind
        rows[count, S_PARTITION] = load_u32(data, at + words.FRAME_PARTITION_AT)
        rows[count, S_SYNCED] = load64(data, at + words.FRAME_SYNCED_AT)
        rows[count, S_LEVEL] = load64(data, at + words.FRAME_LEVEL_AT)
        rows[count, S_GENERATION] = stamped
        if kind == words.FRAME_KIND_BATCH:
            rows[count, S_EPOCH] = get32(data, batch + words.BATCH_LEADER_EPOCH_AT)
            rows[count, S_BASE_OFFSET] = get64(data, batch + words.BATCH_BASE_OFFSET_AT)
        count += 1
        at = next_frame(data, at)
    return count, np.int64(at), generation


@kernel
def header_generation(data, position):
    """The generation in the frame header of this position at data[0]; -1: there is no good one.

    The frame need not be whole: data holds its header and a batch's header at least.
    """
    if data.size < words.FRAME_HEADER_BYTES + words.BATCH_HEADER_BYTES:
        return np.int64(-1)
    if (
        load32(data, words.FRAME_MAGIC_AT) != words.FRAME_MAGIC
        or load64(data, words.FRAME_POSITION_AT) != position
    ):
        return np.int64(-1)
    kind = load32(data, words.FRAME_KIND_AT)
    is_known = kind == words.FRAME_KIND_BATCH
    is_known |= kind == words.FRAME_KIND_PADDING
    if not is_known:
        return np.int64(-1)  # The check covers all of its content.
    if load_u32(data, words.FRAME_CHECK_AT) != frame_check(data, np.int64(0)):
        return np.int64(-1)
    return load_u32(data, words.FRAME_GENERATION_AT)


@kernel
def find_frame(data, at, end, first_position, generation, sums):
    """The next place after data[at] where a good frame of this or a later generation begins; -1.

    `sums` as for scan_frames.
    """
    at += words.FRAME_ALIGNMENT_BYTES
    while at < end:
        if (
            frame_is_good_by_sums(data, at, end, first_position + at, sums)
            and load_u32(data, at + words.FRAME_GENERATION_AT) >= generation
        ):
            return np.int64(at)
        at += words.FRAME_ALIGNMENT_BYTES
    return np.int64(-1)


@kernel
def _replay_producer(producers, number, data, batch, base_offset, now_ms):
    """Record a batch's producer."""
    if not is_idempotent(data, batch) or get16(data, batch + words.BATCH_ATTRIBUTES_AT) & (
        words.ATTRIBUTE_CONTROL
    ):
        return
    row = producer_row(producers, number, get64(data, batch + words.BATCH_PRODUCER_ID_AT))
    epoch = get16(data, batch + words.BATCH_PRODUCER_EPOCH_AT)
    verdict, _place = check_sequence(producers, row, epoch, sequences_of(data, batch))
    if verdict != DUPLICATE:  # Do not record a batch that the checkpoint knows.
        timestamp = get64(data, batch + words.BATCH_MAX_TIMESTAMP_AT)
        remember_batch(producers, row, number, data, batch, (base_offset, timestamp, now_ms))


@kernel
def replay_frames(memory, links, producers, data, rows, slots, place):
    """Enter scanned batches into index, partition table and producers; skip other frames.

    slots   int64 [end row - first row]: of each row's partition; -1: skip it (it was deleted)
    place   int64 [5]: first row, end row, position of data[0], position from which producers are
            noted (the checkpoint knows those before), now_ms
    """
    for i in range(place[0], place[1]):
        if rows[i, S_KIND] != words.FRAME_KIND_BATCH:
            continue
        slot = slots[i - place[0]]
        if slot < 0:
            continue
        at, size = rows[i, S_AT], rows[i, S_BYTES]
        position, batch = place[2] + at, at + words.FRAME_HEADER_BYTES
        base_offset = rows[i, S_BASE_OFFSET]
        if position >= place[3]:
            _replay_producer(producers, rows[i, S_PARTITION], data, batch, base_offset, place[4])
        count = get32(data, batch + words.BATCH_LAST_OFFSET_DELTA_AT) + 1
        timestamp = get64(data, batch + words.BATCH_MAX_TIMESTAMP_AT)
        shape = (count, size, get16(data, batch + words.BATCH_ATTRIBUTES_AT))
        append_entry(memory, links, slot, position, base_offset, timestamp, shape)
        if base_offset + count > get_partition(memory, slot, words.P_LOG_END):
            set_partition(memory, slot, words.P_LOG_END, base_offset)
            account(memory, slot, count, size, timestamp, place[4])
