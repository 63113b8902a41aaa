"""The part of a Fetch's answer that is not in memory: mostly it has left the log, and the sealer
has it, in segments.

    batches     a range of the sealer's file
    a gap       no segment has a record up to E: the log's batches from E on. Where E has left the
                log meanwhile, the sealer is asked again; where nothing follows, a marker before E

    a producer  a batch of the WAL overlaps with more aborted transactions than an answer may list:
                it lists those of the batch's producer, whose id is read in the background

The batch that comes first has a record at the offset asked for or later. An answer without one
strands many clients: they ask for the same offset again.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from gateway.context import Ask, Later
from gateway.fetch.handle_search import Search
from gateway.fetch.in_log import (
    ABORTED_MAX,
    find_told,
    find_told_sealed,
    readable_part,
    told,
    told_of,
)
from shm.kernels.base.words import BATCH_HEADER_BYTES
from smq.log.aborted import AbortedIn
from smq.log.log import Log
from smq.log.lookup import FoundBatches
from smq.log.reading import DamagedFrame
from smq.model.errors import ErrorCode
from smq.model.segments import BatchLimits, SegmentReach
from smq.shard.led import Led
from smq.shard.loans import FileRange, LentBatches, Loan
from smq.shard.shard import Shard
from smq.wire.generated.fetch import AbortedTransaction, FetchResponse, PartitionData
from smq.wire.internal.form import Failed
from smq.wire.internal.reads import BatchFile, Cold, Inline
from smq.wire.markers import closing_marker

KNOWS_STORAGE_ERROR_FROM = 6


def storage_error(version: int) -> ErrorCode:
    """What says to a client of this version that it may ask again, as Kafka 4.3.1 maps it."""
    known = version >= KNOWS_STORAGE_ERROR_FROM
    return ErrorCode.KAFKA_STORAGE_ERROR if known else ErrorCode.NOT_LEADER_OR_FOLLOWER


class ColdPart(NamedTuple):
    """A partition of an answer whose records from `offset` on are asked of the sealer.

    `limit`: the answer ends before it. `must_give`: a batch is given whatever its size. `aborted`
    are the transactions to tell for undecided segments, as of the question: once they are decided,
    the log forgets them.
    """

    data: PartitionData
    led: Led
    offset: int
    limit: int
    bytes_max: int
    limits: BatchLimits
    must_give: bool
    failure: ErrorCode
    aborted: AbortedIn

    def question(self) -> Cold | Inline:
        """What to ask the sealer."""
        led, sizes = self.led, (self.limits, self.must_give)
        if led.delivers_inline:
            as_sent = self.data.aborted_transactions is None  # Else without aborted records.
            limit = self.limit if as_sent else min(self.limit, led.offsets().last_stable)
            how = *sizes, limit, as_sent
            return Inline(led.number, self.offset, self.bytes_max, led.epoch, *how)
        return Cold(led.number, self.offset, self.bytes_max, *sizes, self._reach)

    @property
    def _reach(self) -> SegmentReach:
        return SegmentReach(self.limit, self.aborted.end)

    def take(self, said: BatchFile | Failed, search: Search, loan: Loan) -> "Part | None":
        """Put the sealer's answer into the row; returns what to ask then."""
        if isinstance(said, Failed):
            self.data.error_code = self.failure
        elif said.length:
            self._give(said, loan)
        elif said.next_offset > self.offset:
            return self._pass(said.next_offset, search)
        return None

    def _give(self, said: BatchFile, loan: Loan) -> None:
        data, log = self.data, self.led.log
        Shard.count_sealed(log, said.length, is_cached=said.is_cached)
        try:
            records = FileRange(said.path, said.at, said.length, log.background)
            loan.hold(records)
            if said.is_undecided and data.aborted_transactions is not None:
                rows = self.aborted.within(self.offset, said.next_offset)
                is_few = len(rows) <= ABORTED_MAX  # Else it is one batch: see find_told_sealed().
                header = b"" if is_few else records.head(BATCH_HEADER_BYTES)
                data.aborted_transactions = told(rows) if is_few else told_of(rows, header)
            data.records = records
        except OSError:
            data.error_code = self.failure

    def _pass(self, end: int, search: Search) -> "Part | None":
        """No segment has a record before `end`: read on in the log."""
        led, data = self.led, self.data
        if led.number not in led.log.partitions.slots:  # Deleted meanwhile.
            data.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return None
        is_plain = data.aborted_transactions is None
        if end < self.limit:
            found, aborted, _, too_many = find_told(
                led, end, self.limit, self.bytes_max, None if is_plain else ABORTED_MAX, search
            )
            if found is None:
                count_max = None if is_plain else ABORTED_MAX
                of_sealed = find_told_sealed(led, end, self.limit, count_max)
                return self._replace(offset=end, aborted=of_sealed)
            if found.total_bytes > self.bytes_max and not self.must_give:
                return None
            if found.total_bytes:
                return self._lend(readable_part(led, found), aborted, too_many)
        last = min(end, self.limit) - 1
        data.records = closing_marker(last, led.log.partitions.epoch_at(led.number, last))
        return None

    def _lend(
        self,
        found: FoundBatches,
        aborted: list[AbortedTransaction] | None,
        too_many: np.ndarray | None,
    ) -> "Part | None":
        """Answer with what the log has; none: it cannot be read now."""
        data, log = self.data, self.led.log
        if not found.total_bytes:
            data.error_code = self.failure
            return None
        Shard.count_bytes_out(log, found.total_bytes)
        data.records = LentBatches(log, found.spans, found.total_bytes)
        data.aborted_transactions = aborted
        return None if too_many is None else Unread(data, log, found, too_many, self.failure)


