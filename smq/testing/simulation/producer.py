"""An idempotent producer: batches in lanes, some in flight, resent after a broken connection.

A lane is one producer id's stream into one partition of one incarnation of a topic. The n-th record
of a lane has sequence n and contains it, so that a record can be identified anywhere.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from smq.model.errors import ErrorCode
from smq.testing.simulation.clients import MOVED, Message, SimClient
from smq.testing.simulation.environment import Environment
from smq.testing.simulation.ledger import Broken, Incarnation
from smq.wire.compression import Codec
from smq.wire.generated.init_producer_id import InitProducerIdRequest
from smq.wire.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from smq.wire.records import Record, write_batch

VERSION = 9
IN_FLIGHT_MAX = 5
GONE = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}
GAP = {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID}
RETRIED = {*MOVED, ErrorCode.KAFKA_STORAGE_ERROR}
PLAIN_BYTES_MAX = 2048  # Larger values are compressed: message.max.bytes is small.


@dataclass(eq=False)
class SimBatch:
    """Records of one batch. `is_sent`: in flight on an open connection."""

    first: int
    values: list[bytes]
    data: bytes
    is_sent: bool = False


@dataclass(eq=False)
class ProducerLane:
    """The stream of a producer id to a partition.

    `losses` is the incarnation's count when the lane opened: a later sequence gap may be a loss.
    """

    number: int
    incarnation: Incarnation
    partition: int
    producer_id: int = -1
    next_sequence: int = 0
    batches: deque[SimBatch] = field(default_factory=deque)
    losses: int = 0
    told: ErrorCode = ErrorCode.NONE  # The last one.
    is_known: bool = False

    @property
    def where(self) -> str:
        return self.incarnation.where(self.partition)

    def ready(self) -> SimBatch | None:
        """The next one to send."""
        # A broker accepts any sequence of an unknown producer: until it knows it, one at a time.
        in_flight_max = IN_FLIGHT_MAX if self.is_known else 1
        for batch in islice(self.batches, in_flight_max):
            if not batch.is_sent:
                return batch
        return None

    def forget_unoffered(self) -> None:
        """Drop what was never sent, but for the next ones."""
        offered = sum(1 for batch in self.batches if batch.data)
        while len(self.batches) > max(offered, IN_FLIGHT_MAX):
            self.batches.pop()

    def unsend(self) -> None:
        """Requeue all batches."""
        for batch in self.batches:
            batch.is_sent = False


class SimProducer(SimClient):
    """Sends records to any topics."""

    def __init__(self, world: Environment, name: str, lane_numbers: Iterator[int]) -> None:
        super().__init__(world, name)
        self._lane_numbers = lane_numbers
        self.lanes: dict[tuple[Incarnation, int], ProducerLane] = {}
        self._is_pausing = False

    def produce(
        self, incarnation: Incarnation, partitions: list[int], records: int, size: int
    ) -> None:
        """Send a batch to each of these partitions, in one request per leader."""
        for partition in partitions:
            lane = self.lanes.get((incarnation, partition)) or self._open(incarnation, partition)
            first = lane.next_sequence
            lane.next_sequence += records
            values = [
                b"%d:%d:" % (lane.number, n) + b"." * size for n in range(first, first + records)
            ]
            self.world.ledger.offered(incarnation.topic.name, values, self.world.clock.now_ns)
            lane.batches.append(SimBatch(first, values, b""))
        self._pump()

    def stop_flooding(self) -> None:
        """Send only what was sent before, and a little more."""
        for lane in self.lanes.values():
            lane.forget_unoffered()

    def _open(self, incarnation: Incarnation, partition: int) -> ProducerLane:
        number = next(self._lane_numbers)
        lane = ProducerLane(number, incarnation, partition, losses=incarnation.losses)
        self.lanes[incarnation, partition] = lane

        def given(response: Message) -> bool:
            if response.error_code == ErrorCode.NONE:
                lane.producer_id = response.producer_id
                self._pump()
            return bool(response.error_code == ErrorCode.NONE)

        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        self.ask_until("InitProducerId", 4, request, given, 1000, lambda: self._is_wanted(lane))
        return lane

    def _is_wanted(self, lane: ProducerLane) -> bool:
        return self.lanes.get((lane.incarnation, lane.partition)) is lane

    def _pause(self) -> None:
        """Continue after a pause."""

        def resume() -> None:
            self._is_pausing = False
            self._pump()

        if not self._is_pausing:
            self._is_pausing = True
            self.again(resume)

    def _pump(self) -> None:
        """Send what is allowed: one batch of each lane per request, then the next request."""
        while not self._is_pausing and (ready := self._next()):
            nodes = {lane: self.leader_of(lane.incarnation, lane.partition) for lane in ready}
            sent = False
            for node in sorted({*nodes.values()}):
                its = {lane: batch for lane, batch in ready.items() if nodes[lane] == node}
                sent |= self._send(node, its)
            if not sent:
                self._pause()

    def _next(self) -> dict[ProducerLane, SimBatch]:
        found = {}
        for key, lane in list(self.lanes.items()):
            if lane.incarnation.is_dying:
                del self.lanes[key]
            elif lane.producer_id >= 0 and (batch := lane.ready()) is not None:
                found[lane] = batch
        return found

    def _send(self, node: int, ready: dict[ProducerLane, SimBatch]) -> bool:
        connection = self.connection(node)
        if connection is None:
            return False
        topics: dict[str, list[PartitionProduceData]] = {}
        for lane, batch in ready.items():
            batch.is_sent = True
            batch.data = batch.data or self._encoded(lane, batch)
            row = PartitionProduceData(index=lane.partition, records=batch.data)
            topics.setdefault(lane.incarnation.topic.name, []).append(row)
        data = [TopicProduceData(name=name, partition_data=rows) for name, rows in topics.items()]
        request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=data)
        losses = {lane: lane.incarnation.losses for lane in ready}
        connection.ask("Produce", VERSION, request, lambda r: self._answered(ready, losses, r))
        return True

    def _encoded(self, lane: ProducerLane, batch: SimBatch) -> bytes:
        now_ms = self.world.clock.wall_ns() // 1_000_000
        key_of = lane.incarnation.key_of
        records = [
            Record(i, now_ms, key_of(value), value, ()) for i, value in enumerate(batch.values)
        ]
        is_large = sum(map(len, batch.values)) > PLAIN_BYTES_MAX
        return write_batch(
            records,
            compression=Codec.ZSTD if is_large else Codec.NONE,
            producer_id=lane.producer_id,
            producer_epoch=0,
            base_sequence=batch.first,
        )

    def _answered(
        self,
        sent: dict[ProducerLane, SimBatch],
        losses: dict[ProducerLane, int],
        response: ProduceResponse | None,
    ) -> None:
        if response is None:
            for lane in sent:
                lane.unsend()
                self.look_again(lane.incarnation, lane.partition)
            self._pause()
        else:
            codes = {
                (topic.name, row.index): (ErrorCode(row.error_code), row.base_offset)
                for topic in response.responses
                for row in topic.partition_responses
            }
            for lane, batch in sent.items():
                key = lane.incarnation.topic.name, lane.partition
                if key not in codes:
                    raise Broken(f"a Produce response says nothing of {key}")
                if batch in lane.batches:
                    code, offset = codes[key]
                    # An answer may arrive after what it reports was lost.
                    is_of_before = losses[lane] != lane.incarnation.losses
                    self._settle(lane, batch, code, -1 if is_of_before else offset)
        self._pump()

    def _settle(self, lane: ProducerLane, batch: SimBatch, code: ErrorCode, offset: int) -> None:
        if code != lane.told or code == ErrorCode.NONE:
            lane.told = code
            self.world.detail(
                lambda: (
                    f"{self.name}: {lane.where}, lane {lane.number}, records from "
                    f"{batch.first} on: {code.name}, offset {offset}"
                )
            )
        if code in {ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER}:
            lane.batches.remove(batch)
            lane.is_known = True
            self.in_vain = 0
            self.world.ledger.acks += 1
            if code == ErrorCode.NONE and offset >= 0:
                self.world.acked(lane.incarnation, lane.partition, batch.values, offset)
        elif code in RETRIED:
            batch.is_sent = False
            self.look_again(lane.incarnation, lane.partition)
            self._pause()
        elif code in GONE:
            self._leave(lane)
        elif code in GAP and lane.batches[0] is not batch:
            batch.is_sent = False  # The batch before it was refused.
        elif code in GAP:
            self._gap(lane, batch.first, code)
            self._leave(lane)
        else:
            raise Broken(f"{self.name} gets {code.name} for a batch as all others")

    def _gap(self, lane: ProducerLane, first: int, code: ErrorCode) -> None:
        """The next batch does not follow what was acked. Raises Broken if nothing may be lost."""
        incarnation = lane.incarnation
        is_excused = incarnation.is_dying or self.world.ledger.is_damaged
        if not is_excused and lane.losses == incarnation.losses:
            raise Broken(
                f"{lane.where}: lane {lane.number} sends {first} next and gets {code.name}, "
                "although nothing may be lost"
            )

    def _leave(self, lane: ProducerLane) -> None:
        """Start over: unacked records stay in doubt."""
        self.lanes.pop((lane.incarnation, lane.partition), None)
        lane.batches.clear()
