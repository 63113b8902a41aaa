"""A transactional client: transactions over one topic, one after another.

An attempt writes a batch to each partition, then commits or aborts. With a commit goes an offset
of a group of its own. Unanswered requests are
retried. A refusal ends the attempt: the producer reinitializes, which aborts the open transaction.
`rules.py` has the rules; the topic is read with `read_committed`.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from shm.kernels.base.words import BATCH_ATTRIBUTES_AT
from smq.model.errors import ErrorCode
from smq.testing.simulation.clients import PAUSE_MS, Answered, Client, Message
from smq.testing.simulation.clock import MS
from smq.testing.simulation.ledger import Broken, Commits, Incarnation
from smq.wire.generated.end_txn import EndTxnRequest
from smq.wire.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from smq.wire.generated.init_producer_id import InitProducerIdRequest
from smq.wire.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from smq.wire.generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from smq.wire.records import MAGIC, Record, crc_of, read_batches, write_batch

if TYPE_CHECKING:
    from itertools import count

    from smq.testing.simulation.world import World

TOPIC, PARTITIONS = "transactions", 3
INIT, PRODUCE, OFFSETS, END, FETCH = 4, 12, 5, 5, 12  # Versions.
TIMEOUT_MS = 5_000  # Shorter than a healed world's run: an open transaction may fill its log.
TRANSACTIONAL = 0x10
COMMITTED_ONLY, FETCH_BYTES = 1, 1 << 14
UNDECIDED, COMMITTED, ABORTED = "undecided", "committed", "aborted"
# Errors of a busy or starting broker: retry the same request.
RETRIED = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # It was just created, and is never deleted.
    ErrorCode.UNKNOWN_SERVER_ERROR,
}


class Who(NamedTuple):
    """A producer's id and epoch."""

    id: int
    epoch: int


@dataclass(eq=False)
class Attempt:
    """A transaction: its record in each partition, and its outcome as far as known.

    `losses`: the topic's count when it began.
    """

    values: dict[int, bytes]
    commits: bool
    losses: int
    began_ns: int
    fate: str = ABORTED
    offset: tuple[int, set[int]] | None = None  # With what it replaces, see Commits.
    written: set[int] = field(default_factory=set)


