"""The states of a transactional id, as Kafka names them, and which may follow which.

    Empty           the producer has nothing open
    Ongoing         partitions or groups belong to its transaction
    PrepareCommit   the decision is stored; orders to shards are repeated until each has answered
    PrepareAbort
    CompleteCommit  every shard has written its marker
    CompleteAbort
    Dead            expired: forgotten

Kafka's PrepareEpochFence is the step from Ongoing to PrepareAbort while it is being written. Here
one commit of the store takes that step.
"""

from collections.abc import Mapping
from enum import StrEnum


class TransactionState(StrEnum):
    """A state; its value is the name on the wire and in the store."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"


S = TransactionState

# Between transactions: a producer begins again, opens one, or aborts without having opened any
# (KIP-890: the abort bumps its epoch).
_AT_REST = frozenset({S.EMPTY, S.ONGOING, S.PREPARE_ABORT, S.DEAD})

NEXT: Mapping[str, frozenset[TransactionState]] = {
    S.EMPTY: _AT_REST,
    S.ONGOING: frozenset({S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT}),
    S.PREPARE_COMMIT: frozenset({S.COMPLETE_COMMIT}),
    S.PREPARE_ABORT: frozenset({S.COMPLETE_ABORT}),
    S.COMPLETE_COMMIT: _AT_REST,
    S.COMPLETE_ABORT: _AT_REST,
    S.DEAD: frozenset(),
}

DECIDED = frozenset({S.PREPARE_COMMIT, S.PREPARE_ABORT})
"""The decision is stored, and not yet written everywhere."""
COMPLETE = frozenset({S.COMPLETE_COMMIT, S.COMPLETE_ABORT})
