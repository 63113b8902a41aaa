"""Copies the partitions of a topic to another topic: fetch, restamp, produce, all pipelined.

The next fetch is in flight while the previous response is produced. The first failure ends the
copy. The destination's end offsets record the progress, and the next run continues there: what a
destination has is a prefix of what it shall have. So a copy is an idempotent producer: a broker
that refuses a batch refuses those behind it too, which are in flight already (KIP-98). It takes any
sequence as a new producer's first, so a run's first batch of a partition travels alone.

Fetches name the topic by its id, so that a topic that was created again is not read; brokers
without topic ids get the name. They carry the leader epoch of the last record read: a source that
has lost records since, and has others at their offsets, reports it (KIP-595).

A run may be killed while its batches are under way. The next run is the same producer, with the
same sequences: what the destination has by then, or gets later, is not appended again.
"""

import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import NamedTuple
from uuid import UUID

from smq.cli.client import BadPeer
from smq.cli.records.raw_batches import ProducerIdentity, Ready, Sizes, from_producer, to_produce
from smq.client.consuming.silence import Silence
from smq.client.errors import Act
from smq.client.kafka.cluster import Cluster, check
from smq.client.kafka.connection import KafkaConnection
from smq.client.kafka.offsets import READ_COMMITTED
from smq.client.kafka.questions import FETCH, FETCH_BY_NAME, INIT_PRODUCER_ID, PRODUCE
from smq.client.names import TopicPartition
from smq.model.errors import BrokerError, ErrorCode, PeerError
from smq.wire.codec import ZERO_UUID, Buffer
from smq.wire.compression import InflatesTooFar
from smq.wire.generated.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from smq.wire.generated.init_producer_id import InitProducerIdRequest
from smq.wire.generated.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from smq.wire.records import INFLATED_BYTES_MAX

MiB = 1024 * 1024
FETCH_BYTES = 8 * MiB  # Of one answer: enough to keep both brokers busy, and little memory.
PARTITION_BYTES = 4 * MiB
FETCH_WAIT_MS = 500
IN_FLIGHT_MAX = 5  # Produce requests per broker: as many as Kafka's own clients allow.
ACKS_ALL = -1
PRODUCE_TIMEOUT_MS = 30_000
SEQUENCES = 2**31  # After the last one follows 0.

Progress = Callable[[int], None]


class Side(NamedTuple):
    """A topic of a cluster."""

    cluster: Cluster
    topic: str

    @contextmanager
    def told(self) -> Iterator[None]:
        """A PeerError in the block names the broker that it is of: a copy has two."""
        try:
            yield
        except BadPeer:
            raise
        except PeerError as error:
            raise BadPeer(
                f"the server at {self.cluster.bootstrap}, asked about {self.topic}, is not a Kafka "
                f"broker: {error}"
            ) from error


@dataclass(slots=True)
class PartitionCopy:
    """The copy of one partition.

    position     the source's next offset to read, and `end` where to stop
    destination  the destination's next offset, after all that was acknowledged
    acknowledged the source's offset that corresponds to it
    skip         records that an earlier run has already copied
    began        the destination's offset of the producer's first record, whose sequence is 0
    under_way    the source's next offset after a batch that may be on its way, by the destination's
    is_known     the destination has acknowledged a batch of this run
    epoch        the source's leader epoch of the last batch that was read; -1: unknown
    """

    partition: int
    position: int
    end: int
    destination: int
    acknowledged: int
    skip: int = 0
    began: int = 0
    under_way: dict[int, int] = field(default_factory=dict)
    is_known: bool = False
    epoch: int = -1

    @property
    def is_done(self) -> bool:
        return self.position >= self.end


@dataclass(slots=True)
class FetchConnection:
    """A connection for the fetches of some partitions, and how long none of them has moved."""

    connection: KafkaConnection
    partitions: list[int]
    silence: Silence


Sent = tuple[PartitionCopy, Ready]


class Interloper(Exception):
    """The destination has records of another writer. The message says where."""


class OffsetsNotKept(Exception):
    """A record would change its offset. The message says which."""