class Transactor(Client):
    """One transactional id."""

    def __init__(self, world: "World", name: str, lane_numbers: "count[int]") -> None:
        super().__init__(world, name)
        self.attempts: list[Attempt] = []
        self.is_busy = False
        self._lane = next(lane_numbers)
        self._wanted: deque[tuple[int, bool]] = deque()
        self._who: Who | None = None
        self._losses = 0  # Of the topic, when the id was initialized.
        self.group = f"{name}-offsets"

    def transact(self, mask: int, *, commits: bool) -> None:
        """Run one more transaction, over the partitions of a mask."""
        self._wanted.append((mask, commits))
        self._go_on()

    def _go_on(self) -> None:
        if self.is_busy or not self._wanted:
            return
        self.is_busy = True
        self._begin()

    def _again(self, action: Callable[[], None]) -> None:
        self.later(PAUSE_MS, action)

    def _begin(self) -> None:
        if self._incarnation is None:
            self._again(self._begin)
        elif self._who is not None:
            self._start()
        else:
            request = InitProducerIdRequest(
                transactional_id=self.name, transaction_timeout_ms=TIMEOUT_MS
            )
            self._ask("InitProducerId", INIT, request, self._begun)

    def _begun(self, answer: Message) -> None:
        incarnation = self._incarnation
        code = None if answer is None else ErrorCode(answer.error_code)
        if incarnation is None:
            self._again(self._begin)
        elif code == ErrorCode.NONE:
            self._who = Who(answer.producer_id, answer.producer_epoch)
            self._losses = incarnation.losses
            self._start()
        elif code is None or code in RETRIED:
            self._again(self._begin)
        else:
            raise Broken(f"{self.name} cannot begin: {code.name}")

    @property
    def _incarnation(self) -> Incarnation | None:
        return self.world.ledger.standing(TOPIC)

    def _ask(self, name: str, version: int, request: Message, answered: Answered) -> None:
        """Ask any node; `answered` gets None without an answer."""
        connection = self.any_connection()
        if connection is None:
            self._again(lambda: answered(None))
        else:
            connection.ask(name, version, request, answered)

    # --- records ---------------------------------------------------------------------------------

    def _start(self) -> None:
        incarnation = self._incarnation
        assert incarnation is not None
        mask, commits = self._wanted.popleft()
        chosen = [i for i in range(PARTITIONS) if mask >> i & 1] or [mask % PARTITIONS]
        number = len(self.attempts)
        values = {i: b"%d:%d:txn" % (self._lane, number * PARTITIONS + i) for i in chosen}
        attempt = Attempt(values, commits, incarnation.losses, self.world.clock.now_ns)
        self.attempts.append(attempt)
        self.world.ledger.sent.setdefault(TOPIC, set()).update(values.values())
        for partition in chosen:
            self._write(attempt, partition)

    def _write(self, attempt: Attempt, partition: int) -> None:
        incarnation, who = self._incarnation, self._who
        if incarnation is None or who is None or attempt is not self.attempts[-1]:
            return  # It was abandoned meanwhile.
        connection = self.connection(self.world.host.leader_of(incarnation.topic.logs[partition]))
        if connection is None:
            self._again(lambda: self._write(attempt, partition))
            return
        data = self._encoded(incarnation, attempt.values[partition], who)
        row = PartitionProduceData(index=partition, records=data)
        topics = [TopicProduceData(name=TOPIC, partition_data=[row])]
        request = ProduceRequest(
            transactional_id=self.name, acks=-1, timeout_ms=1000, topic_data=topics
        )
        connection.ask(
            "Produce", PRODUCE, request, lambda answer: self._wrote(attempt, partition, who, answer)
        )

    def _encoded(self, incarnation: Incarnation, value: bytes, who: Who) -> bytes:
        now_ms = self.world.clock.wall_ns() // 1_000_000
        record = Record(0, now_ms, incarnation.key_of(value), value, ())
        data = bytearray(
            write_batch([record], producer_id=who.id, producer_epoch=who.epoch, base_sequence=0)
        )
        assert data[16] == MAGIC
        data[BATCH_ATTRIBUTES_AT + 1] |= TRANSACTIONAL
        data[17:21] = crc_of(data).to_bytes(4)
        return bytes(data)

    def _wrote(self, attempt: Attempt, partition: int, who: Who, answer: Message) -> None:
        if who != self._who or attempt is not self.attempts[-1]:
            return
        code = None
        if answer is not None:
            code = ErrorCode(answer.responses[0].partition_responses[0].error_code)
        if code in {ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER}:
            attempt.written.add(partition)
            if attempt.written == attempt.values.keys():
                self._commit_offset(attempt) if attempt.commits else self._end(attempt)
        elif code is None or code in RETRIED:
            self._again(lambda: self._write(attempt, partition))
        else:
            self._give_up(attempt, code)

    def _commit_offset(self, attempt: Attempt) -> None:
        """Send the group's next offset with the transaction."""
        incarnation, who = self._incarnation, self._who
        assert incarnation is not None
        assert who is not None
        if attempt.offset is None:
            attempt.offset = self._commits_of(incarnation).ask()
        row = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=attempt.offset[0])
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=self.group,
            producer_id=who.id,
            producer_epoch=who.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[row])],
        )

        def answered(answer: Message) -> None:
            code = None
            if answer is not None:
                code = ErrorCode(answer.topics[0].partitions[0].error_code)
            if code == ErrorCode.NONE:
                self._end(attempt)
            elif code is None or code in RETRIED:
                self._again(lambda: self._commit_offset(attempt))
            else:
                self._give_up(attempt, code)

        self._ask("TxnOffsetCommit", OFFSETS, request, answered)

    def _commits_of(self, incarnation: Incarnation) -> Commits:
        return self.world.ledger.commits.setdefault((self.group, incarnation, 0), Commits())

    # --- the end ---------------------------------------------------------------------------------

    def _end(self, attempt: Attempt) -> None:
        assert self._who is not None
        attempt.fate = UNDECIDED if attempt.commits else ABORTED
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self._who.id,
            producer_epoch=self._who.epoch,
            committed=attempt.commits,
        )
        self._ask("EndTxn", END, request, lambda answer: self._ended(attempt, answer))

    def _ended(self, attempt: Attempt, answer: Message) -> None:
        code = None if answer is None else ErrorCode(answer.error_code)
        if code == ErrorCode.NONE:
            attempt.fate = COMMITTED if attempt.commits else ABORTED
            if attempt.offset is not None and self._incarnation is not None:
                self._commits_of(self._incarnation).acked(*attempt.offset)
            self._who = Who(answer.producer_id, answer.producer_epoch)
            self.is_busy = False
            self._go_on()
        elif code is None or code in RETRIED:
            self._again(lambda: self._end(attempt))
        else:
            self._give_up(attempt, code)

    def _give_up(self, attempt: Attempt, code: ErrorCode) -> None:
        """Reinitialize: this aborts the open transaction. A requested commit stays undecided.

        A power loss may take the newest epochs of an id that writes to no `disk` topic.
        """
        self.world.detail(lambda: f"{self.name} gives attempt {len(self.attempts)} up: {code.name}")
        incarnation = self._incarnation
        lost = incarnation is None or incarnation.losses != min(self._losses, attempt.losses)
        lost |= self.world.clock.now_ns - attempt.began_ns >= TIMEOUT_MS * MS
        if not lost and not incarnation.is_damaged:  # type: ignore[union-attr]
            raise Broken(f"{self.name} is refused with {code.name}, although nothing may be lost")
        self._who, self.is_busy = None, False
        self._go_on()