class Unread(NamedTuple):
    """A row with a batch whose producer is to be read in the WAL.

    `too_many` are aborted transactions; its producer's are told. Where the batch is gone or
    damaged, its bytes are not sent either.
    """

    data: PartitionData
    log: Log
    batch: FoundBatches
    too_many: np.ndarray
    failure: ErrorCode

    def question(self) -> Later:
        """Load the batch: its header alone could not be checked."""
        return Later(self._load)

    def _load(self, done: Callable[[bytes | None], None]) -> None:
        """Give `done` its header; none: it cannot be read now, or is damaged. It is judged at once:
        other answers may take long, and the disk may be able to read it meanwhile."""
        run = self.log.run_of(self.batch.spans[:1])

        def loaded(data: np.ndarray) -> None:
            try:
                batch = self.log.batches_of(run, data)
            except DamagedFrame:
                done(None)
            else:
                done(bytes(batch[:BATCH_HEADER_BYTES]))

        self.log.load(run, loaded)

    def take(self, header: bytes | None, _search: Search, _loan: Loan) -> None:
        """Tell what the batch's producer has aborted."""
        if header is None:
            self.data.records, self.data.error_code = b"", self.failure
            self.data.aborted_transactions = None
        else:
            self.data.aborted_transactions = told_of(self.too_many, header)


Part = ColdPart | Unread


def with_cold(response: FetchResponse, cold: Sequence[Part], loan: Loan) -> FetchResponse | Ask:
    """The response, or Ask where some of it is not in memory."""
    if not cold:
        return response
    for topic in response.responses:
        for partition in topic.partitions:
            if isinstance(partition.records, (LentBatches, FileRange)):
                loan.hold(partition.records)  # For as long as the sealer takes.
    return Ask([each.question() for each in cold], partial(_with_answers, response, cold, loan))


def _with_answers(
    response: FetchResponse, cold: Sequence[Part], loan: Loan, answers: Sequence[Any]
) -> FetchResponse | Ask:
    """Put the answers into their partitions."""
    asked = zip(cold, answers, strict=True)
    search = Search()
    again = [more for part, said in asked if (more := part.take(said, search, loan))]
    return with_cold(response, again, loan)
