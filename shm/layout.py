"""The map of a log's shared memory.

    0         HEADER    PARTITIONS             INDEX                     RING
    +---------+---------+----------------------+-------------------------+------------------+
    | words   | (page)  | one row a partition  | columns in Arrow layout | frames           |
    +---------+---------+----------------------+-------------------------+------------------+

Only the shard that serves the log writes here, except WORD_SYNCED, which its sync thread writes.
Words are int64, in the machine's byte order; a word that is published on its own has a cache line
(eight words) to itself.

A frame, in the ring and in the write-ahead log alike (little endian):

    0      4      8         16       24          28      32         36    40      48
    +------+------+---------+--------+-----------+-------+----------+-----+-------+-------------+
    |magic |check |position |synced  |generation |bytes  |partition |kind |level  |record batch |
    +------+------+---------+--------+-----------+-------+----------+-----+-------+-------------+

    check       CRC-32C of frame[8:48] and of the first 61 bytes of the batch: Kafka's own CRC
                leaves out baseOffset, partitionLeaderEpoch and the length
    position    of this frame in its log
    synced      the position known to be on the disk when this frame was written: a bad frame below
                any frame's `synced` is damage, above all of them it is the torn end
    generation  never decreases along a log, so that the stale tail of an earlier life is refused
    level       the topic's durability then: a start syncs what `disk` frames it finds
    bytes       of the batch; a padding frame's `bytes` fill up to the end of ring or segment
    kind        1: a batch, 2: padding, 3: an adoption (smq.log.adoption); 0 and below: no frame.
                All others are for later versions

Any other kind than the first two has the layout of a batch: header, `bytes` of content, zeros up
to the alignment. Its check covers frame[8:48] and the whole content, whatever that is. So every
reader can tell such a frame from a torn one, and knows where the next frame begins. With
FRAME_KIND_SKIPPABLE in its kind the frame is kept and skipped; without it, a reader that does not
know the kind must not open the log (docs/adr/formats-say-their-version.md).
"""

from typing import Any, NamedTuple

import numpy as np

from shm.kernels.base.entries import INDEX_DTYPES, INDEX_ENTRY_BYTES
from shm.kernels.base.words import (
    COUNTER_SEALED_CACHE_HITS,
    COUNTER_SYNC_NS,
    COUNTER_SYNC_TIMES,
    FRAME_ALIGNMENT_BYTES,
    FRAME_BYTES_MIN,
    HEADER_BYTES,
    PARTITION_ROW_BYTES,
)

WAL_FORMAT = 1
"""The version of the map of a frame; meta.json says which one the logs were written in."""

LAYOUT_MAGIC = 0x0002_51_4D_53  # "SMQ" and the version of this map, little endian.
PAGE_BYTES = 4096
# Rows of a log's partition table. An unused row of 192 bytes takes no memory; a topic has up to
# 100,000 partitions.
PARTITIONS_PER_LOG_MAX = 131_072

assert FRAME_BYTES_MIN % FRAME_ALIGNMENT_BYTES == 0
assert COUNTER_SYNC_NS < COUNTER_SEALED_CACHE_HITS < COUNTER_SYNC_TIMES


class Layout(NamedTuple):
    """The sizes of the parts of a log's memory, in bytes and counts."""

    ring_bytes: int
    index_capacity: int
    partition_capacity: int

    @property
    def index_at(self) -> int:
        return HEADER_BYTES + self.partition_capacity * PARTITION_ROW_BYTES

    @property
    def ring_at(self) -> int:
        end = self.index_at + self.index_capacity * INDEX_ENTRY_BYTES
        return -(-end // PAGE_BYTES) * PAGE_BYTES

    @property
    def total_bytes(self) -> int:
        return self.ring_at + self.ring_bytes

    def index_columns(self) -> dict[str, tuple[int, np.dtype[Any]]]:
        """Where each column of the index begins."""
        at, columns = self.index_at, {}
        for name, dtype in INDEX_DTYPES.items():
            columns[name] = (at, dtype)
            at += self.index_capacity * dtype.itemsize
        return columns


def layout_for(ring_bytes: int, segment_bytes: int, partition_capacity: int) -> Layout:
    """The layout of a log with this ring and this size of WAL segments.

    The index must hold two whole segments of the smallest frames: one that is being written, and
    one whose look-up tables are being filed.
    """
    capacity = max(ring_bytes // 256, 2 * segment_bytes // FRAME_BYTES_MIN)
    return Layout(ring_bytes, -(-capacity // 64) * 64, partition_capacity)
