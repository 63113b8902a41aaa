"""Produce requests with a transactional id (KIP-98, KIP-890).

    step ─▶ batches of transactions that are not open here ─▶ the coordinator is asked ─▶ step

The first batch of a transaction in a partition is appended once the coordinator has added the
partition to the transaction: otherwise it might stay open for ever. If the transaction's marker
arrives while the question is under way, or before the request's last batch for that partition, the
answer was about an ended transaction and the batch is refused.

From Produce 12 on each transaction has an epoch, whose sequences begin with 0 in each partition. If
the first batch is refused, as while the former transaction ends, those behind it must not take its
place in a partition that does not know the producer.
"""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

import numpy as np

from shm.kernels.base import words
from shm.kernels.base.wire import SIZE_BYTES
from shm.kernels.log.plan import row_at
from shm.kernels.log.producers import producer_row
from smq.log.files.checkpoint import Open
from smq.log.log import Log
from smq.model.errors import ErrorCode, PeerError
from smq.model.now import Now
from smq.security.acls import Operation, ResourceType
from smq.security.rights import EVERYTHING, Rights
from smq.shard.answers import WORDS
from smq.shard.led import Led
from smq.shard.markers import abort_open
from smq.shard.plan_rows import rows_of
from smq.shard.produce import Producing
from smq.shard.refusals import has_transactional, refuse_all
from smq.shard.shard import Shard, Verifying
from smq.shard.unfinished import Unfinished
from smq.wire.codec import READ_ERRORS, read_compact_nullable_string, read_nullable_string
from smq.wire.generated.apis import PRODUCE
from smq.wire.headers import read_request_header
from smq.wire.internal.form import Failed
from smq.wire.internal.transactions import AddPartitions

ADDS_FROM = 12  # The version of Produce whose batches add their partitions themselves.
ABORTABLE_FROM = 11  # The one from which clients know TRANSACTION_ABORTABLE.
FLEXIBLE_FROM = 9
STEP_ROWS = 256  # Python looks at each: a step takes some milliseconds.
_PRODUCER = Struct(">qhi")
_ASK_AGAIN = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


class _Row(NamedTuple):
    """A batch of the plan; `at` is the row's place there."""

    at: int
    led: Led
    producer_id: int
    epoch: int
    sequence: int

    @property
    def is_open(self) -> bool:
        """Whether the log has its transaction open."""
        known = self.led.log.transactions.open_of(self.led.number, self.producer_id)
        return known is not None and known.epoch == self.epoch


