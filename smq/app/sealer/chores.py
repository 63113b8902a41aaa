"""Retention and sweeps, in small jobs: one is in the worker's hands at a time.

    due  ──▶  a line of chores  ──one──▶  worker "seal"
              ▲                             │
              └── a sweep's next page ──────┘

Whatever else the worker is to do waits for one of them at most: a seal that a full log wants is not
behind a sweep of all there is.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from smq.app.sealer.workers import Answer, Hand
from smq.model.config import Config
from smq.model.topic_configs import TopicSettings
from smq.sealer.payloads import Owner
from smq.sealer.plan import PartitionState, is_overdue
from smq.sealer.ports import Place

Job = dict[str, Any]

SWEEP_CHORES = 3  # Of unfinished writes, segments and payloads.


class Known(Protocol):
    """The catalog by partition number."""

    places: dict[int, tuple[Place, TopicSettings, int]]

    def owners(self) -> list[Owner]: ...


class Chores:
    """What is due, and what of it is being done. `states` is as the shards said it last."""

    def __init__(
        self,
        hands: Hand,
        config: Config,
        known: Known,
        states: Mapping[int, PartitionState],
        say_problem: Callable[[Answer], None],
    ) -> None:
        self._hands, self._config, self._known, self._states = hands, config, known, states
        self._say_problem = say_problem
        self._line: deque[Callable[[], None]] = deque()
        self._is_in_hand = False
        self._retaining = self._sweeping = 0  # Chores that are not done.
        self._retained_ms = self._swept_ms = 0

    def look(self, now_ms: int) -> None:
        """Have done what is due, unless the last time's is not done yet."""
        interval_ms = self._config.log_retention_check_interval_ms
        if not self._retaining and now_ms - self._retained_ms >= interval_ms:
            self._retained_ms = now_ms
            for number in self._states:
                self._retain(number, now_ms)
        if not self._sweeping and now_ms - self._swept_ms >= self._config.filer_sweep_ms:
            self._swept_ms = now_ms
            self._sweep(now_ms)
        self._next()

    def _retain(self, number: int, now_ms: int) -> None:
        state = self._states[number]
        job = self._partition_job(number)
        if job is None:
            return
        if is_overdue(state, self._known.places[number][1], now_ms):
            # The log wants the room now; seals may each wait for a filer that hangs.
            self._retaining += 1
            self._hands.do({"do": "drop_unsealed", **job}, self._dropped, is_urgent=True)
        self._retaining += 1
        self._line.append(lambda: self._give_retain(number))

    def _partition_job(self, number: int) -> Job | None:
        """What jobs of a partition are told; None: its topic is gone."""
        if number not in self._known.places:
            return None
        place, settings, node = self._known.places[number]
        unsealed_bytes = self._states[number].unsealed_bytes
        return {
            "node": node,
            "place": place,
            "settings": settings,
            "unsealed_bytes": unsealed_bytes,
        }

    def _dropped(self, answer: Answer) -> None:
        self._retaining -= 1
        self._say_problem(answer)

    def _give_retain(self, number: int) -> None:
        job = self._partition_job(number)
        if job is None or number not in self._states:
            self._retaining -= 1
            self._next()
            return

        def answered(answer: Answer) -> None:
            if answer.get("ok", {}).get("has_more"):
                self._line.append(lambda: self._give_retain(number))
            else:
                self._retaining -= 1

        self._give({"do": "retain", "shard_start": self._states[number].start, **job}, answered)

    def _sweep(self, now_ms: int) -> None:
        config = self._config
        before_ms = now_ms - config.filer_sweep_ms
        self._sweeping = SWEEP_CHORES
        self._line.append(
            lambda: self._give(
                {"do": "forget_unfinished", "before_ms": now_ms - config.filer_unfinished_ms},
                self._swept,
            )
        )
        for do in ("sweep", "sweep_payloads"):
            self._line.append(lambda do=do: self._give_page(do, before_ms, ""))  # type: ignore[misc]

    def _give_page(self, do: str, before_ms: int, after: str) -> None:
        """A page of a sweep; what it finds tells where the next one begins."""
        job: Job = {"do": do, "before_ms": before_ms, "after": after}
        if do == "sweep_payloads":
            job["owners"] = self._known.owners()

        def answered(answer: Answer) -> None:
            following = answer.get("ok", {}).get("after")
            if following is None:  # It is through, or fails: then the next sweep begins anew.
                self._sweeping -= 1
                return
            assert following > after, "it comes further each time"
            self._line.append(lambda: self._give_page(do, before_ms, following))

        self._give(job, answered)

    def _swept(self, _answer: Answer) -> None:
        self._sweeping -= 1

    def _give(self, job: Job, answered: Callable[[Answer], None]) -> None:
        def done(answer: Answer) -> None:
            self._is_in_hand = False
            self._say_problem(answer)
            answered(answer)
            self.invariants()
            self._next()

        assert not self._is_in_hand
        self._is_in_hand = True
        self._hands.do(job, done)

    def _next(self) -> None:
        """Hand over the next of the line, if none is in the worker's hands."""
        if self._line and not self._is_in_hand:
            self._line.popleft()()

    def invariants(self) -> None:
        """What holds between any two answers."""
        assert len(self._line) + self._is_in_hand <= self._retaining + self._sweeping
        assert 0 <= self._sweeping <= SWEEP_CHORES
        assert self._retaining >= 0
