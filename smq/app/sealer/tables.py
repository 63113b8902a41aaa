"""Schedules the publishing of lake tables: when segments change, and periodically as a check.

    segment sealed, merged, deleted  ──▶  due  ──one──▶  worker "tables"
                      ▲                              │
                      └── more to do, or later ◀─────┘

Tables have their own worker: a hanging catalog delays other tables, but neither seals nor reads.
Failed publishing is retried with growing pauses.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from smq.app.sealer.hands import Jobs
from smq.wire.internal.form import Failed
from smq.wire.internal.messages import PublishTable, WithdrawTable

INTERVAL_MS = 5000  # Between two commits of a table: each is some files in the filer.
RETRY_MS, RETRY_MS_MAX = 1000, 300_000


class TableKey(NamedTuple):
    """The identity of a table."""

    namespace: str
    topic: str
    format: str


class KnownTables(Protocol):
    """The part of the catalog that concerns tables."""

    version: int
    tables: dict[TableKey, PublishTable]
    table_of: dict[int, TableKey]
    """By the number of a partition."""


@dataclass(slots=True)
class _Table:
    is_due: bool = True
    check: bool = True
    not_before_ms: int = 0
    failures: int = 0


class Tables:
    """Which tables are due, and which is being published. `published` names the existing tables."""

    def __init__(
        self,
        hands: Jobs,
        known: KnownTables,
        published: Callable[[], Iterable[TableKey]],
        say_problem: Callable[[object], None],
        check_ms: int,
    ) -> None:
        self._hands, self._known, self._published = hands, known, published
        self._say_problem, self.check_ms = say_problem, check_ms
        self._tables: dict[TableKey, _Table] = {}
        self._is_in_hand = False
        self._version, self._checked_ms = -1, 0

    def changed(self, number: int) -> None:
        """Note that a partition's segments have changed."""
        name = self._known.table_of.get(number)
        if name is not None:
            self._tables.setdefault(name, _Table()).is_due = True

    def look(self, now_ms: int) -> None:
        """Start what is due, one table at a time."""
        is_time = now_ms - self._checked_ms >= self.check_ms
        if is_time or self._known.version != self._version:
            self._look_around(now_ms, check=is_time)
        if self._is_in_hand:
            return
        waiting = [
            (table.not_before_ms, name)
            for name, table in self._tables.items()
            if table.is_due and table.not_before_ms <= now_ms
        ]
        if waiting:
            _, name = min(waiting)
            self._give(name, now_ms)

    def _look_around(self, now_ms: int, *, check: bool) -> None:
        """Find out which tables should exist, and which do."""
        self._version = self._known.version
        if check:
            self._checked_ms = now_ms
        wanted = self._known.tables.keys()
        unwanted = set(self._published()) - wanted
        for name in self._tables.keys() - wanted - unwanted:
            del self._tables[name]
        for name in wanted | unwanted:
            table = self._tables.setdefault(name, _Table())
            table.is_due |= check or name in unwanted
            table.check |= check

    def _give(self, name: TableKey, now_ms: int) -> None:
        table = self._tables[name]
        job = self._known.tables.get(name)
        table.is_due = False
        self._is_in_hand = True

        def answered(answer: bool | Failed) -> None:  # noqa: FBT001  (the job's answer)
            self._is_in_hand = False
            self._say_problem(answer)
            if isinstance(answer, Failed):
                table.is_due = table.check = True
                table.not_before_ms = now_ms + min(RETRY_MS << table.failures, RETRY_MS_MAX)
                table.failures = min(table.failures + 1, 20)
                return
            table.failures, table.check = 0, False
            table.is_due |= answer
            table.not_before_ms = now_ms + (0 if answer else INTERVAL_MS)
            if job is None:
                self._tables.pop(name, None)

        if job is None:
            self._hands.do(WithdrawTable(*name), answered)
        else:
            self._hands.do(replace(job, check=table.check), answered)
