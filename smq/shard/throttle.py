"""How long producers must wait while WAL space is short.

The shard stops reading from a connection that has produced, and its answers say for how long, as
Kafka does. The less space is free, the longer: whatever clients send, the rest lasts for seconds,
in which the sealer frees more.
"""

from collections.abc import Collection

from shm.kernels.base.words import SPACE_UNLIMITED
from smq.log.log import Log

SLOW_BELOW = 0.25  # Free share of wal.bytes.max, or of what the disk has room for.
LEFT_LASTS_MS = 5000.0  # A sealer that has to be started first needs a second or two.
THROTTLE_MS_MAX = 1000  # Kafka's own bound: other requests on the connection wait as well.


class Throttle:
    """One for all connections of a shard, governed by the log with the least space."""

    def __init__(self, logs: Collection[Log]) -> None:
        self._logs = logs
        self._paid_until_ms = 0.0
        self.is_on = False

    def watch(self) -> None:
        """Measure which log is shortest of space."""
        self.is_on = any(log.space_left < SLOW_BELOW * log.wal.files.limit for log in self._logs)

    def _left(self) -> int:
        return min((log.space_left for log in self._logs), default=SPACE_UNLIMITED)

    def delay_ms(self, size: int, now_ms: int) -> int:
        """How long no client may send more after `size` bytes."""
        owed_ms = max(0.0, self._paid_until_ms - now_ms)
        return int(min(THROTTLE_MS_MAX, owed_ms + size * LEFT_LASTS_MS / max(1, self._left())))

    def charge(self, size: int, now_ms: int) -> int:
        """Charge produced bytes; returns how long to read nothing from their sender."""
        delay_ms = self.delay_ms(size, now_ms)
        self._paid_until_ms = now_ms + delay_ms
        return delay_ms
