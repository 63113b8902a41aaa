"""Transactions that a power loss tears."""

from shm.kernels.log.producers import R_EPOCH, producer_row
from smq.coordinator.transactions import ids
from smq.coordinator.transactions.decisions import completed
from smq.coordinator.transactions.states import DECIDED
from smq.model.errors import ErrorCode
from smq.model.now import Now
from smq.shard import markers
from smq.shard.led import Led
from smq.store.rows import StoredTransaction
from smq.testing.simulation.defects.mutant import Change, Mutant
from smq.wire.markers import Marker

TRANSACTIONS = frozenset({"transact", "checkpoint", "cut-power", "disk-is-slow"})


def _refusal_by_row(led: Led, marker: Marker, transaction_version: int) -> ErrorCode:
    """The producer's row decides, too: it may be newer than the transaction."""
    producers = led.log.producers.table
    row = producer_row(producers, led.number, marker.producer_id)
    opened = led.log.transactions.open_of(led.number, marker.producer_id)
    known = max(int(producers[row, R_EPOCH]) if row else -1, -1 if opened is None else opened.epoch)
    grows = opened is not None and transaction_version >= markers.EPOCHS_GROW_FROM
    if marker.producer_epoch < known + grows:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return ErrorCode.NONE


def _has_lost_nothing(_self: Led, _producer_id: int, _generation: int) -> bool:
    """No start has lost anything."""
    return False


def _without_markers(kept: StoredTransaction, now: Now) -> StoredTransaction:
    """A start takes what is decided for complete."""
    return completed(kept, now.monotonic_ms) if kept.state in DECIDED else kept


MUTANTS = (
    Mutant(
        "marker-judged-by-the-row",
        "a repeated marker is refused since the producer's row is newer, and counts as written",
        TRANSACTIONS,
        (Change(markers, "_refusal", _refusal_by_row),),
        seed=382,
    ),
    Mutant(
        "half-is-committed",
        "a commit of which a power loss has taken a part is decided",
        TRANSACTIONS,
        (Change(Led, "may_have_lost", _has_lost_nothing),),
        seed=5,
    ),
    Mutant(
        "answered-is-complete",
        "a coordinator that starts has no markers written of a commit that is answered",
        TRANSACTIONS | {"kill", "kill-all"},
        (Change(ids, "_since", _without_markers),),
        seed=1,
    ),
)
