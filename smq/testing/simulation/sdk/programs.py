"""Programs that use SMQ's SDK over Kafka's protocol: its real code, with fibers as threads.

The programs check the SDK's promises from a caller's view: each record whose future has a result
exists (the ledger), a failure has a reason, a consumer gets each record of a partition once and in
order, and a group continues where it committed.
"""

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from smq.client.client import Client as SdkClient
from smq.client.consuming.batch.chunk import Record
from smq.client.consuming.consumer import Consumer
from smq.client.consuming.source.source import Partition
from smq.client.errors import BrokerUnavailable, Closed, NoSuchTopic
from smq.client.producing.delivery.futures import Future
from smq.client.producing.producer import Producer
from smq.client.reach import Reach
from smq.client.secure.security import PLAINTEXT, Security
from smq.model.errors import BrokerError, ErrorCode, PeerError
from smq.testing.simulation.clock import MS
from smq.testing.simulation.environment import Environment
from smq.testing.simulation.host import node_address
from smq.testing.simulation.ledger import Broken, Incarnation, Part
from smq.testing.simulation.people import Identity, password_of
from smq.testing.simulation.producer import ProducerLane
from smq.testing.simulation.sdk.fibers import Program

TIMEOUT_S = 5.0
DELIVERY_TIMEOUTS_S = (2.0, 10.0, 60.0)
POLL_S = 0.5
PAUSE_S = 0.05
PARCEL_OPEN_S_MAX = 0.5  # Records share their deadline with the first one of their parcel.
GROUP = "sdk-group"
COMMITS_SHARE = 0.5  # Of polls with records.
CAUGHT_UP_POLLS = 3  # Consecutive polls that must find nothing beyond the end.


class Expected(NamedTuple):
    """The next record of a partition while it is assigned and nothing is lost."""

    assigned: Partition
    losses: int
    offset: int


class ProgramClock:
    """The world's clock, with the SDK's interface."""

    def __init__(self, program: Program) -> None:
        self._program, self._clock = program, program.world.clock

    def monotonic_ns(self) -> int:
        """See Clock."""
        return self._clock.monotonic_ns()

    def monotonic_ms(self) -> int:
        """See Clock."""
        return self._clock.monotonic_ns() // MS

    def monotonic_s(self) -> float:
        """See Clock."""
        return self._clock.monotonic_ns() / 1e9

    def wall_ms(self) -> int:
        """See Clock."""
        return self._clock.wall_ns() // MS

    def sleep(self, seconds: float) -> None:
        """See Clock."""
        self._program.wait(lambda: False, seconds)


def login_of(identity: Identity) -> Security:
    """How somebody whose password stays logs in."""
    password = password_of(identity.name, 0)
    return Security(mechanism=identity.mechanism, user=identity.name, password=password)


class SdkProgram(Program):
    """A program whose main thread does one task after another."""

    def __init__(self, world: Environment, name: str) -> None:
        super().__init__(world, name)
        self._work: deque[Callable[[], None]] = deque()
        self._is_working = False
        self._since_ns = 0
        identity = world.identity_of(name)
        addresses = (node_address(node, identity) for node in range(1, world.host.log_count + 1))
        bootstrap = ",".join(f"{host}:{port}" for host, port in addresses)
        security = PLAINTEXT if identity is None else login_of(identity)
        reach = Reach(bootstrap, None, TIMEOUT_S, 1.0, ProgramClock(self), security=security)
        self.client = SdkClient(reach)
        self.spawn(self._main)

    def do(self, work: Callable[[], None]) -> None:
        """Queue a task for the main thread."""
        self._work.append(work)
        self.is_touched = True

    def _main(self) -> None:
        while not self.is_over:
            self.idle()
            if self._work and not self.is_over:
                work, self._is_working = self._work.popleft(), True
                self._since_ns = self.world.clock.now_ns
                work()
                self._is_working = False

    def is_waiting(self) -> bool:
        """Whether any task is unfinished."""
        return self._is_working or bool(self._work)

    def oldest_wait(self, now_ns: int) -> tuple[float, str]:
        """How long the main thread has been at its current task."""
        if not self._is_working:
            return 0.0, ""
        return (now_ns - self._since_ns) / MS, f"{self.name}'s main thread"

    def idle(self) -> None:
        """Wait for work."""
        self.wait(lambda: bool(self._work))

    def tell(self, what: str) -> None:
        """Note a detail."""
        self.world.detail(lambda: f"{self.name}: {what}")

    def finish(self) -> None:
        """The world is healed: no more events follow."""

    def pause(self) -> None:
        """Let some time pass."""
        self.wait(lambda: False, PAUSE_S)


