"""Produce requests with a transactional id (KIP-98, KIP-890).

    parse ─▶ batches of transactions that are not open here ─▶ the coordinator is asked ─▶ append

The first batch of a transaction in a partition is appended once the coordinator has added the
partition to the transaction: otherwise it might stay open for ever. If the transaction's marker
arrives while the question is under way, the answer is about an ended transaction and the batch is
refused.
"""

from struct import Struct
from typing import NamedTuple

import numpy as np

from shm.kernels.base.wire import SIZE_BYTES
from shm.kernels.base.words import (
    ATTRIBUTE_TRANSACTIONAL,
    BATCH_ATTRIBUTES_AT,
    BATCH_HEADER_BYTES,
    BATCH_PRODUCER_ID_AT,
    P_LOG_END,
    WORD_GENERATION,
)
from shm.kernels.log.plan import (
    DONE,
    HEAD_PARSED,
    HEAD_ROW_COUNT,
    HEAD_START,
    ROW_AT,
    ROW_BASE_OFFSET,
    ROW_BYTES,
    ROW_CODE,
    ROW_ERROR,
    ROW_STATE,
    STOP_LOG_FULL,
    row_at,
)
from smq.log.files.checkpoint import Open
from smq.log.log import Log
from smq.model.errors import ErrorCode, PeerError
from smq.model.now import Now
from smq.shard.markers import abort_open
from smq.shard.produce import Produced, Producing
from smq.shard.shard import Led, Shard, Verifying
from smq.wire.codec import READ_ERRORS, read_compact_nullable_string, read_nullable_string
from smq.wire.headers import read_request_header
from smq.wire.internal.form import Failed
from smq.wire.internal.transactions import AddPartitions

ADDS_FROM = 12  # The version of Produce whose batches add their partitions themselves.
ABORTABLE_FROM = 11  # The one from which clients know TRANSACTION_ABORTABLE.
FLEXIBLE_FROM = 9
_PRODUCER = Struct(">qh")
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

    @property
    def is_open(self) -> bool:
        """Whether the log has its transaction open."""
        known = self.led.log.transactions.open_of(self.led.number, self.producer_id)
        return known is not None and known.epoch == self.epoch


