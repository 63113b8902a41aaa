"""Failures of which nobody has learned yet: for who flushes, so that none passes unseen.

They are kept without the parcels they are of, and those that were seen are dropped now and then.
"""

from collections.abc import Iterable

from smq.client.producing.fate import Failure, Fate

LOOK_AT_COUNT = 64  # Below so many it is not worth a look which of them were seen.


class Unseen:
    """Failures, the oldest first. Not for two threads at once, but `is_seen` may be set by any."""

    def __init__(self) -> None:
        self._failures: dict[Failure, None] = {}
        self._look_at_count = LOOK_AT_COUNT

    def __len__(self) -> int:
        return len(self._failures)

    def note(self, fates: Iterable[Fate]) -> None:
        """Take the failures of these, if there are any that nobody has seen. Again, it is once."""
        for fate in fates:
            for failure in fate.failures:
                if not failure.is_seen:
                    self._failures[failure] = None
        if len(self._failures) >= self._look_at_count:
            self._failures = dict.fromkeys(self._left())
            self._look_at_count = max(LOOK_AT_COUNT, 2 * len(self._failures))

    def take(self) -> list[Failure]:
        """Those that nobody has seen; they are seen now."""
        taken, self._failures = self._left(), {}
        for failure in taken:
            failure.is_seen = True
        return taken

    def _left(self) -> list[Failure]:
        return [failure for failure in self._failures if not failure.is_seen]
