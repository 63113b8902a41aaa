"""A transactional client: transactions over two topics, one after another.

    place       0               1               2
    partition   transactions-0  transactions-1  transactions-beside-0, of level `os`

An attempt writes a batch to each place, then commits or aborts. With a commit goes an offset of a
group of its own, in the first place. Unanswered requests are retried. A commit that is answered
with TRANSACTION_ABORTABLE is aborted. Any other refusal ends the attempt: the producer
reinitializes, which aborts the open transaction. `rules.py` has the rules; the topics are read with
`read_committed`.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from shm.kernels.base.words import BATCH_ATTRIBUTES_AT
from smq.model.errors import ErrorCode
from smq.testing.simulation.clients import MOVED, PAUSE_MS, Answered, Message, SimClient
from smq.testing.simulation.clock import MS
from smq.testing.simulation.environment import Environment
from smq.testing.simulation.ledger import Broken, Commits, Incarnation
from smq.testing.simulation.permits import TELLERS_RIGHT, Standing
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

TOPIC, BESIDE = "transactions", "transactions-beside"
PLACES = ((TOPIC, 0), (TOPIC, 1), (BESIDE, 0))
PARTITIONS = {TOPIC: 2, BESIDE: 1}
OF_OFFSETS = 0  # The place of the group's offsets.
INIT, PRODUCE, OFFSETS, END, FETCH = 4, 12, 5, 5, 12  # Versions.
TIMEOUT_MS = 5_000  # Shorter than a healed world's run: an open transaction may fill its log.
TRANSACTIONAL = 0x10
COMMITTED_ONLY, FETCH_BYTES = 1, 1 << 14
ABORTS_SHARE = 0.7  # Of attempts whose last record is refused.
UNDECIDED, COMMITTED, ABORTED = "undecided", "committed", "aborted"
# Errors of a busy or starting broker: retry the same request.
RETRIED = {
    *MOVED,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # It was just created, and is never deleted.
    ErrorCode.UNKNOWN_SERVER_ERROR,
}


class TransactionTopics:
    """The topics of transactions, once both certainly exist."""

    def __init__(self, world: Environment) -> None:
        found = {name: world.ledger.standing(name) for name in PARTITIONS}
        self._topics = {name: each for name, each in found.items() if each is not None}

    @property
    def are_there(self) -> bool:
        """Whether both exist."""
        return len(self._topics) == len(PARTITIONS)

    @property
    def all(self) -> list[Incarnation]:
        """The topics."""
        return list(self._topics.values())

    def of(self, place: int) -> tuple[Incarnation, int]:
        """The topic and the partition of a place."""
        name, partition = PLACES[place]
        return self._topics[name], partition

    def losses(self, places: Iterable[int], *, commits: bool) -> int:
        """How often a failure may have torn a transaction over these places: one that writes to a
        `disk` topic, or commits an offset of one, must be whole after any."""
        topics = {self.of(place)[0] for place in [*places, *([OF_OFFSETS] if commits else [])]}
        is_durable = any(each.level == "disk" for each in topics)
        return 0 if is_durable else sum(each.losses for each in topics)

    @property
    def all_losses(self) -> int:
        """How often any of the topics may have lost records."""
        return sum(each.losses for each in self.all)

    @property
    def are_damaged(self) -> bool:
        """Whether a disk has changed their content."""
        return any(each.is_damaged for each in self.all)


FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})


class Who(NamedTuple):
    """A producer's id and epoch."""

    id: int
    epoch: int


def transactional_batch(incarnation: Incarnation, value: bytes, who: Who, now_ms: int) -> bytes:
    """The first batch of a transaction in a partition: one record."""
    record = Record(0, now_ms, incarnation.key_of(value), value, ())
    data = bytearray(
        write_batch([record], producer_id=who.id, producer_epoch=who.epoch, base_sequence=0)
    )
    assert data[16] == MAGIC
    data[BATCH_ATTRIBUTES_AT + 1] |= TRANSACTIONAL
    data[17:21] = crc_of(data).to_bytes(4)
    return bytes(data)


@dataclass(eq=False)
class TransactionAttempt:
    """A transaction: its record in each place, and its outcome as far as known.

    losses       how often its topics had lost what it must not lose when it began
    all_losses   how often they had lost anything
    """

    values: dict[int, bytes]
    commits: bool
    losses: int
    all_losses: int
    began_ns: int
    fate: str = ABORTED
    offset: tuple[int, set[int]] | None = None  # With what it replaces, see Commits.
    written: set[int] = field(default_factory=set)
    rights: dict[int, Standing] = field(default_factory=dict)  # By place: when it was sent there.


