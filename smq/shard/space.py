"""WAL space: when the sealer is called, when producers are slowed, and when they are refused.

Sealed segments count as free, though they stay in the WAL until their space is needed.

    free of wal.bytes.max   1 ..... 1/2 ............ 3/8 ......... 1/4 ............... 0
                                     sealer is called   loans end     producers slowed    refused

Loans end (smq.log.files.wal): a segment that only unsent answers hold is freed all the same.
Slowing is smq.shard.throttle's. Refusing (KAFKA_STORAGE_ERROR) is the kernel's, at WORD_SPACE_END:
exact, whatever comes in one turn.
"""

from shm.kernels.base.words import FRAME_BYTES_MIN
from smq.log.files.wal import LOANS_END_BELOW
from smq.log.log import Log
from smq.shard.shard import Shard
from smq.shard.throttle import SLOW_BELOW

SEAL_BELOW = 0.5
CALM_FROM = 0.625  # Not reported again until this much was free.
assert SLOW_BELOW < LOANS_END_BELOW < SEAL_BELOW  # No producer waits for a reader.


def pace(room_bytes: int, limit_bytes: int) -> str:
    """The state of sealing for a log with this much room, in a few words."""
    if room_bytes >= SEAL_BELOW * limit_bytes:
        return "trails"
    if room_bytes >= SLOW_BELOW * limit_bytes:
        return "hurries"
    is_full = room_bytes < FRAME_BYTES_MIN
    return f"hurries, producers are {'refused' if is_full else 'slowed'}"


def watch_space(shard: Shard, now_ms: int) -> bool:
    """Tend the logs and report full ones; returns whether the sealer must free space."""
    wanted = False
    for number, log in shard.logs.items():
        log.now_ms = now_ms
        log.tend()
        log.fit_disk()
        limit = log.wal.files.limit
        log.producers.expire(now_ms - shard.config.producer_id_expiration_ms)
        wanted |= log.space_left < SEAL_BELOW * limit
        _say_hurry(shard, number, log)
        if log.space_left >= min(shard.config.message_max_bytes, log.wal.files.segment_bytes):
            shard.full_logs.discard(number)
        elif number not in shard.full_logs:
            shard.full_logs.add(number)
            log.notices.append(
                f"{log.directory}: {_limit(shard, limit)} is reached: "
                "producers are refused until sealing or retention frees some"
            )
    shard.throttle.watch()
    return wanted


def _say_hurry(shard: Shard, number: int, log: Log) -> None:
    """Report once that sealing has fallen behind and producers will be slowed if this continues."""
    limit = log.wal.files.limit
    if log.space_left >= CALM_FROM * limit:
        shard.hurried_logs.discard(number)
    elif log.space_left < SEAL_BELOW * limit and number not in shard.hurried_logs:
        shard.hurried_logs.add(number)
        log.notices.append(
            f"{log.directory}: more than half of {_limit(shard, limit)} is not sealed yet: "
            "sealing hurries, and producers are slowed at three quarters"
        )


def _limit(shard: Shard, limit: int) -> str:
    if limit < shard.config.wal_bytes_max:
        return f"what the disk has room for ({limit} bytes)"
    return f"wal.bytes.max ({limit} bytes)"
