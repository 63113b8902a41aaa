"""A walk over all groups that expires old offsets, some rows at a step.

Which expire, and when, is at the head of `smq.coordinator.offsets`. Steps are in proportion to the
rows; the coordinator's loop serves requests in between.
"""

from collections.abc import Collection

from smq.coordinator.deadlines import ALWAYS_MS
from smq.coordinator.group import Group
from smq.coordinator.group_states import GroupState
from smq.coordinator.groups import Groups
from smq.coordinator.settings import Settings
from smq.coordinator.subscriptions import topics_of
from smq.coordinator.topics import Topics
from smq.model.config import MINUTE_MS
from smq.model.group_protocols import CONSUMER, SEAWEEDMQ
from smq.model.now import Now
from smq.store.store import Store

CHECK_INTERVAL_MS = 10 * 60_000  # Kafka's offsets.retention.check.interval.ms.
ROWS_A_STEP = 1000  # Some milliseconds.
ROWS_MIN = 200  # Of a group in a step, whatever it took to find out what it keeps.
# What takes as long as a row: a group (in rows: two statements), to read of what its members say
# (in bytes), and to look up partitions.
GROUP_ROWS, BYTES_A_ROW, NUMBERS_A_ROW = 20, 50, 20


class Expiry:
    """The walk, and the time of the next one."""

    def __init__(
        self, store: Store, settings: Settings, topics: Topics, groups: Groups, now: Now
    ) -> None:
        self._store, self._settings = store, settings
        self._topics, self._groups = topics, groups
        self._next_check_ms = now.monotonic_ms + CHECK_INTERVAL_MS
        self._left: list[str] = []  # Groups, the last first.
        self._after = -1  # The last group is visited up to this partition number.

    def next_wake_ms(self) -> int:
        """The earliest time when `tick` has something to do (monotonic)."""
        return ALWAYS_MS if self._left else self._next_check_ms

    def tick(self, now: Now) -> None:
        """Visit some more rows of a walk, or begin one if it is time."""
        if not self._left and self._next_check_ms <= now.monotonic_ms:
            self._next_check_ms = now.monotonic_ms + CHECK_INTERVAL_MS
            self._left = [group.group_id for group in self._groups]
            return
        rows = ROWS_A_STEP
        while self._left and rows > 0:
            rows -= self._visit(self._left[-1], rows, now.monotonic_ms)

    def _visit(self, group_id: str, rows_left: int, now_ms: int) -> int:
        """Visit a group, or some of its rows; returns how many rows it took, or as long."""
        group = self._groups.get(group_id)
        kept, rows = (None, 0) if group is None else self._kept(group)
        rows += GROUP_ROWS
        if group is not None and kept is not None:
            retention_ms = self._retention_ms(group)
            rows_max = max(rows_left - rows, ROWS_MIN)
            looked_at = self._store.expire_offsets(
                group_id, now_ms, retention_ms, after=self._after, rows_max=rows_max, kept=kept
            )
            rows += len(looked_at)
            if len(looked_at) == rows_max:
                assert looked_at[-1] > self._after, "each step ends behind the one before"
                self._after = looked_at[-1]
                return rows
            is_unused = group.is_idle() and group_id not in self._groups.deleting
            if is_unused and not self._store.has_offsets(group_id):
                self._groups.forget(group_id)
        self._left.pop()
        self._after = -1
        return rows

    def _retention_ms(self, group: Group) -> int:
        config = self._settings.config
        minutes = config.offsets_retention_minutes
        if group.protocol_type == SEAWEEDMQ:
            minutes = max(minutes, config.grpc_offsets_retention_minutes)
        return minutes * MINUTE_MS

    def _kept(self, group: Group) -> tuple[Collection[int] | None, int]:
        """The partitions whose offsets do not expire (None: all), and how many rows could have been
        handled in the time that this took."""
        if group.is_idle():
            return (), 0
        if group.state is not GroupState.STABLE or group.protocol_type != CONSUMER:
            return None, 0
        topics, rows = topics_of(group), group.roster.bytes_held // BYTES_A_ROW
        if topics is None:
            return None, rows
        numbers = self._topics.numbers_of(topics)
        return numbers, rows + len(numbers) // NUMBERS_A_ROW
