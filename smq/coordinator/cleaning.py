"""Forgets what is no longer needed, some rows at a time, while the coordinator serves others."""

from smq.coordinator.deadlines import ALWAYS_MS, NEVER_MS
from smq.model.now import Now
from smq.store.store import Store


class Cleaning:
    """What is left of deleted topics, and the names of payloads of files that are no segments."""

    def __init__(self, store: Store) -> None:
        self._topics, self._names = store.deleted_topics, store.manifest.names

    def next_wake_ms(self) -> int:
        """The earliest time when `tick` has something to do."""
        is_due = self._topics.may_be_some or self._names.may_have_gone
        return ALWAYS_MS if is_due else NEVER_MS

    def tick(self, _now: Now) -> None:
        """Forget some: topics first, whose segments' names follow."""
        if self._topics.may_be_some:
            self._topics.forget_some()
            self._names.may_have_gone = True
        else:
            self._names.forget_some()
