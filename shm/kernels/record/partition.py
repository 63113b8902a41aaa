"""The partitions of keys, by Kafka's rule. The plain twin is `smq.model.partitioner`."""

from shm.kernels.base.bytes import load_u32
from shm.kernels.base.jit import kernel
from shm.kernels.record.records import C_KEY_AT, C_KEY_LENGTH

SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
WORD = 0xFFFFFFFF


@kernel
def murmur2(data, at, length):
    """Kafka's 32 bit hash of data[at:at + length], unsigned."""
    check = SEED ^ length
    whole = at + (length & ~3)
    while at < whole:
        word = load_u32(data, at) * MULTIPLIER & WORD
        word = (word ^ word >> 24) * MULTIPLIER & WORD
        check = check * MULTIPLIER & WORD ^ word
        at += 4
    if length & 3:
        for i in range(length & 3):
            check ^= int(data[at + i]) << 8 * i
        check = check * MULTIPLIER & WORD
    check = (check ^ check >> 13) * MULTIPLIER & WORD
    return check ^ check >> 15


@kernel
def choose_partition(keys, at, length, partition_count, keyless):
    """Where a record with this key goes; a length of -1 is no key."""
    if length < 0:
        return keyless
    return (murmur2(keys, at, length) & 0x7FFFFFFF) % partition_count


@kernel
def assign_partitions(columns, keys, partition_count, keyless, partitions):
    """Fill the places of `partitions` (int64) that are negative; the rows without key together.

    `columns` are those of `records`, their keys lie in `keys`; returns how many rows were filled.
    """
    filled = 0
    for row in range(len(partitions)):
        if partitions[row] >= 0:
            continue
        filled += 1
        at, length = columns[C_KEY_AT, row], columns[C_KEY_LENGTH, row]
        partitions[row] = choose_partition(keys, at, length, partition_count, keyless)
    return filled
