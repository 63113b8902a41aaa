"""WAL space: when the sealer is called, when producers are slowed, and when they are refused.

    free of wal.bytes.max   1 ........ 1/2 ................. 1/4 ................... 0
                                        the sealer is called   producers are slowed   refused

Slowing is smq.shard.throttle's. Refusing (KAFKA_STORAGE_ERROR) is the kernel's, at WORD_SPACE_END:
exact, whatever comes in one turn.
"""

from smq.shard.shard import Shard

SEAL_BELOW = 0.5


def watch_space(shard: Shard) -> bool:
    """Tend the logs, say which are full; returns whether the sealer is to free space."""
    wanted, limit = False, shard.config.wal_bytes_max
    for number, log in shard.logs.items():
        log.tend()
        wanted |= log.space_left < SEAL_BELOW * limit
        if log.space_left >= min(shard.config.message_max_bytes, log.wal.segment_bytes):
            shard.full_logs.discard(number)
        elif number not in shard.full_logs:
            shard.full_logs.add(number)
            log.notices.append(
                f"{log.directory}: wal.bytes.max, {limit} bytes, is reached: "
                "producers are refused until sealing or retention frees some"
            )
    shard.throttle.watch()
    return wanted
