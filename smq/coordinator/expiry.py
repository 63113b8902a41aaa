"""A walk over all groups that expires old offsets, some rows at a step.

Which expire, and when, is at the head of `smq.coordinator.offsets`. Steps are in proportion to the
rows; the coordinator's loop serves requests in between.
"""

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple, Protocol

ROWS_A_STEP = 1000  # Some milliseconds.
GROUP_ROWS = 20  # Cost of a group beside its rows: two statements.
ROWS_MIN = 200  # Of a group in a step, whatever it took to find out what it keeps.


class Offsets(Protocol):
    """The part of the store that a walk needs."""

    def expire_offsets(  # noqa: PLR0913  (see Store)
        self,
        group_id: str,
        now_ms: int,
        retention_ms: int,
        *,
        after: int,
        rows_max: int,
        kept: Collection[int],
    ) -> list[int]: ...
    def has_offsets(self, group_id: str) -> bool: ...


class Kept(NamedTuple):
    """The partitions, by number, whose offsets a group keeps; None: all. Finding that out took as
    long as so many rows."""

    numbers: Collection[int] | None
    rows: int = 0


class Expiry:
    """A walk over groups. `step` it while it `is_walking`."""

    def __init__(self, offsets: Offsets) -> None:
        self._offsets = offsets
        self._groups: list[str] = []
        self._after = -1  # The last group is visited up to this partition number.

    @property
    def is_walking(self) -> bool:
        """Whether the walk has groups left."""
        return bool(self._groups)

    def begin(self, group_ids: Iterable[str]) -> None:
        """Begin a walk over these groups."""
        assert not self._groups, "the last walk is over"
        self._groups, self._after = list(group_ids), -1

    def step(self, now_ms: int, retention_ms: int, kept_of: Callable[[str], Kept]) -> list[str]:
        """Visit some more rows; returns the idle groups among them that have no offsets left.

        A group that keeps some is not idle.
        """
        left, empty = ROWS_A_STEP, []
        while self._groups and left > 0:
            group_id = self._groups[-1]
            looked_at: list[int] = []
            kept, rows = kept_of(group_id)
            left -= GROUP_ROWS + rows
            if kept is not None:
                rows_max = max(left, ROWS_MIN)
                looked_at = self._offsets.expire_offsets(
                    group_id,
                    now_ms,
                    retention_ms,
                    after=self._after,
                    rows_max=rows_max,
                    kept=kept,
                )
                left -= len(looked_at)
                if len(looked_at) == rows_max:
                    assert looked_at[-1] > self._after, "each step ends behind the one before"
                    self._after = looked_at[-1]
                    continue
                if not self._offsets.has_offsets(group_id):
                    empty.append(group_id)
            self._groups.pop()
            self._after = -1
        return empty
