"""Orders and ages that are taken from the wall clock."""

from collections.abc import Mapping

from smq.app.process.clock import wall_ms
from smq.coordinator.transactions.ids import TransactionalIds
from smq.coordinator.transactions.states import TransactionState
from smq.model.now import Now
from smq.store.rows import CommittedOffset, StoredTransaction
from smq.store.transactions import TransactionTables
from smq.testing.simulation.defects.mutant import CLOCKS, Change, Mutant

_put_offsets = TransactionTables.put_offsets
_save = TransactionalIds.save
_apply_offsets = TransactionTables.apply_offsets
_begun_ms: dict[tuple[str, int], int] = {}  # The wall time when a transaction began.


def _put_with_wall_time(
    self: TransactionTables,
    transactional_id: str,
    group_id: str,
    offsets: Mapping[int, CommittedOffset],
) -> None:
    as_set = {key: each._replace(commit_ms=wall_ms()) for key, each in offsets.items()}
    _put_offsets(self, transactional_id, group_id, as_set)


def _apply_newer_times(
    self: TransactionTables, transactional_id: str, count_max: int, *, lazy: bool = False
) -> int:
    """Offsets stay that were committed at a later time."""
    self._database.change(
        "DELETE FROM transaction_offsets WHERE transactional_id = ? AND commit_ms < "
        "(SELECT commit_ms FROM committed_offsets AS other WHERE "
        "other.group_id = transaction_offsets.group_id "
        "AND other.partition_number = transaction_offsets.partition_number)",
        (transactional_id,),
        lazy=lazy,
    )
    return _apply_offsets(self, transactional_id, count_max, lazy=lazy)


def _save_anew(
    self: TransactionalIds, txn: StoredTransaction, now: Now, *, lazy: bool = False
) -> None:
    """Each save computes the deadline anew: what is left counts from the wall time of the start."""
    _save(self, txn, now, lazy=lazy)
    begun = _begun_ms.setdefault((txn.transactional_id, txn.started_ms), now.wall_ms)
    if txn.state == TransactionState.ONGOING:
        left_ms = max(0, begun + txn.timeout_ms - now.wall_ms)
        self.deadlines.set(txn.transactional_id, now.monotonic_ms + left_ms)


MUTANTS = (
    Mutant(
        "offsets-go-by-their-times",
        "EndTxn says yes, and offsets that were committed by a clock ahead stay",
        CLOCKS,
        (
            Change(TransactionTables, "put_offsets", _put_with_wall_time),
            Change(TransactionTables, "apply_offsets", _apply_newer_times),
        ),
        seed=508,
    ),
    Mutant(
        "timeouts-count-from-wall-time",
        "a transaction one second old is aborted, or stays open for a day",
        CLOCKS,
        (Change(TransactionalIds, "save", _save_anew),),
        seed=533,
    ),
)