class CopyRun:
    """One run, of a `producer` that an earlier run has begun, or of a new one. `saving` is called
    before each round of requests, when all that it will produce is `under_way`, and at the end;
    `bring` with each batch before that.

    `source_id` is that of the source's topic; ZERO_UUID: its broker has none. Batches above
    `batch_bytes_max`, which the destination would refuse, are divided. With
    `keep_offsets` it fails before the first record that would change its offset.
    """

    def __init__(  # noqa: PLR0913  (it is what a copy is told)
        self,
        source: Side,
        destination: Side,
        lanes: Mapping[int, PartitionCopy],
        progress: Progress,
        saving: Callable[[ProducerIdentity | None], None],
        *,
        bring: Callable[[Buffer], None],
        source_id: UUID = ZERO_UUID,
        producer: ProducerIdentity | None = None,
        batch_bytes_max: int | None = None,
        keep_offsets: bool = False,
        inflated_bytes_max: int | None = None,
    ) -> None:
        self._planned = {each.partition: each.destination for each in lanes.values()}
        self._keep_offsets = keep_offsets
        self._sizes = Sizes(
            sys.maxsize if batch_bytes_max is None else batch_bytes_max,
            inflated_bytes_max or INFLATED_BYTES_MAX,
        )
        self._source, self._source_id, self._destination = source, source_id, destination
        self._lanes = lanes
        self._progress, self._saving, self._bring = progress, saving, bring
        self._producing: dict[int, CopyRequests] = {}
        self._producer_known = producer
        self.records = 0
        self.bytes = 0

    def run(self) -> None:
        """Copy until every lane is done.

        Raises BrokerError, PeerError, Interloper, OffsetsNotKept, and what `bring` raises.
        """
        wanted = [lane.partition for lane in self._lanes.values() if not lane.is_done]
        cluster, topic = self._source
        asked: list[FetchConnection] = []
        try:
            with self._source.told():
                leaders = cluster.retrying(lambda: cluster.by_leader(topic, wanted))
                for leader, partitions in leaders.items():
                    silence = Silence(cluster.clock)
                    asked.append(FetchConnection(cluster.connect(leader), partitions, silence))
            self._run(asked)
        finally:
            for each in asked:
                each.connection.close()
            for producing in self._producing.values():
                producing.connection.close()

    def _run(self, asked: list[FetchConnection]) -> None:
        under_way = deque(each for each in asked if self._ask(each))
        while under_way:
            fetching = under_way.popleft()
            with self._source.told():
                ready = self._fetched(fetching)
            if self._ask(fetching):
                under_way.append(fetching)
            if any(ready):
                self._saving(self._producer())
            with self._destination.told():
                self._produce(ready)
        with self._destination.told():
            for producing in self._producing.values():
                self._await(producing, 0)
        self._saving(self._producer_known)

    def _fetched(self, fetching: FetchConnection) -> list[list[Sent]]:
        """The batches of an answer, of each partition that it has. Raises BrokerError, PeerError.

        What it says is believed only of what was asked: a partition that came twice would be sent
        twice, and one that was not asked would be somebody else's.
        """
        response: FetchResponse = fetching.connection.finish()
        check(response.error_code)
        found = [each for topic in response.responses for each in topic.partitions]
        names = {topic.topic or topic.topic_id for topic in response.responses}
        numbers = [each.partition_index for each in found]
        asked = {lane.partition for lane in self._left(fetching)}
        if (
            names - {self._source.topic, self._source_id}
            or len({*numbers}) < len(numbers)
            or {*numbers} - asked
        ):
            raise PeerError("it answers a fetch with other partitions than it was asked for")
        ready = [self._read(each) for each in found]
        fetching.silence.check(
            {
                TopicPartition(self._source.topic, lane.partition): (lane.position, lane.end)
                for lane in self._left(fetching)
            }
        )
        return ready

    def _left(self, fetching: FetchConnection) -> list[PartitionCopy]:
        lanes = [self._lanes[each] for each in fetching.partitions]
        return [lane for lane in lanes if not lane.is_done]

    def _ask(self, fetching: FetchConnection) -> bool:
        """Send the next fetch; False if all these partitions are done."""
        left = self._left(fetching)
        left.sort(key=lambda lane: lane.position - lane.end)  # The longest remainder first.
        if not left:
            return False
        rows = [
            FetchPartition(
                partition=lane.partition,
                fetch_offset=lane.position,
                last_fetched_epoch=lane.epoch,
                partition_max_bytes=PARTITION_BYTES,
            )
            for lane in left
        ]
        request = FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            isolation_level=READ_COMMITTED,
            topics=[
                FetchTopic(topic=self._source.topic, topic_id=self._source_id, partitions=rows)
            ],
        )
        has_id = self._source_id != ZERO_UUID
        fetching.connection.start(FETCH if has_id else FETCH_BY_NAME, request)
        return True

    def _read(self, data: PartitionData) -> list[Sent]:
        """The batches of a partition to produce; advances its position."""
        lane = self._lanes[data.partition_index]
        if data.error_code == ErrorCode.UNKNOWN_TOPIC_ID:
            raise BrokerError(
                ErrorCode.UNKNOWN_TOPIC_ID,
                f"topic {self._source.topic} was deleted since the copy began; if there is one of "
                "this name again, copy it to another destination",
            )
        check(data.error_code, act=Act("read", topic=self._source.topic))
        if data.diverging_epoch is not None and data.diverging_epoch.end_offset >= 0:
            raise BrokerError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"partition {lane.partition} of {self._source.topic} ended at offset "
                f"{data.diverging_epoch.end_offset} before it went on, and was copied up to "
                f"{lane.position}: it has lost records; copy it to another destination",
            )
        assert isinstance(data.records, memoryview | None)  # As it was received, in its buffer.
        records = data.records if data.records is not None else memoryview(b"")
        aborted = [
            (each.producer_id, each.first_offset) for each in data.aborted_transactions or ()
        ]
        found = []
        aborted.sort(key=_offset)
        for ready in self._to_produce(lane, records, aborted):
            lane.position, lane.epoch = ready.source_next, max(lane.epoch, ready.epoch)
            if lane.skip:
                self._pass_over(lane, ready)
            elif ready.record_count:
                sequence = (self._plan(lane, ready) - lane.began) % SEQUENCES
                self._bring(ready.data)
                numbered = from_producer(ready.data, self._producer(), sequence)
                found.append((lane, ready._replace(data=numbered)))
        return found

    def _to_produce(
        self, lane: PartitionCopy, records: memoryview, aborted: list[tuple[int, int]]
    ) -> Iterator[Ready]:
        """See `to_produce`. Raises BadPeer."""
        try:
            yield from to_produce(records, lane.position, lane.end, aborted, self._sizes)
        except PeerError as error:
            advice = "to leave it out, start behind it with --from"
            if isinstance(error, InflatesTooFar):
                advice = "raise --inflate-max"
            raise BadPeer(
                f"partition {lane.partition} of {self._source.topic} cannot be copied from offset "
                f"{lane.position} on: {error}; {advice}"
            ) from error

    def _plan(self, lane: PartitionCopy, ready: Ready) -> int:
        """Record which offsets the records will get; returns the first one."""
        planned = self._planned[lane.partition]
        self._planned[lane.partition] = after = planned + ready.record_count
        lane.under_way[after] = ready.source_next
        has = ready.source_next - ready.record_count
        if self._keep_offsets and planned != has:
            raise OffsetsNotKept(
                f"partition {lane.partition}: records before offset {ready.source_next} would not "
                f"keep their offsets, but begin at {planned} in {self._destination.topic}: the "
                "source lacks offsets (deleted, compacted, or markers of transactions); copy "
                "without --keep-offsets, or to an empty topic"
            )
        return planned

    def _pass_over(self, lane: PartitionCopy, ready: Ready) -> None:
        if ready.record_count > lane.skip:
            raise self._interloper(lane)
        lane.skip -= ready.record_count
        lane.acknowledged = ready.source_next

    def _produce(self, ready: list[list[Sent]]) -> None:
        """Send the batches in rows of one per partition, which keeps each partition's order."""
        cluster, topic = self._destination
        for row in zip_longest(*ready):
            by_leader: dict[int, list[Sent]] = {}
            for each in row:
                if each is not None:
                    (leader,) = cluster.by_leader(topic, [each[0].partition])
                    by_leader.setdefault(leader, []).append(each)
            for leader, batches in by_leader.items():
                producing = self._producing_at(leader)
                producing.send(topic, batches)
                is_known = all(lane.is_known for lane, _ in batches)
                self._await(producing, IN_FLIGHT_MAX if is_known else 0)

    def _producer(self) -> ProducerIdentity:
        """This copy's producer; asks for it once."""
        if self._producer_known is None:
            cluster = self._destination.cluster
            with self._destination.told():
                self._producer_known = cluster.retrying(lambda: _new_producer(cluster))
        return self._producer_known

    def _producing_at(self, leader: int) -> "CopyRequests":
        if leader not in self._producing:
            self._producing[leader] = CopyRequests(self._destination.cluster.connect(leader))
        return self._producing[leader]

    def _await(self, producing: "CopyRequests", in_flight_max: int) -> None:
        """Wait until at most `in_flight_max` requests are unanswered."""
        while len(producing.owed) > in_flight_max:
            for (lane, ready), base_offset in producing.finish():
                if base_offset != lane.destination:
                    raise self._interloper(lane)
                lane.is_known = True
                lane.destination += ready.record_count
                lane.acknowledged = ready.source_next
                del lane.under_way[lane.destination]
                self.records += ready.record_count
                self.bytes += len(ready.data)
                self._progress(len(ready.data))

    def _interloper(self, lane: PartitionCopy) -> Interloper:
        return Interloper(
            f"somebody else has written to partition {lane.partition} of "
            f"{self._destination.topic} since the copy began"
        )


