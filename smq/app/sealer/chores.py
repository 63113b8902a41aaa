"""Retention, compaction, merging and sweeps, in small jobs: the worker has one at a time.

    due  ──▶  line of chores  ─────────────────┐
                 ▲                             ├─by turns──one──▶  worker "seal"
                 └── a sweep's next page ───┐  │                      │
    compaction: one pass at a time, a step ─┼──┘                      │
                 ▲                          └─────────────────────────┤
                 └── its next step ───────────────────────────────────┘

Other work of the worker waits for one chore at most: a seal that a full log needs never waits for a
whole sweep. A pass of compaction has a table from its first step to its last, and there is memory
for one, so other passes wait for its end. All else does not: its steps take turns with the line,
and a partition that waits for its pass is retained and merged meanwhile.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, TypeVar

from smq.app.sealer.hands import Jobs
from smq.model.config import Config
from smq.model.now import Now
from smq.model.segments import SealedPartition
from smq.model.topic_settings import TopicSettings
from smq.sealer.plan import is_overdue
from smq.sealer.sightings import Sightings, Untouched
from smq.wire.internal.form import Failed, Question
from smq.wire.internal.messages import (
    Compact,
    DropUnsealed,
    FindOrphans,
    FindUnnamed,
    ForgetUnfinished,
    Merge,
    Owner,
    PartitionState,
    Retain,
    Retained,
    Sweep,
    SweepPayloads,
    Unnamed,
)

A = TypeVar("A")

# Partitions that a look queues for retention, the others wait for the next one: some milliseconds.
RETENTIONS_MAX = 500
SWEEP_CHORES = 3  # Of unfinished writes, segments and payloads.


class KnownPartitions(Protocol):
    """The catalog by partition number."""

    def place(self, number: int) -> tuple[SealedPartition, TopicSettings, int] | None: ...

    def owners(self) -> list[Owner]: ...


class SweepPages(NamedTuple):
    """How to sweep a part of the filer, a page at a time."""

    sightings: Sightings
    find: Callable[[str], Question[Unnamed]]
    sweep: Callable[[list[str]], Question[list[str]]]


class Chores:
    """The chores that are due or running. `states` is the shards' last report.

    `changed` is called with the number of a partition whose segments have changed.
    """

    def __init__(  # noqa: PLR0913, PLR0917  (whom it talks to, and what it knows)
        self,
        hands: Jobs,
        config: Config,
        known: KnownPartitions,
        states: Mapping[int, PartitionState],
        say_problem: Callable[[object], None],
        changed: Callable[[int], None] = lambda _number: None,
    ) -> None:
        self._hands, self.config, self._known, self._states = hands, config, known, states
        self._say_problem, self._changed = say_problem, changed
        self._line: deque[Callable[[], None]] = deque()
        self._is_in_hand = self._is_choosing = False
        self._in_line: set[int] = set()  # Partitions whose retention, then merging, is not done.
        self._to_retain: list[int] = []  # Partitions that a check has not yet queued.
        self._dropping: set[int] = set()
        self._to_compact: dict[int, None] = {}  # In the order in which they are compacted.
        self._compacting: int | None = None
        self._has_compacted = False  # The last chore was a step of compaction.
        self._sweeping = 0  # Unfinished sweeps.
        self._retained_ms = self._swept_ms = 0
        self._is_sweep_over = False  # Seen from the next look on, once nothing of it is left.
        self._sightings, self._orphans, self._unfinished = Sightings(), Sightings(), Untouched()

    @property
    def compacts(self) -> bool:
        """Whether a pass of compaction is not over."""
        return self._compacting is not None

    def look(self, now: Now) -> None:
        """Queue what is due, except what is still unfinished from the last time."""
        now_ms = now.monotonic_ms
        interval_ms = self.config.log_retention_check_interval_ms
        if now_ms - self._retained_ms >= interval_ms and not self._to_retain:
            self._retained_ms, self._to_retain = now_ms, list(self._states)
        for number in self._to_retain[-RETENTIONS_MAX:]:
            self._retain(number, now_ms)
        del self._to_retain[-RETENTIONS_MAX:]
        self._look_at_sweeps(now)
        self._next()

    def _look_at_sweeps(self, now: Now) -> None:
        """Begin a sweep an interval after the end of the last one: see Sightings."""
        if self._sweeping:
            return
        if self._is_sweep_over:
            self._is_sweep_over, self._swept_ms = False, now.monotonic_ms
        if now.monotonic_ms - self._swept_ms >= self.config.filer_sweep_ms:
            self._is_sweep_over = True
            self._sweep(now)

    def _retain(self, number: int, now_ms: int) -> None:
        found = self._known.place(number)
        if found is None or number not in self._states:  # Its topic was deleted.
            return
        state, (place, settings, node) = self._states[number], found
        if number not in self._dropping and is_overdue(state, settings, now_ms):
            # The log needs the room now; seals may each wait for a hanging filer.
            self._dropping.add(number)
            job = DropUnsealed(node, place, settings)
            self._hands.do(job, lambda answer: self._dropped(number, answer), is_urgent=True)
        if number not in self._in_line and number != self._compacting:
            self._in_line.add(number)
            self._line.append(lambda: self._give_retain(number))

    def _dropped(self, number: int, answer: int | Failed) -> None:
        self._dropping.discard(number)
        self._say_problem(answer)

    def _give_retain(self, number: int) -> None:
        def answered(answer: Retained | Failed) -> None:
            if isinstance(answer, Failed):
                self._in_line.discard(number)
                return
            if answer.deleted:
                self._changed(number)
            if answer.has_more:
                self._line.append(lambda: self._give_retain(number))
            elif self._compacts(number):
                self._in_line.discard(number)
                self._to_compact.setdefault(number)
            else:
                self._line.append(lambda: self._give_merge(number))

        found = self._known.place(number)
        if found is None or number not in self._states:
            self._in_line.discard(number)
            return
        state, (place, settings, node) = self._states[number], found
        self._give(Retain(node, place, settings, state), answered)

    def _compacts(self, number: int) -> bool:
        found = self._known.place(number)
        return found is not None and found[1].compacts

    def _give_compact(self, number: int) -> None:
        """Do a step of a pass; the worker keeps one partition's state. Its segments are merged
        when it is over."""

        def answered(has_more: bool | Failed) -> None:  # noqa: FBT001  (the job's answer)
            self._changed(number)
            if has_more is not True:
                self._compacting = None
                self._in_line.add(number)
                self._line.append(lambda: self._give_merge(number))

        found = self._known.place(number)
        if found is not None and found[1].compacts:
            place, settings, node = found
            self._give(Compact(node, place, settings), answered)
        else:
            self._compacting = None

    def _give_merge(self, number: int) -> None:
        """Merge small segments, a few at a time, until none qualify."""

        def answered(count: int | Failed) -> None:
            if isinstance(count, Failed) or count == 0:
                self._in_line.discard(number)
            else:
                self._changed(number)
                self._line.append(lambda: self._give_merge(number))

        found = self._known.place(number)
        if found is None:
            self._in_line.discard(number)
            return
        place, settings, _ = found
        self._give(Merge(place, settings), answered)

    def _sweep(self, now: Now) -> None:
        config = self.config
        before_ms = now.monotonic_ms - config.filer_sweep_ms
        gone_before_ms = now.wall_ms - config.filer_sweep_ms  # By the times of the filer's files.
        self._sweeping = SWEEP_CHORES
        idle = self._unfinished.idle(now.monotonic_ms - config.filer_unfinished_ms)

        def left(answer: dict[str, int] | Failed) -> None:
            if not isinstance(answer, Failed):
                self._unfinished.see(answer, now.monotonic_ms)
            self._sweeping -= 1

        def orphans(after: str) -> FindOrphans:
            return FindOrphans(self._known.owners(), gone_before_ms, after)

        def sweep_orphans(keys: list[str]) -> SweepPayloads:
            return SweepPayloads(self._known.owners(), keys, config.filer_sweep_ms)

        files = SweepPages(
            self._sightings,
            lambda after: FindUnnamed(before_ms, after),
            lambda paths: Sweep(paths, before_ms),
        )
        payloads = SweepPages(self._orphans, orphans, sweep_orphans)

        self._line.append(lambda: self._give(ForgetUnfinished(idle), left))
        self._line.append(lambda: self._give_page(files, ""))
        self._line.append(lambda: self._give_page(payloads, ""))

    def _give_page(self, pages: "SweepPages", after: str) -> None:
        """Find what is unnamed of a page, and sweep what the last sweep has seen too."""

        def answered(answer: Unnamed | Failed) -> None:
            following = None
            if isinstance(answer, Unnamed):
                following = answer.after
                if again := pages.sightings.take(answer.files):
                    self._sweeping += 1
                    job = pages.sweep(again)
                    self._line.append(lambda: self._give(job, self._swept))
            if following is None:  # Complete or failed: the next sweep starts over.
                pages.sightings.end()
                self._sweeping -= 1
                return
            assert following > after, "it comes further each time"
            self._line.append(lambda: self._give_page(pages, following))

        self._give(pages.find(after), answered)

    def _swept(self, _answer: object) -> None:
        self._sweeping -= 1

    def _give(self, job: Question[A], answered: Callable[[A | Failed], None]) -> None:
        def done(answer: A | Failed) -> None:
            self._is_in_hand = False
            self._say_problem(answer)
            answered(answer)
            self.invariants()
            self._next()

        assert not self._is_in_hand
        self._is_in_hand = True
        self._hands.do(job, done)

    def _next(self) -> None:
        """Send the next chore, unless the worker has one.

        A chore that finds nothing to do leaves the turn to the next one. None calls this: a round
        may find that thousands of topics are gone.
        """
        if self._is_choosing:
            return  # A job was answered at once.
        self._is_choosing = True
        while not self._is_in_hand and (chore := self._take()) is not None:
            chore()
        self._is_choosing = False

    def _take(self) -> Callable[[], None] | None:
        """The next chore: from the line, and a step of compaction, by turns."""
        self._begin_pass()
        number = self._compacting
        self._has_compacted = number is not None and not (self._has_compacted and self._line)
        if number is not None and self._has_compacted:
            return lambda: self._give_compact(number)
        return self._line.popleft() if self._line else None

    def _begin_pass(self) -> None:
        """Choose the next partition to compact, unless one is or the next is still in line."""
        first = next(iter(self._to_compact), None)
        if self._compacting is None and first is not None and first not in self._in_line:
            del self._to_compact[first]
            self._compacting = first

    def invariants(self) -> None:
        """Check the invariants that hold between any two answers."""
        assert len(self._line) <= len(self._in_line) + self._sweeping
        # A page of segments or payloads is deleted while the next one is looked for.
        assert 0 <= self._sweeping <= SWEEP_CHORES + 2
        assert self._compacting not in self._in_line
        assert self._compacting not in self._to_compact
