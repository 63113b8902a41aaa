"""Where clients that may not do everything may write and read, for kernels.

    bitmaps   int64: rows of two bitmaps, of `size` words each. A row's first has the bits of the
              partitions (rows of the log's partition table) that its clients may write to, the
              second of those that they may read.

A bit that is set is a right that Python has found (smq.shard.bitmaps); one that is not says
nothing: then Python decides. NOBODYS never has a bit.
"""

from shm.kernels.base.jit import kernel

NOBODYS = 0  # A row.
WRITES, READS = 0, 1
OPERATIONS = 2
WORD_BITS = 64
SLOT_MASK = 0xFFFFFFFF


@kernel
def bitmap_at(size, row, operation):
    """Where a row's bitmap of an operation begins."""
    return size * (OPERATIONS * row + operation)


@kernel
def is_set(bitmaps, at, code):
    """Whether a bitmap has the bit of a partition; it has none of those that are not led here."""
    slot = code & SLOT_MASK
    return code >= 0 and bitmaps[at + (slot >> 6)] >> (slot & 63) & 1 != 0