class CopyRequests:
    """The requests in flight to one broker, oldest first."""

    def __init__(self, connection: KafkaConnection) -> None:
        self.connection = connection
        self.owed: deque[list[Sent]] = deque()

    def send(self, topic: str, batches: list[Sent]) -> None:
        """Send a request with one batch for each of some partitions."""
        data = [
            PartitionProduceData(index=lane.partition, records=ready.data)
            for lane, ready in batches
        ]
        request = ProduceRequest(
            acks=ACKS_ALL,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=topic, partition_data=data)],
        )
        self.connection.start(PRODUCE, request)
        self.owed.append(batches)

    def finish(self) -> Iterator[tuple[Sent, int]]:
        """The batches of the oldest request, with their base offsets. Raises BrokerError."""
        batches = self.owed.popleft()
        response: ProduceResponse = self.connection.finish()
        answers = {
            each.index: each for topic in response.responses for each in topic.partition_responses
        }
        for sent in batches:
            answer = answers.get(sent[0].partition)
            if answer is None:
                raise PeerError(f"an answer says nothing of partition {sent[0].partition}")
            _check(sent, answer)
            yield sent, answer.base_offset


def _new_producer(cluster: Cluster) -> ProducerIdentity:
    answer = cluster.anyone().ask(INIT_PRODUCER_ID, InitProducerIdRequest(transactional_id=None))
    check(answer.error_code)
    if answer.producer_id < 0 or answer.producer_epoch < 0:
        raise PeerError(f"it gives {answer.producer_id} as a producer's id")
    return ProducerIdentity(answer.producer_id, answer.producer_epoch)


def _check(sent: Sent, answer: PartitionProduceResponse) -> None:
    """Raise BrokerError if a batch was refused."""
    try:
        check(answer.error_code, answer.error_message)
    except BrokerError as error:
        lane, ready = sent
        raise BrokerError(
            error.code,
            f"the destination refuses the last {ready.record_count} records of partition "
            f"{lane.partition} before offset {ready.source_next}: "
            f"{error.message or error.code.name}",
        ) from error


def _offset(aborted: tuple[int, int]) -> int:
    return aborted[1]
