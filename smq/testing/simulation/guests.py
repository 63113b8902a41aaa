"""Clients whose rights and passwords change while they write and read.

What they are told is compared with what the administrator was told: a request that was sent when
its right was surely gone is not served, one whose right was there all the time is not refused, and
a fetch that waits learns soon that its right is gone.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from smq.model.errors import ErrorCode
from smq.security.acls import Operation
from smq.testing.simulation.clients import MOVED, Message, SimClient
from smq.testing.simulation.consumer import BY_ID, FETCH_BYTES_MAX, records_of
from smq.testing.simulation.environment import LATE_MS, Environment
from smq.testing.simulation.ledger import Broken, Incarnation, Part, said
from smq.testing.simulation.people import Identity
from smq.testing.simulation.permits import SimRight, Standing
from smq.wire.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from smq.wire.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from smq.wire.records import Record, write_batch

PRODUCE = 9
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
UNTOLD = {  # What says nothing about rights.
    *MOVED,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.OFFSET_OUT_OF_RANGE,
}
OLD_SHARE = 0.2  # Of logins: with the password before.
RENEWS_SHARE = 0.6  # Of clients.
NO_SESSION, NEW_SESSION = -1, 0


class SimGuest(SimClient):
    """Somebody whose rights change."""

    def __init__(self, world: Environment, name: str, identity: Identity) -> None:
        super().__init__(world, name)
        self.identity = self._who = identity
        self.renews = self.chance.random() < RENEWS_SHARE

    @property
    def password(self) -> int:
        """See SimClient. Now and then it is the one before."""
        known = self.world.permits.passwords.get(self._who.name)
        if known is None:
            return 0
        newest = self.world.permits.newest[self._who.name]
        return max(0, newest - 1) if self.chance.random() < OLD_SHARE else newest

    def right(self, operation: Operation, topic: str) -> SimRight:
        """Its right to something."""
        return SimRight(self._who, operation, topic)

    def standing(self, right: SimRight) -> Standing:
        """What is sure of a right now."""
        return self.world.permits.standing(right, self.world.quiet_ns)

    def check(self, right: SimRight, before: Standing, code: ErrorCode, *, now: Standing) -> None:
        """Raises Broken if the answer is none that the right allows. `before`: when it was sent."""
        is_unchanged = before.begun == now.begun
        what = f"{self.name}: {right.operation.name} of {right.topic}"
        if code == REFUSED and before.is_allowed and is_unchanged:
            raise Broken(f"{what} is refused, though it was allowed throughout")
        if code == ErrorCode.NONE and before.is_refused and is_unchanged:
            raise Broken(f"{what} is served, though the right was taken before")


@dataclass(eq=False)
class Offer:
    """A record that a guest has sent, and what was sure of its right then. `code`: None without an
    answer."""

    value: bytes
    right: SimRight
    before: Standing
    code: ErrorCode | None = None


class GuestWriter(SimGuest):
    """Sends each record once, whatever comes of it."""

    def __init__(
        self, world: Environment, name: str, identity: Identity, lane_numbers: Iterator[int]
    ) -> None:
        super().__init__(world, name, identity)
        self._lane_numbers = lane_numbers
        self.offers: list[Offer] = []

    def write(self, incarnation: Incarnation, partition: int) -> None:
        """Send a record."""
        topic, world = incarnation.topic, self.world
        partition %= topic.partition_count
        connection = self.connection(self.leader_of(incarnation, partition))
        if connection is None:
            return
        value = b"%d:0:%s" % (next(self._lane_numbers), self.name.encode())
        world.ledger.offered(topic.name, [value], world.clock.now_ns)
        now_ms = world.clock.wall_ns() // 1_000_000
        data = write_batch([Record(0, now_ms, incarnation.key_of(value), value, ())])
        rows = [PartitionProduceData(index=partition, records=data)]
        request = ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name=topic.name, partition_data=rows)],
        )
        right, losses = self.right(Operation.WRITE, topic.name), incarnation.losses
        offer = Offer(value, right, self.standing(right))
        self.offers.append(offer)

        def answered(answer: Message) -> None:
            if answer is None:
                self.look_again(incarnation, partition)
                return
            row = answer.responses[0].partition_responses[0]
            offer.code = code = ErrorCode(row.error_code)
            if code in MOVED:
                self.look_again(incarnation, partition)
            self.check(right, offer.before, code, now=self.standing(right))
            if code == ErrorCode.NONE:
                world.ledger.acks += 1
                if losses == incarnation.losses:
                    world.acked(incarnation, partition, [value], row.base_offset)
            elif code not in {REFUSED, *UNTOLD}:
                raise Broken(f"{self.name} gets {code.name}")

        connection.ask("Produce", PRODUCE, request, answered)

    def refused(self) -> Iterator[bytes]:
        """The records that nobody may ever see."""
        for each in self.offers:
            is_never = each.before.is_refused
            if each.code == REFUSED or (
                is_never and self.standing(each.right).begun == each.before.begun
            ):
                yield each.value


@dataclass(eq=False)
class SimSession:
    """A fetch session with a node: its id, the epoch of its next request, and where it reads."""

    id: int = 0
    epoch: int = NEW_SESSION
    asked: dict[Part, int] = field(default_factory=dict)


class GuestReader(SimGuest):
    """Reads from its positions, one fetch of a node at a time: each for itself, or in sessions."""

    def __init__(self, world: Environment, name: str, identity: Identity) -> None:
        super().__init__(world, name, identity)
        self._positions: dict[Part, int] = {}
        self._sessions: dict[int, SimSession] = {}

    def read(self, incarnation: Incarnation, wait_ms: int, *, is_session: bool) -> None:
        """Fetch once from each node."""
        partitions = range(incarnation.topic.partition_count)
        nodes = {self.leader_of(incarnation, each) for each in partitions}
        for node in sorted(nodes):
            connection = self.connection(node)
            if connection is not None and connection.is_free:
                self._fetch(incarnation, node, wait_ms, is_session=is_session)

    def _fetch(
        self, incarnation: Incarnation, node: int, wait_ms: int, *, is_session: bool
    ) -> None:
        connection = self.connections[node]
        session = self._sessions.setdefault(node, SimSession()) if is_session else None
        asked = self._asked(incarnation, node, session)
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=FETCH_BYTES_MAX,
            session_id=session.id if session else 0,
            session_epoch=session.epoch if session else NO_SESSION,
            topics=[FetchTopic(topic_id=incarnation.topic.id, partitions=asked)] if asked else [],
        )
        right, losses = self.right(Operation.READ, incarnation.topic.name), incarnation.losses
        before, sent_ns = self.standing(right), self.world.clock.now_ns

        def answered(answer: Message) -> None:
            if answer is None:
                self._sessions.pop(node, None)
                return
            if session is not None:
                self._follow(session, node, answer)
            now = self.standing(right)
            self._check_time(right, sent_ns, wait_ms)
            for each in answer.responses:
                for row in each.partitions:
                    self.check(right, before, ErrorCode(row.error_code), now=now)
                    if losses == incarnation.losses:
                        self._take(incarnation, row, right)

        connection.ask("Fetch", BY_ID, request, answered, wait_ms)

    def _asked(
        self, incarnation: Incarnation, node: int, session: SimSession | None
    ) -> list[FetchPartition]:
        """The partitions that a node leads; in a session those that are new, or read on."""
        found = []
        for index in range(incarnation.topic.partition_count):
            place = incarnation, index
            position = self._positions.get(place, 0)
            if self.leader_of(*place) != node:
                continue
            if session is not None:
                if session.asked.get(place) == position:
                    continue
                session.asked[place] = position
            found.append(
                FetchPartition(
                    partition=index, fetch_offset=position, partition_max_bytes=FETCH_BYTES_MAX
                )
            )
        return found

    def _follow(self, session: SimSession, node: int, answer: Message) -> None:
        """Continue a session, or begin another."""
        if answer.error_code or not answer.session_id:
            self._sessions.pop(node, None)
        else:
            session.id, session.epoch = answer.session_id, session.epoch + 1

    def _check_time(self, right: SimRight, sent_ns: int, wait_ms: int) -> None:
        """Raises Broken if it has waited for long without its right."""
        since_ns = self.world.permits.refused_since(right)
        if since_ns is None or not wait_ms:
            return
        late_ms = self.world.late_ms(max(since_ns, sent_ns))
        if late_ms > LATE_MS:
            raise Broken(
                f"{self.name}: a fetch of {right.topic} waits {late_ms:.0f} ms without its right"
            )

    def _take(self, incarnation: Incarnation, row: Message, right: SimRight) -> None:
        place = incarnation, row.partition_index
        position = self._positions.get(place, 0)
        if row.error_code:
            if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._positions[place] = 0
            elif row.error_code in MOVED:
                self.look_again(*place)
            return
        since_ns = self.world.permits.refused_since(right)
        records = records_of(row.records)
        for offset, value in records.rows:
            offered_ns = self.world.ledger.offered_ns.get(value, 0)
            if since_ns is not None and offered_ns > since_ns:
                raise Broken(
                    f"{self.name} reads {said(value)} of {right.topic}, which was sent after its "
                    "right was taken"
                )
            if offset >= position:
                incarnation.claim(row.partition_index, offset, value, "what a guest sees")
        self._positions[place] = max(position, records.end)
