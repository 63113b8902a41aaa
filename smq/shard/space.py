"""WAL space: when the sealer is called, and when producers are refused."""

from shm.kernels.words import FLAG_SPACE, P_FLAGS
from smq.shard.shard import Shard

SEAL_AT = 0.5  # Of wal.bytes.max: from here on the sealer is called.


def watch_space(shard: Shard) -> bool:
    """Refuse producers of full logs (KAFKA_STORAGE_ERROR), let the others go on.

    Returns whether space is wanted.
    """
    wanted = False
    for log in shard.logs.values():
        log.tend()
        used, limit = log.wal.allocated_bytes, shard.config.wal_bytes_max
        wanted |= used >= SEAL_AT * limit
        # The next segment is made ahead, so that one more must fit than is used.
        is_full = used + 2 * log.wal.segment_bytes > limit
        flags = log.partitions.table[:, P_FLAGS]
        slots = list(log.partitions.slots.values())
        if is_full:
            if not (flags[slots] & FLAG_SPACE).any():
                log.notices.append(
                    f"{log.directory}: wal.bytes.max, {limit} bytes, is reached: "
                    "producers are refused until sealing or retention frees some"
                )
            flags[slots] |= FLAG_SPACE
        else:
            flags[slots] &= ~FLAG_SPACE
    return wanted