class TransactionalProduce(Unfinished):
    """One request in progress. step() may also return a question to the coordinator: take() its
    answer, then step. Between steps, other requests use the plan."""

    def __init__(
        self,
        shard: Shard,
        producing: Producing,
        data: np.ndarray,
        throttle_ms: int = 0,
        rights: Rights = EVERYTHING,
    ) -> None:
        """`data` is the whole request, its size first. Raises PeerError."""
        super().__init__(shard, producing, data, throttle_ms=throttle_ms, rights=rights)
        self.version, self._transactional_id = _named(data.data[SIZE_BYTES:])
        self._errors: dict[int, int] = {}  # By partition number; those that may be appended …
        self._guard = object()  # … are also in `verifying` with this, until their marker arrives.
        self._guarded: set[tuple[int, int]] = set()
        self._asked: AddPartitions | None = None
        self._is_too_early = False  # The question has waited: the next one would wait as long.

    def drop(self) -> None:
        """See Unfinished."""
        super().drop()
        for key in self._guarded:
            verifying = self._shard.verifying.get(key)
            if verifying is not None and verifying.request is self._guard:
                del self._shard.verifying[key]
        self._guarded.clear()

    # --- asking ----------------------------------------------------------------------------------

    def _question(self, rows: Sequence[_Row]) -> AddPartitions | None:
        """What the coordinator must answer before these batches are appended.

        It is not asked for a log that has failed: no record comes there. Nor for one whose start
        has not written yet what it knows of losses: the next one takes it for a loss.
        """
        failed = {
            row.led.number
            for row in rows
            if row.led.log.failed is not None or not row.led.log.losses.is_saved
        }
        self._errors |= dict.fromkeys(failed, int(ErrorCode.KAFKA_STORAGE_ERROR))
        unknown = {
            row.led.number: row
            for row in rows
            if not row.is_open and row.led.number not in self._errors
        }
        if self._is_too_early:
            self._errors |= dict.fromkeys(unknown, self._told(ErrorCode.CONCURRENT_TRANSACTIONS))
            return None
        if not unknown:
            return None
        producers = {(row.producer_id, row.epoch) for row in unknown.values()}
        if len(producers) > 1:
            mixed = int(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
            self._errors |= dict.fromkeys(unknown, mixed)
            return None
        [(producer_id, epoch)] = producers
        for number in unknown:
            self._verify(number, producer_id, epoch)
        assert self._transactional_id is not None, "the kernel takes all others"
        numbers, only = sorted(unknown), self.version < ADDS_FROM
        generation = min(row.led.log.words[words.WORD_GENERATION] for row in unknown.values())
        self._asked = AddPartitions(
            self._transactional_id, producer_id, epoch, numbers, generation, verify_only=only
        )
        return self._asked

    def take(self, said: list[int] | Failed) -> None:
        """The coordinator's answer."""
        asked, self._asked = self._asked, None
        assert asked is not None
        failed = [int(ErrorCode.COORDINATOR_NOT_AVAILABLE)] * len(asked.numbers)
        codes = failed if isinstance(said, Failed) or len(said) != len(asked.numbers) else said
        self._is_too_early = ErrorCode.CONCURRENT_TRANSACTIONS in codes
        for number, code in zip(asked.numbers, codes, strict=True):
            self._errors[number] = self._told(code)

    def _verify(self, number: int, producer_id: int, epoch: int) -> None:
        """Be told by `verifying` when a marker arrives."""
        self._shard.verifying[number, producer_id] = Verifying(self._guard, epoch)
        self._guarded.add((number, producer_id))

    def _is_guarded(self, row: _Row) -> bool:
        """Whether no marker has come since the coordinator was asked about a batch's partition."""
        verifying = self._shard.verifying.get((row.led.number, row.producer_id))
        return verifying is not None and verifying.request is self._guard

    def _told(self, code: int) -> int:
        """The coordinator's error translated for the client, as Kafka does."""
        if code == ErrorCode.PRODUCER_FENCED:
            return int(ErrorCode.INVALID_PRODUCER_EPOCH)
        if code == ErrorCode.TRANSACTION_ABORTABLE and self.version < ABORTABLE_FROM:
            return int(ErrorCode.INVALID_TXN_STATE)
        is_early = code == ErrorCode.CONCURRENT_TRANSACTIONS and self.version < ADDS_FROM
        if code in _ASK_AGAIN or is_early:
            return int(ErrorCode.NOT_ENOUGH_REPLICAS)
        return code

    def _refuse(self, rights: Rights) -> bool:
        """See Unfinished. As in Kafka the id matters to a request with a transaction's batch."""
        name, plan = self._transactional_id, self._producing.plan
        rights.api = PRODUCE.name
        if (
            name is None
            or not has_transactional(plan, self._data)
            or rights.asks(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name)
        ):
            return super()._refuse(rights)
        refuse_all(plan)
        return True

    # --- appending -------------------------------------------------------------------------------

    def _append(self, now: Now) -> AddPartitions | bool:
        """See Unfinished."""
        rows, upto = self._rows()
        question = self._question(rows)
        if question is not None:
            return question
        if self._abort_earlier(rows, now) and not self._read(now):
            return False
        plan, firsts = self._producing.plan, {row.led.number: row for row in reversed(rows)}
        for row in rows:
            error = self._errors.get(row.led.number, 0)
            if not error and not row.is_open and not self._is_guarded(row):
                error = int(ErrorCode.INVALID_TXN_STATE)  # Its marker has come.
            if not error and row is firsts[row.led.number] and self._lacks_first(row):
                error = int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
            if error:
                plan[row.at + words.ROW_ERROR], plan[row.at + words.ROW_STATE] = error, words.DONE
            if error in WORDS:
                self._refused[(row.at - int(row_at(plan, 0))) // words.ROW_WORDS] = ()
        count, plan[words.HEAD_ROW_COUNT] = int(plan[words.HEAD_ROW_COUNT]), upto
        is_done = self._append_noted(rows, now)
        plan[words.HEAD_ROW_COUNT] = count
        return is_done and upto == count

    def _lacks_first(self, row: _Row) -> bool:
        """Whether a transaction begins here, and not with its first batch."""
        if self.version < ADDS_FROM or row.sequence == 0 or row.is_open:
            return False
        return not producer_row(row.led.log.producers.table, row.led.number, row.producer_id)

    def _append_noted(self, rows: Sequence[_Row], now: Now) -> bool:
        """Append, and note which transactions are open before a reader may see their batches."""
        ends = [int(row.led.log.partitions.table[row.led.slot, words.P_LOG_END]) for row in rows]

        def note(_log: Log | None = None) -> None:
            for row, end in zip(rows, ends, strict=True):
                self._note(row, end, now)

        self._producing.before_drain = note
        is_done = super()._append(now)
        self._producing.before_drain = None
        note()
        assert isinstance(is_done, bool)
        return is_done

    def _abort_earlier(self, rows: Sequence[_Row], now: Now) -> bool:
        """Abort earlier transactions that are still open in this one's partitions; whether there
        were any. The coordinator has ended them, and a power loss took their markers. Where one
        stays open, the batch is refused: it must not join it."""
        earlier = [
            (row, opened)
            for row in rows
            if self._errors.get(row.led.number) == ErrorCode.NONE
            and (opened := row.led.log.transactions.open_of(row.led.number, row.producer_id))
            and opened.epoch < row.epoch
        ]
        for row, opened in earlier:
            is_guarded = self._is_guarded(row)
            if not abort_open(self._shard, row.led, opened, now):
                self._errors[row.led.number] = ErrorCode.KAFKA_STORAGE_ERROR
            elif is_guarded:  # That was another transaction's marker.
                self._verify(row.led.number, row.producer_id, row.epoch)
        return bool(earlier)

    def _note(self, row: _Row, end: int, now: Now) -> None:
        """Note that the log has a batch of the transaction, which is open now. A duplicate opens
        nothing."""
        plan, number = self._producing.plan, row.led.number
        offset = int(plan[row.at + words.ROW_BASE_OFFSET])
        is_new = (
            plan[row.at + words.ROW_STATE] == words.DONE and plan[row.at + words.ROW_ERROR] == 0
        )
        if is_new and offset >= end:
            opened = Open(number, row.producer_id, row.epoch, offset, now.monotonic_ms)
            row.led.log.transactions.wrote(opened)

    def _rows(self) -> tuple[list[_Row], int]:
        """The next transactional batches of the plan that are whole, to be appended, and for
        partitions led here, and the number of the row behind them: a step's worth."""
        plan, found = self._producing.plan, list[_Row]()
        rows = rows_of(plan)
        waiting = (rows[:, words.ROW_STATE] != words.DONE) & (
            rows[:, words.ROW_BYTES] >= words.BATCH_HEADER_BYTES
        )
        numbers = np.flatnonzero(waiting).tolist()
        for number in numbers[:STEP_ROWS]:
            row = self._row(int(row_at(plan, number)))
            if row is not None:
                found.append(row)
        return found, numbers[STEP_ROWS] if len(numbers) > STEP_ROWS else len(rows)

    def _row(self, at: int) -> _Row | None:
        plan, data = self._producing.plan, self._data
        start = int(plan[at + words.ROW_AT])
        led = self._shard.by_code(int(plan[at + words.ROW_CODE]))
        low_byte = int(data[start + words.BATCH_ATTRIBUTES_AT + 1])  # In a big-endian int16.
        if led is None or not low_byte & words.ATTRIBUTE_TRANSACTIONAL:
            return None
        return _Row(at, led, *_PRODUCER.unpack_from(data.data, start + words.BATCH_PRODUCER_ID_AT))


def _named(request: memoryview) -> tuple[int, str | None]:
    """A Produce request's version and transactional id. Raises PeerError."""
    header, at = read_request_header(request, 0)
    compact = header.api_version >= FLEXIBLE_FROM
    read = read_compact_nullable_string if compact else read_nullable_string
    try:
        return header.api_version, read(request, at)[0]
    except READ_ERRORS as reason:
        raise PeerError(f"a transactional id that is cut: {reason}") from reason