class TransactionalProduce:
    """One request in progress. Between begin and append, other requests use the plan."""

    def __init__(self, shard: Shard, producing: Producing, data: np.ndarray) -> None:
        """`data` is the whole request, its size first. Raises PeerError."""
        self._shard, self._producing, self._data = shard, producing, data
        self.version, self._transactional_id = _named(data.data[SIZE_BYTES:])
        self._errors: dict[int, int] = {}  # By partition number; those that may be appended …
        self._guard = object()
        self._asked: AddPartitions | None = None

    @property
    def size(self) -> int:
        """Its bytes."""
        return len(self._data)

    def begin(self, now: Now) -> AddPartitions | None:
        """The questions that the coordinator must answer before an append. Raises PeerError."""
        self._parse(now)
        unknown = {row.led.number: row for row in self._rows() if not row.is_open}
        if not unknown:
            return None
        producers = {(row.producer_id, row.epoch) for row in unknown.values()}
        if len(producers) > 1:
            mixed = int(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
            self._errors = dict.fromkeys(unknown, mixed)
            return None
        [(producer_id, epoch)] = producers
        for number in unknown:
            self._shard.verifying[number, producer_id] = Verifying(self._guard, epoch)
        assert self._transactional_id is not None, "the kernel takes all others"
        numbers, only = sorted(unknown), self.version < ADDS_FROM
        generation = min(row.led.log.words[WORD_GENERATION] for row in unknown.values())
        self._data = self._data.copy()
        self._asked = AddPartitions(
            self._transactional_id, producer_id, epoch, numbers, generation, verify_only=only
        )
        return self._asked

    def take(self, said: list[int] | Failed) -> None:
        """The coordinator's answer."""
        asked = self._asked
        assert asked is not None
        failed = [int(ErrorCode.COORDINATOR_NOT_AVAILABLE)] * len(asked.numbers)
        codes = failed if isinstance(said, Failed) or len(said) != len(asked.numbers) else said
        for number, code in zip(asked.numbers, codes, strict=True):
            verifying = self._shard.verifying.get((number, asked.producer_id))
            if verifying is not None and verifying.request is self._guard:
                del self._shard.verifying[number, asked.producer_id]
                self._errors[number] = self._told(code)
            else:
                self._errors[number] = self._told(code or int(ErrorCode.INVALID_TXN_STATE))

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

    def append(self, now: Now) -> Produced:
        """Append the permitted batches, and answer."""
        self._parse(now)
        if self._abort_earlier(now):
            self._parse(now)
        plan, rows = self._producing.plan, self._rows()
        for row in rows:
            error = self._errors.get(row.led.number)
            if error is None and not row.is_open:  # It was, when the request came.
                error = int(ErrorCode.INVALID_TXN_STATE)
            if error:
                plan[row.at + ROW_ERROR], plan[row.at + ROW_STATE] = error, DONE
        ends = [int(row.led.log.partitions.table[row.led.slot, P_LOG_END]) for row in rows]

        def note(_log: Log | None = None) -> None:
            for row, end in zip(rows, ends, strict=True):
                self._note(row, end, now)

        self._producing.before_drain = note
        produced = self._producing.resume(self._data, self._shard.directory, STOP_LOG_FULL)
        self._producing.before_drain = None
        note()
        return produced

    def _abort_earlier(self, now: Now) -> bool:
        """Abort earlier transactions that are still open in this one's partitions; whether there
        were any. The coordinator has ended them, and a power loss took their markers. Where one
        stays open, the batch is refused: it must not join it."""
        earlier = [
            (row.led, opened)
            for row in self._rows()
            if self._errors.get(row.led.number) == ErrorCode.NONE
            and (opened := row.led.log.transactions.open_of(row.led.number, row.producer_id))
            and opened.epoch < row.epoch
        ]
        for led, opened in earlier:
            if not abort_open(self._shard, led, opened, now):
                self._errors[led.number] = ErrorCode.KAFKA_STORAGE_ERROR
        return bool(earlier)

    def _note(self, row: _Row, end: int, now: Now) -> None:
        """Note that the log has a batch of the transaction, which is open now. A duplicate opens
        nothing."""
        plan, number = self._producing.plan, row.led.number
        offset = int(plan[row.at + ROW_BASE_OFFSET])
        is_new = plan[row.at + ROW_STATE] == DONE and plan[row.at + ROW_ERROR] == 0
        if is_new and offset >= end:
            opened = Open(number, row.producer_id, row.epoch, offset, now.monotonic_ms)
            row.led.log.transactions.wrote(opened)

    def _parse(self, now: Now) -> None:
        self._producing.parse(self._data, self._shard.directory, now)
        if int(self._producing.plan[HEAD_START]) != len(self._data):
            parsed = int(self._producing.plan[HEAD_PARSED])
            raise PeerError(f"a transactional Produce is malformed (stop {parsed})")

    def _rows(self) -> list[_Row]:
        """The plan's transactional batches that are whole and for partitions led here."""
        plan, data, found = self._producing.plan, self._data, []
        for i in range(int(plan[HEAD_ROW_COUNT])):
            at = int(row_at(plan, i))
            start, size = int(plan[at + ROW_AT]), int(plan[at + ROW_BYTES])
            if plan[at + ROW_STATE] == DONE or size < BATCH_HEADER_BYTES:
                continue
            code = int(plan[at + ROW_CODE])
            led = self._shard.by_code(code)
            low_byte = int(data[start + BATCH_ATTRIBUTES_AT + 1])  # In a big-endian int16.
            if led is not None and low_byte & ATTRIBUTE_TRANSACTIONAL:
                producer = _PRODUCER.unpack_from(data.data, start + BATCH_PRODUCER_ID_AT)
                found.append(_Row(at, led, *producer))
        return found


def _named(request: memoryview) -> tuple[int, str | None]:
    """A Produce request's version and transactional id. Raises PeerError."""
    header, at = read_request_header(request, 0)
    compact = header.api_version >= FLEXIBLE_FROM
    read = read_compact_nullable_string if compact else read_nullable_string
    try:
        return header.api_version, read(request, at)[0]
    except READ_ERRORS as reason:
        raise PeerError(f"a transactional id that is cut: {reason}") from reason
