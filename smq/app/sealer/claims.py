"""What a worker process claims of the cores, decided by what waits for it. No IO.

    SPARE    what all others leave, and nothing while shards are busy
    IDLE     what all others leave
    LITTLE   a tenth of a core beside one that is busy
    FULL     as much as others

A job begins with SPARE, and claims more with each third of `late_ms` for which it was kept waiting.
Those behind it are not late yet: a long line on idle cores is no reason to take others' cores, nor
is a slow store. While a log is short of space those that seal claim FULL. A process without
privileges can lower its claim, but not raise it again. So each worker takes its claim when it is
forked, and a higher one takes another worker.
"""

from dataclasses import dataclass
from enum import IntEnum


class Claim(IntEnum):
    """The classes; a greater one claims more."""

    SPARE = 0
    IDLE = 1
    LITTLE = 2
    FULL = 3


@dataclass(slots=True)
class Pace:
    """What a worker is to claim. A job that was kept waiting for `late_ms` is late.

    A claim that was raised for a job stays for as long: jobs come one by one, and each would wait
    again.
    """

    base: Claim
    late_ms: int
    is_short: bool = False
    _raised: Claim = Claim.SPARE
    _until_ms: int = 0

    def claim(self, kept_ms: int, now_ms: int) -> Claim:
        """The claim now. `kept_ms`: for how long the current job was kept waiting."""
        if self.base is not Claim.SPARE:
            return self.base
        thirds = kept_ms * Claim.FULL // self.late_ms if self.late_ms else Claim.FULL
        raised = Claim(min(thirds, Claim.FULL))
        if raised >= self._raised or now_ms >= self._until_ms:
            self._raised, self._until_ms = raised, now_ms + self.late_ms
        return Claim.FULL if self.is_short else self._raised