class Transactor(SimClient):
    """One transactional id. `who`: its producer, once it is initialized."""

    def __init__(self, world: Environment, name: str, lane_numbers: Iterator[int]) -> None:
        super().__init__(world, name)
        self.attempts: list[TransactionAttempt] = []
        self.is_busy = False
        self._lane = next(lane_numbers)
        self._wanted: deque[tuple[int, bool]] = deque()
        self.who: Who | None = None
        self._losses = 0  # Of the topics, when the id was initialized.
        self._left_count = 0  # InitProducerIds without an answer: each may still raise the epoch.
        self.group = f"{name}-offsets"
        self._held_until_ns = 0

    def hold(self, ms: int) -> None:
        """End no transaction for so long."""
        self._held_until_ns = self.world.clock.now_ns + ms * MS

    def transact(self, mask: int, *, commits: bool) -> None:
        """Run one more transaction, over the partitions of a mask."""
        self._wanted.append((mask, commits))
        self._go_on()

    def _go_on(self) -> None:
        if self.is_busy or not self._wanted:
            return
        self.is_busy = True
        self._begin()

    def _begin(self) -> None:
        if not self._places.are_there:
            self.again(self._begin)
        elif self.who is not None:
            self._start()
        else:
            request = InitProducerIdRequest(
                transactional_id=self.name, transaction_timeout_ms=TIMEOUT_MS
            )
            self._ask("InitProducerId", INIT, request, self._begun)

    def _begun(self, answer: Message) -> None:
        code = None if answer is None else ErrorCode(answer.error_code)
        self._left_count += answer is None
        if code == ErrorCode.NONE:
            self.who = Who(answer.producer_id, answer.producer_epoch)
            self._losses = self._places.all_losses
            self.in_vain = 0
            self._start()
        elif code is None or code in RETRIED:
            self.again(self._begin)
        else:
            raise Broken(f"{self.name} cannot begin: {code.name}")

    @property
    def _places(self) -> TransactionTopics:
        return TransactionTopics(self.world)

    def _ask(self, name: str, version: int, request: Message, answered: Answered) -> None:
        """Ask any node; `answered` gets None without an answer."""
        connection = self.any_connection()
        if connection is None:
            self.again(lambda: answered(None))
        else:
            connection.ask(name, version, request, answered)

    # --- records ---------------------------------------------------------------------------------

    def _start(self) -> None:
        places = self._places
        mask, commits = self._wanted.popleft()
        chosen = [i for i in range(len(PLACES)) if mask >> i & 1] or [mask % len(PLACES)]
        number = len(self.attempts)
        values = {i: b"%d:%d:txn" % (self._lane, number * len(PLACES) + i) for i in chosen}
        losses, now_ns = (
            (places.losses(chosen, commits=commits), places.all_losses),
            self.world.clock.now_ns,
        )
        attempt = TransactionAttempt(values, commits, *losses, now_ns)
        self.attempts.append(attempt)
        for place, value in values.items():
            self.world.ledger.sent.setdefault(PLACES[place][0], set()).add(value)
        for place in chosen:
            self._write(attempt, place)

    def _write(self, attempt: TransactionAttempt, place: int) -> None:
        who = self.who
        if who is None or attempt is not self.attempts[-1]:
            return  # It was abandoned meanwhile.
        incarnation, partition = self._places.of(place)
        connection = self.connection(self.leader_of(incarnation, partition))
        if connection is None:
            self.again(lambda: self._write(attempt, place))
            return
        now_ms = self.world.clock.wall_ns() // 1_000_000
        data = transactional_batch(incarnation, attempt.values[place], who, now_ms)
        row = PartitionProduceData(index=partition, records=data)
        topics = [TopicProduceData(name=incarnation.topic.name, partition_data=[row])]
        request = ProduceRequest(
            transactional_id=self.name, acks=-1, timeout_ms=1000, topic_data=topics
        )
        attempt.rights[place] = self._right
        connection.ask(
            "Produce", PRODUCE, request, lambda answer: self._wrote(attempt, place, who, answer)
        )

    @property
    def _right(self) -> Standing:
        """What is sure of its right to write."""
        return self.world.permits.standing(TELLERS_RIGHT, self.world.quiet_ns)

    def _wrote(self, attempt: TransactionAttempt, place: int, who: Who, answer: Message) -> None:
        if who != self.who or attempt is not self.attempts[-1]:
            return
        code = None
        if answer is not None:
            code = ErrorCode(answer.responses[0].partition_responses[0].error_code)
        if code in {ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER}:
            attempt.written.add(place)
            self.in_vain = 0
            if attempt.written == attempt.values.keys():
                self._commit_offset(attempt) if attempt.commits else self._end(attempt)
        elif code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self._leave(attempt, place)
        elif code is None or code in RETRIED:
            self.look_again(*self._places.of(place))
            self.again(lambda: self._write(attempt, place))
        else:
            self._give_up(attempt, code)

    def _leave(self, attempt: TransactionAttempt, place: int) -> None:
        """Its right is gone: abort, which needs no right to topics, or leave that to others."""
        before, now = attempt.rights[place], self._right
        if before.is_allowed and before.begun == now.begun:
            raise Broken(f"{self.name} may not write, though it was allowed throughout")
        self.world.detail(lambda: f"{self.name} leaves attempt {len(self.attempts)}: it may not")
        if len(attempt.written) == len(attempt.values) - 1 and self.chance.random() < ABORTS_SHARE:
            attempt.commits = False
            self._end(attempt)
        else:
            self.who, self.is_busy = None, False
            self._go_on()

    def _commit_offset(self, attempt: TransactionAttempt) -> None:
        """Send the group's next offset with the transaction."""
        who = self.who
        assert who is not None
        if attempt.offset is None:
            attempt.offset = self._commits.ask()
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
                self.again(lambda: self._commit_offset(attempt))
            else:
                self._give_up(attempt, code)

        self._ask("TxnOffsetCommit", OFFSETS, request, answered)

    @property
    def _commits(self) -> Commits:
        incarnation, partition = self._places.of(OF_OFFSETS)
        key = self.group, incarnation, partition
        return self.world.ledger.commits.setdefault(key, Commits())

    # --- the end ---------------------------------------------------------------------------------

    def _end(self, attempt: TransactionAttempt) -> None:
        if (left_ns := self._held_until_ns - self.world.clock.now_ns) > 0:
            self.later(left_ns / MS, lambda: self._end(attempt))
            return
        assert self.who is not None
        attempt.fate = UNDECIDED if attempt.commits else ABORTED
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.who.id,
            producer_epoch=self.who.epoch,
            committed=attempt.commits,
        )
        self._ask("EndTxn", END, request, lambda answer: self._ended(attempt, answer))

    def _ended(self, attempt: TransactionAttempt, answer: Message) -> None:
        code = None if answer is None else ErrorCode(answer.error_code)
        if code == ErrorCode.NONE:
            attempt.fate = COMMITTED if attempt.commits else ABORTED
            if attempt.offset is not None:
                self._commits.acked(*attempt.offset)
            self.who = Who(answer.producer_id, answer.producer_epoch)
            self.is_busy = False
            self._go_on()
        elif code is None or code in RETRIED:
            self.again(lambda: self._end(attempt))
        elif code == ErrorCode.TRANSACTION_ABORTABLE and attempt.commits:
            self._check_lost(attempt, code)
            if attempt.offset is not None:
                self._commits.refused(attempt.offset[0])
            attempt.commits, attempt.offset = False, None
            self._end(attempt)
        else:
            self._give_up(attempt, code)

    def _give_up(self, attempt: TransactionAttempt, code: ErrorCode) -> None:
        """Reinitialize: this aborts the open transaction. A requested commit stays undecided.

        A power loss may take the newest epochs of an id that writes to no `disk` topic.
        """
        self.world.detail(lambda: f"{self.name} gives attempt {len(self.attempts)} up: {code.name}")
        self._check_lost(attempt, code)
        self.who, self.is_busy = None, False
        self._go_on()

    def _check_lost(self, attempt: TransactionAttempt, code: ErrorCode) -> None:
        if code in FENCED and self._left_count:
            self._left_count -= 1  # By its own request, which waited longer than it did itself.
            return
        lost = self._places.all_losses != min(self._losses, attempt.all_losses)
        lost |= self.world.clock.now_ns - attempt.began_ns >= TIMEOUT_MS * MS
        lost |= any(each.boot_is_unknown for each in self.world.host.faults)
        if not lost and not self._places.are_damaged:
            raise Broken(f"{self.name} is refused with {code.name}, although nothing may be lost")


