"""Rows of the partition table for the partitions that a start meets in checkpoint and frames.

They may be more than there are rows for. Topics that were deleted stay in the log until a
checkpoint without them is durable, and new ones have come meanwhile; without a checkpoint all are
met that have a frame. Once the rows run out, a start asks which partitions there are: the others
lose their rows, and get none.
"""

from collections.abc import Callable, Set as AbstractSet

from smq.log.log import Log
from smq.model.errors import StoreError

Existing = Callable[[], AbstractSet[int]]
"""The numbers of a log's partitions that the catalog has; may wait for it. Raises StoreError."""


class StartRows:
    """The rows that one start gives away.

    existing   None: nobody knows
    """

    def __init__(self, log: Log, existing: Existing | None) -> None:
        self.log, self._existing = log, existing
        self._known: AbstractSet[int] | None = None  # Once it was asked.

    def give(self, number: int) -> bool:
        """Give a partition a row if it has none; False: it does not exist. Raises StoreError if
        there are more than rows."""
        partitions = self.log.partitions
        if number in partitions.slots:
            return True
        if partitions.is_full and self._known is None:
            self._drop_deleted()
        if self._known is not None and number not in self._known:
            return False
        if partitions.is_full:
            raise self._refused()
        partitions.slot_of(number)
        return True

    def _drop_deleted(self) -> None:
        if self._existing is None:
            raise self._refused()
        self._known = self._existing()
        self.log.drop_partitions(self.log.partitions.slots.keys() - self._known)

    def _refused(self) -> StoreError:
        most = len(self.log.partitions.table)
        return StoreError(
            str(self.log.directory), f"it has more partitions than the {most} that a log may have"
        )
