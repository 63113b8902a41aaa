"""What a worker process claims of the cores, decided by what waits for it. No IO.

    IDLE     what all others leave, while nothing hurries
    LITTLE   a tenth of a core beside one that is busy: a job is getting late
    FULL     as much as others: a job is late, or a log is short of space

A process without privileges can lower its claim, but not raise it again. So each worker takes its
claim when it is forked, and another claim takes another worker.
"""

from dataclasses import dataclass
from enum import IntEnum


class Claim(IntEnum):
    """The classes; a greater one claims more."""

    IDLE = 0
    LITTLE = 1
    FULL = 2


@dataclass(slots=True)
class Pace:
    """What a worker is to claim. A job that has waited `late_ms` for idle cores is late.

    A claim that was raised for a late job stays for as long: chores come one by one, and each
    would wait again.
    """

    base: Claim
    late_ms: int
    is_short: bool = False
    _late: Claim = Claim.IDLE
    _until_ms: int = 0

    def claim(self, waiting_ms: int, now_ms: int) -> Claim:
        """The claim now. `waiting_ms`: for how long the oldest job has waited, done in part."""
        if self.base is not Claim.IDLE:
            return self.base
        late = self._lateness(waiting_ms)
        if late >= self._late or now_ms >= self._until_ms:
            self._late, self._until_ms = late, now_ms + self.late_ms
        return Claim.FULL if self.is_short else self._late

    def _lateness(self, waiting_ms: int) -> Claim:
        if waiting_ms >= self.late_ms:
            return Claim.FULL
        return Claim.LITTLE if waiting_ms * 3 >= self.late_ms * 2 else Claim.IDLE
