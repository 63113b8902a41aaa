"""A program that copies records between topics with transactions, and may be killed at any moment.

`python -m smq.testing.transactions.copier BOOTSTRAP TASK`; TASK is the JSON of a `Task`. Its notes
record what it has tried. Each transaction takes some records, writes their copies to several
partitions and commits the group's offsets with them. Some are aborted, some are left open, so that
the next session with the same transactional id must fence and abort them.
"""

import json
import random
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

import smq
from smq.client.kafka.cluster import Cluster
from smq.client.kafka.group_admin import committed_offsets
from smq.model.errors import BrokerError
from smq.testing.transactions.history import Attempt, Copy, Fate, Item, Notes

SOURCE, MIDDLE, TARGET = "source", "middle", "target"
SPREAD = 2  # Partitions to which the items of one partition of the source are copied.
BATCH_MAX = 9
ABORTED_SHARE, LEFT_OPEN_SHARE = 0.15, 0.02
WAIT_SECONDS = 0.3
CALL_SECONDS_MAX = 60.0
OFFSETS_SECONDS_MAX, HUNG_SECONDS = 20.0, 40  # The second is beyond any answer to the first.
TIMEOUT_MS = 60_000


@dataclass(frozen=True)
class Task:
    """A program's work. `client` is "confluent" or "smq"."""

    program: int
    life: int
    client: str
    stage: int
    partition: int  # Of the source.
    notes: str
    seed: int

    @property
    def topics(self) -> tuple[str, str]:
        """From where to where it copies."""
        return ((SOURCE, MIDDLE), (MIDDLE, TARGET))[self.stage]

    @property
    def partitions(self) -> list[int]:
        """Those that it reads."""
        return [self.partition] if self.stage == 0 else spread(self.partition)

    @property
    def name(self) -> str:
        """Its transactional id, and its group."""
        return f"copier-{self.program}"


def spread(partition: int) -> list[int]:
    """Where the items of a partition of the source are in the other topics."""
    return [partition * SPREAD + i for i in range(SPREAD)]


class Given(NamedTuple):
    """A record that was read."""

    partition: int
    offset: int
    value: bytes


class CopierSession(Protocol):
    """One producer with a transactional id, and a reader positioned at its group's commits.

    Any exception of the two clients ends the session: the next attempt needs a new one.
    """

    def read(self, count: int) -> list[Given]:
        """Read at most `count` records."""

    def begin(self) -> None:
        """Begin a transaction."""

    def write(self, partition: int, value: bytes) -> None:
        """Write a copy within it."""

    def flush(self) -> None:
        """Wait until what was written is acknowledged."""

    def commit(self, offsets: Mapping[int, int]) -> Fate:
        """Commit it, with the offsets after the read records."""

    def abort(self) -> None:
        """Abort it, and read the same again."""

    def close(self) -> None:
        """End the session without ending an open transaction."""


@contextmanager
def dies_if_hung(seconds: int) -> Iterator[None]:
    """SIGALRM ends the process unless this is over in time.

    librdkafka's send_offsets_to_transaction ignores its timeout and may never return while its
    coordinator restarts (confluentinc/librdkafka, issues 5456 and 5511).
    """
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


class ConfluentSession:
    """librdkafka."""

    def __init__(self, bootstrap: str, task: Task) -> None:
        self._task, (self._from, self._to) = task, task.topics
        common = {"bootstrap.servers": bootstrap, "log_level": 0, "retry.backoff.ms": 20}
        common["reconnect.backoff.max.ms"] = 200
        producing = {"transactional.id": task.name, "transaction.timeout.ms": TIMEOUT_MS}
        self._producer = Producer({**common, **producing, "linger.ms": 1})
        self._producer.init_transactions(CALL_SECONDS_MAX)
        reading = {"group.id": task.name, "enable.auto.commit": False}
        reading |= {"isolation.level": "read_committed", "fetch.wait.max.ms": 50}
        self._consumer = Consumer({**common, **reading})
        asked = [TopicPartition(self._from, each) for each in task.partitions]
        known = self._consumer.committed(asked, CALL_SECONDS_MAX)
        self._next = {each.partition: max(0, each.offset) for each in known}
        self._assign()

    def _assign(self) -> None:
        places = [TopicPartition(self._from, *each) for each in self._next.items()]
        self._consumer.assign(places)

    def read(self, count: int) -> list[Given]:
        found = []
        for message in self._consumer.consume(count, WAIT_SECONDS):
            if message.error() is None:
                partition, offset = message.partition(), message.offset()
                value = message.value()
                assert partition is not None
                assert offset is not None
                assert isinstance(value, bytes)
                found.append(Given(partition, offset, value))
        return found

    def begin(self) -> None:
        self._producer.begin_transaction()

    def write(self, partition: int, value: bytes) -> None:
        self._producer.produce(self._to, value, partition=partition)

    def flush(self) -> None:
        self._producer.flush(CALL_SECONDS_MAX)

    def commit(self, offsets: Mapping[int, int]) -> Fate:
        places = [TopicPartition(self._from, *each) for each in offsets.items()]
        metadata = self._consumer.consumer_group_metadata()
        try:
            with dies_if_hung(HUNG_SECONDS):
                self._producer.send_offsets_to_transaction(places, metadata, OFFSETS_SECONDS_MAX)
            self._repeat_commit()
        except KafkaException as reason:
            error = reason.args[0]
            if not (isinstance(error, KafkaError) and error.txn_requires_abort()):
                raise
            self.abort()
            return Fate.ABORTED
        self._next |= offsets
        return Fate.COMMITTED

    def _repeat_commit(self) -> None:
        while True:
            try:
                self._producer.commit_transaction(CALL_SECONDS_MAX)
            except KafkaException as reason:
                if not reason.args[0].retriable():
                    raise
            else:
                return

    def abort(self) -> None:
        self._producer.abort_transaction(CALL_SECONDS_MAX)
        self._assign()

    def close(self) -> None:
        self._consumer.close()


