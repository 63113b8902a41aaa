"""Rebuilds transactions from scanned frames at a start: batches open them, markers end them."""

import numpy as np

from shm.kernels.base.words import (
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_TRANSACTIONAL,
    BATCH_ATTRIBUTES_AT,
    FRAME_HEADER_BYTES,
    FRAME_KIND_BATCH,
)
from shm.kernels.log.recover import S_AT, S_BYTES, S_KIND, S_PARTITION
from smq.log.files.checkpoint import Open
from smq.log.log import Log
from smq.model.errors import PeerError
from smq.wire.markers import read_marker
from smq.wire.records import BatchView, read_batches


def replay_transactions(
    log: Log, data: np.ndarray, rows: np.ndarray, first_position: int, since: tuple[int, int]
) -> None:
    """Enter the transactional batches among scanned frames, in their order.

    rows    int64 [n, 9]: the S_ columns of shm.kernels.log.recover; data[0] is `first_position`
    since   the position where the checkpoint's knowledge ends, and the time now in ms
    """
    known_to, now_ms = since
    at = rows[:, S_AT]
    wanted = (rows[:, S_KIND] == FRAME_KIND_BATCH) & (first_position + at >= known_to)
    at, rows = at[wanted] + FRAME_HEADER_BYTES, rows[wanted]
    low_bytes = data[at + BATCH_ATTRIBUTES_AT + 1]  # Of an int16, big endian.
    for i in np.flatnonzero(low_bytes & ATTRIBUTE_TRANSACTIONAL).tolist():
        number, start, size = rows[i, [S_PARTITION, S_AT, S_BYTES]].tolist()
        start += FRAME_HEADER_BYTES
        if number in log.partitions.slots:
            [batch] = read_batches(data[start : start + size].tobytes())
            _replay(log, number, batch, now_ms)


def _replay(log: Log, number: int, batch: BatchView, now_ms: int) -> None:
    if not batch.attributes & ATTRIBUTE_CONTROL:
        producer = batch.producer_id, batch.producer_epoch
        log.transactions.wrote(Open(number, *producer, batch.base_offset, now_ms))
        return
    try:
        marker = read_marker(batch)
    except PeerError as reason:  # Clients cannot send markers, and this is none of ours.
        log.notices.append(f"{log.directory}: partition {number}: {reason}")
        return
    log.transactions.ended(number, marker, batch.base_offset, now_ms)