class SimSdkProducer(SdkProgram):
    """Sends records one by one; callbacks check their outcomes."""

    def __init__(self, world: Environment, name: str, lane_numbers: Iterator[int]) -> None:
        super().__init__(world, name)
        self._lane_numbers = lane_numbers
        self._lanes: dict[tuple[Incarnation, int], ProducerLane] = {}
        self._delivery_timeout_s = self.chance.choice(DELIVERY_TIMEOUTS_S)
        self._linger_ms = self.chance.choice((0, 0, 5, 50))
        self._producer: Producer | None = None
        self.in_flight = 0

    def send(
        self, incarnation: Incarnation, partitions: list[int], records: int, size: int
    ) -> None:
        """Send records to each of these partitions."""
        for partition in partitions:
            key = incarnation, partition
            if key not in self._lanes:
                lane = ProducerLane(next(self._lane_numbers), incarnation, partition)
                self._lanes[key] = lane
            lane = self._lanes[key]
            first = lane.next_sequence
            lane.next_sequence += records
            values = [
                b"%d:%d:" % (lane.number, n) + b"." * size for n in range(first, first + records)
            ]
            self.world.ledger.sent.setdefault(incarnation.topic.name, set()).update(values)
            self.do(partial(self._send, lane, values))

    def is_waiting(self) -> bool:
        """Also while records have no result."""
        return super().is_waiting() or self.in_flight > 0

    def _send(self, lane: ProducerLane, values: list[bytes]) -> None:
        for value in values:
            losses, sent_ns = lane.incarnation.losses, self.world.clock.now_ns
            try:
                producer = self._open()
            except BrokerUnavailable:
                return  # Open the producer only while a broker answers.
            try:
                future = producer.send(
                    lane.incarnation.topic.name,
                    value,
                    key=lane.incarnation.key_of(value),
                    partition=lane.partition,
                )
            except (NoSuchTopic, BrokerUnavailable, ValueError) as error:
                self._refused(lane, value, error, losses, sent_ns)
                return  # Later records would precede it if it were resent.
            self.in_flight += 1
            future.add_done_callback(partial(self._done, lane, value, losses, sent_ns))

    def _open(self) -> Producer:
        if self._producer is None:
            self._producer = self.client.producer(
                linger_ms=self._linger_ms, delivery_timeout_s=self._delivery_timeout_s
            )
        return self._producer

    def close(self) -> None:
        """End all threads. The producer has no thread left to send the rest."""
        super().close()
        if self._producer is not None:
            self._producer._detach_after_fork()  # noqa: SLF001  (as where there is none, too)

    def _refused(
        self, lane: ProducerLane, value: bytes, error: Exception, losses: int, sent_ns: int
    ) -> None:
        """`send` raised: it did not accept the record."""
        topic = lane.incarnation.topic.name
        was_created_again = lane.incarnation is not self.world.ledger.first(topic)
        if isinstance(error, BrokerUnavailable):
            self._check_late(error, sent_ns, TIMEOUT_S)
        elif isinstance(error, ValueError) and was_created_again:
            pass  # The SDK still uses the previous topic's metadata, which had fewer partitions.
        elif not self._may_fail(lane, losses):
            raise Broken(f"{self.name}: `send` to {lane.where} raises {error!r}")
        self.tell(f"{value[:20]!r} is refused: {error}")

    def _done(
        self, lane: ProducerLane, value: bytes, losses: int, sent_ns: int, future: Future
    ) -> None:
        self.in_flight -= 1
        if self.is_over:
            return
        try:
            self._judge(lane, value, losses, sent_ns, future)
        except BaseException as reason:  # noqa: BLE001  (The SDK logs a callback's exceptions.)
            self.failure = self.failure or reason

    def _judge(
        self, lane: ProducerLane, value: bytes, losses: int, sent_ns: int, future: Future
    ) -> None:
        error = future.exception(0)
        self.tell(f"{value[:20]!r}: {error or future.result(0)}")
        if error is None:
            self.world.ledger.acks += 1
            offset = future.result(0).offset
            is_its = self.world.ledger.standing(lane.incarnation.topic.name) is lane.incarnation
            if offset >= 0 and is_its and losses == lane.incarnation.losses:
                self.world.acked(lane.incarnation, lane.partition, [value], offset)
        elif isinstance(error, BrokerUnavailable):
            self._check_late(error, sent_ns, self._delivery_timeout_s)
        elif not isinstance(error, BrokerError) or not self._may_fail(lane, losses):
            raise Broken(f"{self.name}: {lane.where} fails with {error!r}, and nothing was lost")

    def _check_late(self, error: Exception, sent_ns: int, seconds: float) -> None:
        """BrokerUnavailable must not come before the timeout."""
        waited_s = (self.world.clock.now_ns - sent_ns) / 1e9
        if waited_s < seconds - PARCEL_OPEN_S_MAX:
            raise Broken(f"{self.name} is told {error!r} after {waited_s:.3f} s of {seconds} s")

    def _may_fail(self, lane: ProducerLane, losses: int) -> bool:
        incarnation = lane.incarnation
        is_its = self.world.ledger.standing(incarnation.topic.name) is incarnation
        return not is_its or incarnation.losses != losses or self.world.ledger.is_damaged


