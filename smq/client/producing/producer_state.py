"""A producer's lock, the threads that wait under it, and the progress of its closing."""

import threading

from smq.client.clock import Clock
from smq.client.errors import Closed
from smq.client.producing.waiters import Waiters


class ProducerState:
    """Shared by all parts of a producer. The lock guards them all.

    resolved, freed  threads that wait for results, and for room in the buffer
    is_draining      no more records are taken; the thread ends when all are resolved
    is_ending        the thread ends now
    is_closed        the thread has ended, or is not here: a fork's child has none
    why_not          why no record may be sent now (with a transactional id); None: it may
    """

    def __init__(self, clock: Clock) -> None:
        self.is_draining = self.is_ending = self.is_closed = False
        self._clock = clock
        self.why_not: str | None = None
        self.renew_lock()

    def renew_lock(self) -> None:
        """Forget the lock's holder and waiters: after a fork those threads do not exist here."""
        self.lock = threading.RLock()
        self.resolved = Waiters(self.lock, self._clock)
        self.freed = Waiters(self.lock, self._clock)

    def check_open(self) -> None:
        """Raise Closed if no records are taken any more, RuntimeError if none are taken now."""
        self.check_closed()
        if self.why_not is not None:
            raise RuntimeError(self.why_not)

    def check_closed(self) -> None:
        """Raise Closed if no records are taken any more."""
        if self.is_closed or self.is_draining:
            raise Closed("the producer has been closed")
