"""The memory of a log's table of producers; shm.kernels.log.producers describes its rows."""

import numpy as np

from shm.kernels.log.producers import H_BUCKET_MASK, H_CAPACITY, H_KEY, PRODUCER_COLUMNS
from shm.segment import sparse_memory

KEY_BYTES = 16


def new_producers(capacity: int, key: bytes) -> np.ndarray:
    """An empty table, int64 [rows, 32], for `capacity` producers, a power of two of at least 16.

    `key` is 16 secret random bytes. The system provides pages when rows are first
    written, in small pages, because the hash touches buckets at random.
    """
    assert capacity >= PRODUCER_COLUMNS // 2
    assert capacity & (capacity - 1) == 0
    assert len(key) == KEY_BYTES
    buckets = 2 * capacity
    rows = 1 + capacity + buckets // PRODUCER_COLUMNS
    table = np.frombuffer(sparse_memory(8 * PRODUCER_COLUMNS * rows), np.int64).reshape(
        rows, PRODUCER_COLUMNS
    )
    table[0, H_CAPACITY], table[0, H_BUCKET_MASK] = capacity, buckets - 1
    table[0, H_KEY : H_KEY + 2] = np.frombuffer(key, np.int64)
    return table
