"""What lies under an open transaction, sealed as it was sent, and taken for more than that."""

from gateway.fetch.cold import ColdPart
from smq.log.files.checkpoint import PartitionCheckpoint
from smq.log.partitions import Partitions
from smq.shard.loans import Loan
from smq.testing.simulation.defects.mutant import TOPICS, Change, Mutant
from smq.testing.simulation.transacting import TRANSACT
from smq.testing.simulation.undecided import UNDECIDED
from smq.wire.internal.reads import BatchFile

_give, _restore = vars(ColdPart)["_give"], Partitions.restore

OPEN_TRANSACTIONS = TOPICS | {TRANSACT, *UNDECIDED}


def _give_like_sealed(self: ColdPart, said: BatchFile, loan: Loan) -> None:
    """Sealed segments have no aborted records."""
    sealed = BatchFile(said.path, said.at, said.length, said.next_offset, said.is_cached)
    _give(self, sealed, loan)


def _restore_as_decided(self: Partitions, state: PartitionCheckpoint) -> int:
    """Whatever is sealed is decided."""
    known, state.decided_end = state.decided_end, state.sealed_end
    slot = _restore(self, state)
    state.decided_end = known
    return slot


MUTANTS = (
    Mutant(
        "undecided-tells-nothing-aborted",
        "readers of committed records get aborted ones from what is sealed as it was sent",
        OPEN_TRANSACTIONS,
        (Change(ColdPart, "_give", _give_like_sealed),),
        seed=17,
    ),
    Mutant(
        "decided-end-is-forgotten",
        "a restarted shard takes what is sealed as it was sent for decided, and nobody seals it",
        OPEN_TRANSACTIONS,
        (Change(Partitions, "restore", _restore_as_decided),),
        seed=17,
    ),
)