class SmqSession:
    """SMQ's SDK."""

    def __init__(self, bootstrap: str, task: Task) -> None:
        self._task, (self._from, self._to) = task, task.topics
        self._client = smq.connect(bootstrap)
        self._producer = self._client.producer(transactional_id=task.name)
        with Cluster(bootstrap) as cluster:
            known = committed_offsets(cluster, task.name)
        self._next = {each: known.get((self._from, each), 0) for each in task.partitions}  # type: ignore[call-overload]
        self._consumer = self._client.consumer(isolation_level="read_committed", start="earliest")
        self._consumer.assign([(self._from, each) for each in task.partitions])
        self._seek(self._next)
        self._transaction = self._producer.transaction()

    def _seek(self, places: Mapping[int, int]) -> None:
        self._ahead = deque[Given]()  # Polled and not copied yet.
        for partition, offset in places.items():
            self._consumer.seek(self._from, partition, offset)

    def read(self, count: int) -> list[Given]:
        if not self._ahead:
            with self._consumer.poll(WAIT_SECONDS) as batch:
                self._ahead += [
                    Given(record.partition, record.offset, bytes(record.value or b""))
                    for record in batch
                ]
        return [self._ahead.popleft() for _ in range(min(count, len(self._ahead)))]

    def begin(self) -> None:
        self._transaction = self._producer.transaction()
        self._transaction.__enter__()

    def write(self, partition: int, value: bytes) -> None:
        self._producer.send(self._to, value, partition=partition)

    def flush(self) -> None:
        self._producer.flush(CALL_SECONDS_MAX)

    def commit(self, offsets: Mapping[int, int]) -> Fate:
        places = {(self._from, partition): offset for partition, offset in offsets.items()}
        self._transaction.commit_offsets(self._task.name, places)
        try:
            self._transaction.__exit__(None, None, None)
        except smq.TransactionAborted:
            self._seek(self._next)
            return Fate.ABORTED
        self._next |= offsets
        return Fate.COMMITTED

    def abort(self) -> None:
        reason = RuntimeError("as the workload wants it")
        self._transaction.__exit__(RuntimeError, reason, None)
        self._seek(self._next)

    def close(self) -> None:
        self._client.close()


SESSIONS: Mapping[str, Callable[[str, Task], CopierSession]] = {
    "confluent": ConfluentSession,
    "smq": SmqSession,
}
FAILURES = (KafkaException, BrokerError, smq.Closed, RuntimeError, OSError)


class Copier:
    """A life of the program."""

    def __init__(self, bootstrap: str, task: Task) -> None:
        self._bootstrap, self._task = bootstrap, task
        self._notes = Notes(Path(task.notes))
        self._chance = random.Random(f"{task.seed} {task.program} {task.life}")  # noqa: S311

    def run(self) -> None:
        """Copy until killed. Retries failures in another session."""
        while True:
            with suppress(*FAILURES):
                session = SESSIONS[self._task.client](self._bootstrap, self._task)
                try:
                    while self._transact(session):
                        pass
                finally:
                    session.close()

    def _transact(self, session: CopierSession) -> bool:
        """One transaction; returns whether the session may continue."""
        given = session.read(self._chance.randint(1, BATCH_MAX))
        if not given:
            return True
        copies = [self._item(each) for each in given]
        attempt = self._notes.begins([item for item, _ in copies])
        me = Attempt(self._task.program, self._task.life, attempt)
        session.begin()
        for item, origin in copies:
            partition = spread(item.partition)[item.number % SPREAD]
            session.write(partition, Copy(item, me, origin).packed())
        fate = self._chance.random()
        if fate < LEFT_OPEN_SHARE:
            session.flush()
            return False
        if fate < LEFT_OPEN_SHARE + ABORTED_SHARE:
            if self._chance.random() < 0.5:
                session.flush()
            session.abort()
            self._notes.ends(attempt, Fate.ABORTED)
            return True
        self._notes.commits(attempt)
        offsets = {each.partition: each.offset + 1 for each in given}
        self._notes.ends(attempt, session.commit(offsets))
        return True

    def _item(self, given: Given) -> tuple[Item, Attempt | None]:
        if self._task.stage == 0:
            return Item(given.partition, int.from_bytes(given.value)), None
        copy = Copy.unpacked(given.value)
        return copy.item, copy.attempt


def command(bootstrap: str, task: Task) -> list[str]:
    """The command that runs it."""
    module = "smq.testing.transactions.copier"
    return [sys.executable, "-m", module, bootstrap, json.dumps(asdict(task))]


if __name__ == "__main__":
    Copier(sys.argv[1], Task(**json.loads(sys.argv[2]))).run()
