"""Failures that no caller has seen yet.

`flush` raises them, so that none goes unnoticed. They are kept without their parcels. Failures
reported since are dropped now and then.
"""

from collections.abc import Iterable

from smq.client.producing.delivery.delivery_state import DeliveryState, Failure

LOOK_AT_COUNT = 64  # Fewer are not worth a search for reported ones.


class UnreportedFailures:
    """Failures, the oldest first.

    One thread at a time may call its methods. Any thread may set `is_reported` of a failure.

    first_error  of the failures that were noted, reported or not, since the caller reset it
    """

    def __init__(self) -> None:
        self._failures: dict[Failure, None] = {}
        self.first_error: Exception | None = None
        self._look_at_count = LOOK_AT_COUNT

    def __len__(self) -> int:
        return len(self._failures)

    def note(self, fates: Iterable[DeliveryState]) -> None:
        """Take the unreported failures of these. Noting one twice is noting it once."""
        for fate in fates:
            for failure in fate.failures:
                if not failure.is_noted:  # A parcel is noted whenever rows of it are resolved.
                    failure.is_noted = True
                    self.first_error = self.first_error or failure.error
                if not failure.is_reported:
                    self._failures[failure] = None
        if len(self._failures) >= self._look_at_count:
            self._failures = dict.fromkeys(self._left())
            self._look_at_count = max(LOOK_AT_COUNT, 2 * len(self._failures))

    def take(self) -> list[Failure]:
        """The unreported failures; they are reported now."""
        taken, self._failures = self._left(), {}
        for failure in taken:
            failure.is_reported = True
        return taken

    def _left(self) -> list[Failure]:
        return [failure for failure in self._failures if not failure.is_reported]