class CommittedReader(Client):
    """Reads a topic with `read_committed`: `found` is each partition's records by offset."""

    def __init__(self, world: "World", name: str) -> None:
        super().__init__(world, name)
        self.found: dict[int, dict[int, bytes]] = {}
        self.unread: set[int] = set()

    def read(self, incarnation: Incarnation) -> None:
        """Read each partition from its start to its last stable offset."""
        for partition in range(incarnation.topic.partition_count):
            self.found[partition] = {}
            self.unread.add(partition)
            self._fetch(incarnation, partition, 0)

    def _fetch(self, incarnation: Incarnation, partition: int, offset: int) -> None:
        node = self.world.host.leader_of(incarnation.topic.logs[partition])
        connection = self.connection(node)
        if connection is None:
            self.later(PAUSE_MS, lambda: self._fetch(incarnation, partition, offset))
            return
        asked = FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES
        )
        request = FetchRequest(
            max_wait_ms=0,
            max_bytes=FETCH_BYTES,
            isolation_level=COMMITTED_ONLY,
            topics=[FetchTopic(topic=TOPIC, partitions=[asked])],
        )

        def answered(answer: Message) -> None:
            row = None if answer is None else answer.responses[0].partitions[0]
            if row is None or row.error_code != ErrorCode.NONE:
                if incarnation.is_damaged and row is not None:
                    self.unread.discard(partition)
                    return
                self.later(PAUSE_MS, lambda: self._fetch(incarnation, partition, offset))
                return
            end = offset
            for at, value, end in committed(row):  # noqa: B007  (the last one's end)
                if value is not None and at >= offset:
                    self.found[partition][at] = value
            if end > offset:
                self._fetch(incarnation, partition, end)
            else:
                self.unread.discard(partition)

        connection.ask("Fetch", FETCH, request, answered)


def committed(row: Message) -> Iterator[tuple[int, bytes | None, int]]:
    """The offset, value (None: invisible), and batch end of each record of a fetched partition.

    An aborted transaction ends with its producer's next marker.
    """
    waiting = sorted(row.aborted_transactions or (), key=lambda each: each.first_offset)
    aborted: set[int] = set()
    for batch in read_batches(bytes(row.records or b"")):
        while waiting and waiting[0].first_offset <= batch.last_offset:
            aborted.add(waiting.pop(0).producer_id)
        if batch.is_control:
            aborted.discard(batch.producer_id)
        is_hidden = batch.is_control or (
            bool(batch.attributes & TRANSACTIONAL) and batch.producer_id in aborted
        )
        end = batch.last_offset + 1
        yield batch.base_offset, None, end  # Also of a batch that is only a gap.
        for record in () if is_hidden else batch.records():
            yield record.offset, record.value or b"", end
