"""How long a broker may send nothing of what it says it has, before its reader gives up.

A broker tells where a partition ends, and a reader that goes up to there would wait for ever for
one that never sends the rest.
"""

from collections.abc import Mapping

from smq.client.clock import Clock
from smq.client.names import TopicPartition
from smq.model.errors import BrokerError, ErrorCode

SILENCE_SECONDS_MAX = 60.0  # A broker has answered a hundred fetches by then.
# Of it, what passes between two checks: a reader that is busy elsewhere, as with a destination that
# takes its time, has asked the broker once.
PAUSE_SHARE_MAX = 0.25


class Silence:
    """The time since one of some partitions last moved."""

    def __init__(self, clock: Clock, seconds_max: float = SILENCE_SECONDS_MAX) -> None:
        self._clock, self._seconds_max = clock, seconds_max
        self._left: Mapping[TopicPartition, tuple[int, int]] = {}
        self._silent_s, self._checked_s = 0.0, clock.monotonic_s()

    def check(self, left: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Tell it the position and the end of each that is still read. Raises BrokerError."""
        now = self._clock.monotonic_s()
        self._silent_s += min(now - self._checked_s, PAUSE_SHARE_MAX * self._seconds_max)
        self._checked_s = now
        if left != self._left:
            self._left, self._silent_s = dict(left), 0.0
        elif left and self._silent_s > self._seconds_max:
            (name, (position, end)) = min(left.items())
            raise BrokerError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"the broker says that {name.topic}-{name.partition} ends at offset {end}, but has "
                f"sent nothing from offset {position} on for {self._seconds_max:.0f} seconds; try "
                "again later, or look at its log",
            )
