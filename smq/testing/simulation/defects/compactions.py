"""Compacted ends that a restart does not know: the WAL shows again what is removed."""

from typing import cast

from smq.app.sealer.ports import ShardOverSocket
from smq.log.files.checkpoint import PartitionCheckpoint
from smq.log.partitions import Partitions
from smq.sealer.compact import Compaction
from smq.testing.simulation.defects.mutant import TOPICS, Change, Mutant

_restore = Partitions.restore
_step, _report = Compaction.step, ShardOverSocket.compacted

COMPACTIONS = TOPICS | {"die-amid-compaction"}


def _restore_all_else(self: Partitions, state: PartitionCheckpoint) -> int:
    """The compacted end lives in memory only."""
    known, state.compacted_end = state.compacted_end, 0
    slot = _restore(self, state)
    state.compacted_end = known
    return slot


def _report_later(self: ShardOverSocket, number: int, end: int) -> None:
    """Remember what to report."""
    vars(self)["unreported"] = number, end


def _step_then_report(self: Compaction) -> bool:
    """The shard learns last what is compacted."""
    has_more = _step(self)
    shard = cast("ShardOverSocket", self._ports.shard)
    if not has_more and (unreported := vars(shard).pop("unreported", None)) is not None:
        _report(shard, *unreported)
    return has_more


MUTANTS = (
    Mutant(
        "compacted-end-is-forgotten",
        "a restarted shard serves values from its log whose tombstones are gone",
        COMPACTIONS,
        (Change(Partitions, "restore", _restore_all_else),),
        seed=59,
    ),
    Mutant(
        "compaction-reports-last",
        "so does one that dies between a compaction's last line and its report",
        COMPACTIONS,
        (
            Change(ShardOverSocket, "compacted", _report_later),
            Change(Compaction, "step", _step_then_report),
        ),
        seed=59,
    ),
)
