"""How far partitions are sealed, and how much of them only the WAL has."""

from shm.kernels.base.words import (
    P_COMPACTED_END,
    P_DECIDED_END,
    P_HIGH_WATERMARK,
    P_LED_FROM,
    P_LOG_END,
    P_LOG_START,
    P_SEALED_END,
    P_UNSEALED_SINCE_MS,
)
from smq.log.files.checkpoint import PartitionCheckpoint
from smq.log.partitions import show
from smq.log.reading import ReadableLog
from smq.log.transactions import LogTransactions
from smq.model.segments import KnownEnds


class SealedEnds:
    """The sealed end, log start and unsealed bytes of each partition of a log.

    Below a partition's sealed end sealed segments hold its records, or retention has dropped them.
    Below its decided end they hold only what is decided; above, undecided segments hold batches as
    they were sent (smq.sealer.undecided).
    """

    def __init__(self, log: ReadableLog, transactions: LogTransactions) -> None:
        self._log, self._transactions = log, transactions

    def advance(self, number: int, end: int, now_ms: int, *, is_decided: bool = True) -> bool:
        """Sealed segments hold everything of a partition below `end`: what is decided, or all
        batches as they were sent. Returns whether more of it is visible than before. A tail has
        nothing beyond its end."""
        partitions = self._log.partitions
        row = partitions.table[partitions.slots[number]]
        if partitions.is_tail(number):
            end = min(end, int(row[P_LOG_END]))
        shows_more = end > int(row[P_HIGH_WATERMARK])
        if end > int(row[P_LOG_END]):  # A power loss took it from the WAL, but it is sealed.
            partitions.extend(number, end)
        elif shows_more:  # It was hidden since no sync has covered it.
            show(row, end)
        row[P_SEALED_END] = max(int(row[P_SEALED_END]), end)
        if is_decided:
            row[P_DECIDED_END] = max(int(row[P_DECIDED_END]), end)
        self._transactions.decided(number)
        self._forget_aborted(number, int(row[P_DECIDED_END]))
        self.count_unsealed(number, now_ms)
        return shows_more

    def raise_end(self, known: KnownEnds, now_ms: int) -> bool:
        """A partition ends below what the manifest has of it: go on behind that, or offsets would
        be given again. Returns whether it did."""
        partitions = self._log.partitions
        if known.end <= int(partitions.table[partitions.slots[known.number], P_LOG_END]):
            return False
        self.advance(known.number, max(known.sealed_end, known.log_start), now_ms)
        self.advance(known.number, known.undecided_end, now_ms, is_decided=False)
        self.set_log_start(known.number, known.log_start)
        return True

    def compact(self, number: int, end: int, now_ms: int) -> None:
        """Compaction may remove records of a partition below `end`, which are sealed: from now on
        only the segments tell. It never goes back, whatever comes late."""
        self.advance(number, end, now_ms)
        partitions = self._log.partitions
        row = partitions.table[partitions.slots[number]]
        row[P_COMPACTED_END] = max(int(row[P_COMPACTED_END]), end)

    def assume(self, number: int, offset: int) -> None:
        """The log begins at `offset`, and the checkpoint that knew more is lost: what is before it
        is sealed, and all that is decided may be compacted. Nothing follows for a partition that
        other logs have led: they may have what is before.

        What is not decided leaves the log only once the checkpoint that is left knows it: see
        smq.log.freeing.
        """
        partitions = self._log.partitions
        row = partitions.table[partitions.slots[number]]
        if row[P_LED_FROM]:
            return
        if offset > row[P_SEALED_END]:
            row[P_SEALED_END] = row[P_DECIDED_END] = offset
        row[P_COMPACTED_END] = row[P_DECIDED_END]
        self._transactions.decided(number)

    def set_log_start(self, number: int, offset: int) -> None:
        """Retention has dropped everything below `offset`, sealed or not."""
        partitions = self._log.partitions
        partitions.start_at(number, offset)
        row = partitions.table[partitions.slots[number]]
        for column in (P_SEALED_END, P_DECIDED_END):
            row[column] = max(int(row[column]), int(row[P_LOG_START]))
        self._transactions.decided(number)
        self._forget_aborted(number, int(row[P_DECIDED_END]))
        self.count_unsealed(number, int(row[P_UNSEALED_SINCE_MS]))

    def raise_bounds(self, state: PartitionCheckpoint, now_ms: int) -> None:
        """Take a checkpoint's bounds of a later moment than its position: the frames below them are
        read by now, for they tell what producers did."""
        self.compact(state.number, state.compacted_end, now_ms)
        self.advance(state.number, state.log_start, now_ms)
        self.set_log_start(state.number, state.log_start)

    def _forget_aborted(self, number: int, end: int) -> None:
        """Forget aborted transactions whose records have all left the WAL."""
        oldest = self._log.lookup.oldest_offset(number, self._log.partitions.slots[number])
        self._transactions.forget(number, end if oldest is None else min(end, oldest))

    def count_unsealed(self, number: int, since_ms: int) -> None:
        """Set how many bytes of a partition are not sealed, and since when."""
        log = self._log
        slot = log.partitions.slots[number]
        row, total = log.partitions.table[slot], 0
        if int(row[P_SEALED_END]) < int(row[P_LOG_END]):
            total = max(1, log.lookup.bytes_from(number, slot, int(row[P_SEALED_END])))
        log.partitions.set_unsealed(number, total, since_ms)