class SimSdkConsumer(SdkProgram):
    """Reads topics, alone or in a group."""

    def __init__(self, world: Environment, name: str, topics: list[str], group: str | None) -> None:
        super().__init__(world, name)
        self._topics, self._group = topics, group
        self._consumer: Consumer | None = None
        self.next: dict[Part, Expected] = {}
        # At the end of the last poll: records received before may come in the next one.
        self._losses: dict[Incarnation, int] = {}

    def idle(self) -> None:
        """Wait for work. A member keeps polling, as it would hold up its group otherwise."""
        if self._group is None or self._consumer is None:
            super().idle()
        else:
            self._poll(self._consumer)

    @property
    def reads_alone(self) -> bool:
        """Whether it reads all partitions: it is open, and in no group."""
        return self._group is None and self._consumer is not None

    def read(self, polls: int) -> None:
        """Poll this often; in a group, commit now and then."""
        self.do(lambda: self._read(polls))

    def finish(self) -> None:
        """Read up to the ends, if it has read at all."""
        if self._consumer is not None:
            self.do(self._catch_up)

    def leave(self) -> None:
        """Close the consumer; the next read opens another one."""
        self.do(self._leave)

    def _open(self) -> Consumer | None:
        if self._consumer is None:
            standing = [name for name in self._topics if self.world.ledger.standing(name)]
            if not standing:
                return None
            try:
                self._consumer = self.client.consumer(standing, group=self._group, start="earliest")
            except (BrokerError, PeerError) as error:
                self.tell(f"cannot open a consumer: {error!r}")
            self.next.clear()
        return self._consumer

    def _leave(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close(commit=False)

    def _read(self, polls: int) -> None:
        for _ in range(polls):
            consumer = self._open()
            if consumer is None or self.is_over:
                self.pause()
            else:
                self._poll(consumer)

    def _poll(self, consumer: Consumer) -> bool:
        """Poll once; returns whether there were records."""
        try:
            with consumer.poll(POLL_S) as batch:
                records = list(batch)
                for record in records:
                    self._take(consumer, record)
            self._losses = {each: each.losses for each in self.world.ledger.all}
            if self._group and records and self.chance.random() < COMMITS_SHARE:
                self._commit(consumer)
            return bool(records)
        except (BrokerError, PeerError) as error:
            self._failed(error)
            self.pause()
            return False

    def _failed(self, error: Exception) -> None:
        self.tell(f"poll raises {error!r}")
        code = error.code if isinstance(error, BrokerError) else None
        is_excused = isinstance(error, NoSuchTopic | BrokerUnavailable | Closed)
        # The group waits for a member with a lost join until its session times out.
        is_excused |= code == ErrorCode.REBALANCE_IN_PROGRESS and self._group is not None
        if code == ErrorCode.INVALID_PARTITIONS:
            self._leave()  # A topic was created again with fewer partitions.
        elif not is_excused and not self.world.ledger.is_damaged:
            raise Broken(f"{self.name}: poll raises {error!r}")

    def _take(self, consumer: Consumer, record: Record) -> None:
        """Check that a record is the next one of its partition."""
        assigned = consumer._partition(record.topic, record.partition)  # noqa: SLF001  (whose topic)
        incarnation = self._incarnation(assigned)
        if incarnation is None:
            return
        place = incarnation, record.partition
        expected = self.next.get(place)
        if expected is None or expected.assigned is not assigned:
            self._check_start(place, record.offset)
        elif expected.losses == incarnation.losses and not self._follows(
            incarnation, expected.offset, record.offset
        ):
            raise Broken(
                f"{self.name}: {incarnation.where(record.partition)} gives offset {record.offset} "
                f"after {expected.offset - 1}"
            )
        # Records from before a loss may be delivered after it, and their successors may be gone.
        losses = self._losses.get(incarnation, 0)
        self.next[place] = Expected(assigned, losses, record.offset + 1)
        if self._losses.get(incarnation, 0) == incarnation.losses:
            value = bytes(record.value or b"")
            incarnation.claim(record.partition, record.offset, value, "what the SDK reads")

    @staticmethod
    def _follows(incarnation: Incarnation, expected: int, offset: int) -> bool:
        """Whether a record may come next: compaction leaves gaps."""
        return offset >= expected if incarnation.is_compacted else offset == expected

    def _incarnation(self, assigned: Partition) -> Incarnation | None:
        """The incarnation that a position refers to, if it is certain."""
        for each in self.world.ledger.all:
            if each.topic.id == assigned.topic_id:
                return None if each.is_dying or each.is_damaged else each
        return None

    def _check_start(self, place: Part, offset: int) -> None:
        """An assigned partition starts at the group's committed offset, else at 0."""
        incarnation, partition = place
        acked, asked = self.world.ledger.sdk_commits.get(place, (0, 0)) if self._group else (0, 0)
        is_first = incarnation is self.world.ledger.first(incarnation.topic.name)
        is_right = acked <= offset and (offset <= asked or incarnation.is_compacted)
        if is_first and not incarnation.losses and not is_right:
            raise Broken(
                f"{self.name} begins {incarnation.where(partition)} at {offset}; committed was "
                f"{acked}, and at most {asked}"
            )

    def _commit(self, consumer: Consumer) -> None:
        """Commit the positions. Acked ones must never be forgotten."""
        positions = {
            (incarnation, name.partition): consumer.position(*name)
            for name in consumer.assignment()
            if (incarnation := self._incarnation(consumer._partition(*name)))  # noqa: SLF001
        }
        kept = self.world.ledger.sdk_commits
        for place, offset in positions.items():
            acked, asked = kept.get(place, (0, 0))
            kept[place] = acked, max(asked, offset)
        try:
            consumer.commit()
        except (BrokerError, PeerError) as error:
            self.tell(f"commit raises {error!r}")
            return
        for place, offset in positions.items():
            acked, asked = kept[place]
            kept[place] = max(acked, offset), asked

    def _catch_up(self) -> None:
        quiet = 0
        if self._reads_what_is_gone():
            self._leave()
        while quiet < CAUGHT_UP_POLLS and not self.is_over:
            consumer = self._open()
            if consumer is None:
                return
            has_read = self._poll(consumer)
            quiet = 0 if has_read or self._is_behind() else quiet + 1

    def _reads_what_is_gone(self) -> bool:
        """Whether a topic that it was opened with was deleted."""
        topics = {topic for topic, _ in self._consumer.assignment()} if self._consumer else set()
        return any(self.world.ledger.standing(each) is None for each in topics)

    def _is_behind(self) -> bool:
        if self.world.ledger.is_damaged:
            return False  # It may be stuck at a record that cannot be read.
        try:
            return self._consumer is None or any(self._consumer.lag().values())
        except BrokerError:
            return True
