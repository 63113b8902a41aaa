"""How long producers are to wait while WAL space is short.

For a while no more is read from the connection that has produced, and its answers say for how long,
as Kafka does. The less is free, the slower: whatever clients ask for, what is left lasts for
seconds, in which the sealer frees more.
"""

from collections.abc import Collection

from shm.kernels.base.words import SPACE_UNLIMITED
from smq.log.log import Log

SLOW_BELOW = 0.25  # Of wal.bytes.max, or of what the disk has room for, free.
LEFT_LASTS_MS = 5000.0  # A sealer that has to be started first needs a second or two.
THROTTLE_MS_MAX = 1000  # Kafka's own bound: what else goes over the connection waits as well.


class Throttle:
    """One for all connections of a shard: its logs are slowed as the one with least space asks."""

    def __init__(self, logs: Collection[Log]) -> None:
        self._logs = logs
        self._paid_until_ms = 0.0
        self.is_on = False

    def watch(self) -> None:
        """See whether some log is short of space."""
        self.is_on = any(log.space_left < SLOW_BELOW * log.wal.limit for log in self._logs)

    def _left(self) -> int:
        return min((log.space_left for log in self._logs), default=SPACE_UNLIMITED)

    def delay_ms(self, size: int, now_ms: int) -> int:
        """How long nobody should send more after `size` bytes."""
        owed_ms = max(0.0, self._paid_until_ms - now_ms)
        return int(min(THROTTLE_MS_MAX, owed_ms + size * LEFT_LASTS_MS / max(1, self._left())))

    def charge(self, size: int, now_ms: int) -> int:
        """So many bytes have been produced: how long no more is to be read from their sender."""
        delay_ms = self.delay_ms(size, now_ms)
        self._paid_until_ms = now_ms + delay_ms
        return delay_ms
