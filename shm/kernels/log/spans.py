"""Spans: where batches lie in the log. Chosen for a fetch, and gathered into one buffer."""

import numpy as np

from shm.kernels.base import words
from shm.kernels.base.bytes import copy_bytes, load32
from shm.kernels.base.entries import LINK_NEXT
from shm.kernels.base.frames import batch_crc_is_good, frame_is_good
from shm.kernels.base.jit import kernel
from shm.kernels.base.memory import (
    entry_base_offset,
    entry_bytes,
    entry_position,
    entry_record_count,
    get_word,
)
from shm.kernels.log.index import find_entry

NOT_IN_WINDOW = -1


@kernel
def choose_batches(memory, links, slot, offset, limit, bytes_max, spans):
    """The whole batches of a partition from the one that holds `offset` on, below offset `limit`.

    spans   int64 [n, 2], filled with (position of the batch, bytes)

    At most `bytes_max` bytes, but always the first batch. Returns (count, bytes); a count of
    NOT_IN_WINDOW when the offset is older than the index's window.
    """
    entry = find_entry(memory, links, slot, offset)
    if entry < 0:
        return np.int64(NOT_IN_WINDOW), np.int64(0)
    capacity = get_word(memory, words.WORD_INDEX_CAPACITY)
    i = entry % capacity
    if entry_base_offset(memory, i) + entry_record_count(memory, i) <= offset:
        entry = links[LINK_NEXT, i]  # The batch that held the offset is gone: continue behind it.
    count, total = np.int64(0), np.int64(0)
    while entry >= 0 and count < spans.shape[0]:
        i = entry % capacity
        size = entry_bytes(memory, i)
        if entry_base_offset(memory, i) >= limit or (count > 0 and total + size > bytes_max):
            break
        spans[count, 0] = entry_position(memory, i) + words.FRAME_HEADER_BYTES
        spans[count, 1] = size
        total += size
        count += 1
        entry = links[LINK_NEXT, i]
    return count, total


@kernel
def gather(ring, spans, count, out):
    """Copy batches that lie in the ring one after another into `out`; returns their bytes."""
    at = np.int64(0)
    for i in range(count):
        copy_bytes(out, at, ring, spans[i, 0] % ring.size, spans[i, 1])
        at += spans[i, 1]
    return at


@kernel
def gather_checked(data, first_position, spans, out, at):
    """Copy batches out of WAL bytes that begin at a position, each frame and CRC checked.

    They are only checked if `out` is empty. Returns the place in `out` after them, or -1 - i if
    batch i is damaged.
    """
    for i in range(spans.shape[0]):
        start = spans[i, 0] - first_position
        size = spans[i, 1]
        frame = start - words.FRAME_HEADER_BYTES
        if start + size > data.size or not frame_is_good(
            data, frame, data.size, first_position + frame
        ):
            return np.int64(-1 - i)
        if load32(data, frame + words.FRAME_KIND_AT) != words.FRAME_KIND_BATCH:
            return np.int64(-1 - i)
        if not batch_crc_is_good(data, start, size):
            return np.int64(-1 - i)
        if out.size:
            copy_bytes(out, at, data, start, size)
        at += size
    return np.int64(at)
