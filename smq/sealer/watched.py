"""The sealer's view of a shard's partitions, updated by answers that carry only changes.

The shard's side is smq.shard.changes. A report may take several answers; what is due is decided
after the last one. No IO.
"""

from smq.sealer.plan import ShardState
from smq.wire.internal.messages import Partitions, PartitionState, ShardFacts


class Watched:
    """The partitions of one shard; `states` has those of all shards, by partition number.

    Invariant: `unsealed` are those of its partitions that have something to seal.
    """

    def __init__(self, states: dict[int, PartitionState]) -> None:
        self._states = states
        self._numbers: set[int] = set()
        self._missing: set[int] = set()  # During a full report: partitions not yet reported.
        self._unsealed: set[int] = set()
        self._before: dict[int, PartitionState] = {}
        self._life = self._version = 0

    def invariants(self) -> None:
        """Raise AssertionError if the class's invariant does not hold."""
        mine = [self._states[number] for number in self._numbers]
        assert self._unsealed == {s.number for s in mine if _has_unsealed(s)}
        assert self._missing <= self._numbers

    def question(self) -> Partitions:
        """The question that asks for changes."""
        return Partitions(self._life, self._version)

    def take(self, facts: ShardFacts) -> bool:
        """Apply an answer to the question; False: ask again for the rest."""
        if facts.since == 0:
            self._missing = set(self._numbers)
        for number in facts.gone:
            self._missing.discard(number)
            self._forget(number)
        for state in facts.partitions:
            self._learn(state)
        self._life, self._version = facts.life, facts.version
        if not facts.more:
            for number in self._missing:
                self._forget(number)
            self._missing = set()
        return not facts.more

    def _learn(self, state: PartitionState) -> None:
        number = state.number
        if number in self._numbers:
            self._before.setdefault(number, self._states[number])
        self._states[number] = state
        self._numbers.add(number)
        self._missing.discard(number)
        if _has_unsealed(state):
            self._unsealed.add(number)
        else:
            self._unsealed.discard(number)

    def _forget(self, number: int) -> None:
        if number in self._numbers:
            self._numbers.remove(number)
            self._unsealed.discard(number)
            self._before.pop(number, None)
            del self._states[number]

    def state(self, facts: ShardFacts) -> ShardState:
        """The partitions that may need sealing, with the rest of an answer."""
        partitions = tuple(self._states[number] for number in self._unsealed)
        return ShardState(partitions, facts.wal_bytes, facts.wal_bytes_max)

    def take_before(self) -> dict[int, PartitionState]:
        """The states at the last call of partitions that changed since."""
        before, self._before = self._before, {}
        return before


def _has_unsealed(state: PartitionState) -> bool:
    """Whether something of a partition may be sealed, decided or not."""
    is_open = state.high_watermark > max(state.undecided_end, state.stable_end)
    return state.stable_end > state.sealed_end or is_open