class CommittedReader(SimClient):
    """Reads topics with `read_committed`: `found` is each place's records by offset, `ever` what it
    has seen at any time."""

    def __init__(self, world: Environment, name: str) -> None:
        super().__init__(world, name)
        self.found: dict[int, dict[int, bytes]] = {}
        self.ever: set[bytes] = set()
        self.unread: set[int] = set()

    @property
    def count(self) -> int:
        """The number of records that it has found."""
        return sum(map(len, self.found.values()))

    def read(self, incarnation: Incarnation) -> None:
        """Read each partition from its start to its last stable offset."""
        for place, (name, _) in enumerate(PLACES):
            if name == incarnation.topic.name:
                self.found[place] = {}
                self.unread.add(place)
                self._fetch(incarnation, place, 0)

    def _fetch(self, incarnation: Incarnation, place: int, offset: int) -> None:
        name, partition = PLACES[place]
        connection = self.connection(self.leader_of(incarnation, partition))
        if connection is None:
            self.look_again(incarnation, partition)
            self.later(PAUSE_MS, lambda: self._fetch(incarnation, place, offset))
            return
        asked = FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES
        )
        request = FetchRequest(
            max_wait_ms=0,
            max_bytes=FETCH_BYTES,
            isolation_level=COMMITTED_ONLY,
            topics=[FetchTopic(topic=name, partitions=[asked])],
        )

        def answered(answer: Message) -> None:
            row = None if answer is None else answer.responses[0].partitions[0]
            if row is None or row.error_code != ErrorCode.NONE:
                if incarnation.is_damaged and row is not None:
                    self.unread.discard(place)
                    return
                self.look_again(incarnation, partition)
                self.later(PAUSE_MS, lambda: self._fetch(incarnation, place, offset))
                return
            end = offset
            for at, value, end in committed(row):  # noqa: B007  (the last one's end)
                if value is not None and at >= offset:
                    self.found[place][at] = value
                    self.ever.add(value)
            if end > offset:
                self._fetch(incarnation, place, end)
            else:
                self.unread.discard(place)

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
