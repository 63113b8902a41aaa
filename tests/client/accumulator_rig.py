"""An accumulator with a broker and a channel that tests move by hand."""

from collections.abc import Sequence

from smq.client.producing.batching.accumulator import Accumulator
from smq.client.producing.batching.answers import RETRY_MS
from smq.client.producing.delivery.parcel import Parcel
from smq.client.producing.delivery.single_record import SingleRecord
from smq.client.producing.encode.batch_writer import BatchWriter
from smq.client.producing.encode.columns import one_of
from smq.model.errors import ErrorCode
from smq.wire.compression import Codec
from tests.client.fake_shard import FakeChannel, FakeShard
from tests.client.parcels import OPENED_MS, NoWaiting, closed

NODE = 1


class Rig:
    """An accumulator, a channel and a broker, moved by hand."""

    def __init__(
        self, *, partitions: int = 3, batch_bytes: int = 200, message_bytes_max: int = 10_000
    ) -> None:
        self.now_ms = 0
        self.shard, self.channel = FakeShard(), FakeChannel()
        self.accumulator = Accumulator("test", (7, 0), BatchWriter(Codec.NONE), batch_bytes)
        self.accumulator.learn("t", [NODE] * partitions, message_bytes_max)
        self.parcels: list[Parcel | SingleRecord] = []
        self.count = 0
        self.partition_count, self.message_bytes_max = partitions, message_bytes_max

    def add(self, partitions: Sequence[int], *, size: int = 0, deadline_ms: int = 10**9) -> Parcel:
        rows = [(b"%d" % (self.count + i) + bytes(size), each) for i, each in enumerate(partitions)]
        self.count += len(rows)
        parcel = closed(rows, deadline_ms=deadline_ms)
        self.parcels.append(parcel)
        self.accumulator.add(parcel)
        return parcel

    def send_single(self, partition: int) -> bool:
        """A record alone, or if that is not possible as any other."""
        single = single_of(b"%d" % self.count, partition)
        if self.accumulator.send_single(single, {NODE: self.channel}, self.now_ms):
            self.count += 1
            self.parcels.append(single)
            return True
        self.add([partition])
        return False

    def learn(self) -> None:
        """What the sender does about stale topics."""
        if self.accumulator.queues.stale_topics():
            self.accumulator.learn("t", [NODE] * self.partition_count, self.message_bytes_max)

    def drain(self) -> None:
        self.accumulator.drain({NODE: self.channel}, self.now_ms)
        assert not self.accumulator.lost
        self.accumulator.invariants()

    def deliver(self, fault: ErrorCode = ErrorCode.NONE, *, append: bool = True) -> None:
        """Have the broker do the oldest request."""
        request = self.channel.sent.popleft()
        self.channel.received.append(self.shard.answer(request, fault, append=append))

    def answer(self) -> None:
        for each in self.channel.answers():
            self.accumulator.answered(NODE, each, self.now_ms)
            self.accumulator.invariants()

    def lose(self, delivered: int) -> None:
        """The channel ends: some requests came through, none of the answers does."""
        for _ in range(min(delivered, len(self.channel.sent))):
            self.deliver()
        self.channel = FakeChannel()
        self.accumulator.channel_lost(NODE, self.now_ms)
        self.accumulator.invariants()

    def round(self) -> None:
        self.learn()
        self.drain()
        while self.channel.sent:
            self.deliver()
        self.answer()

    def settle(self) -> None:
        for _ in range(200):
            if not self.accumulator.pending:
                return
            self.now_ms += RETRY_MS
            self.round()
        raise AssertionError("it never comes to rest")

    def check(self) -> None:
        """Every row that is not failed is in the log once, in order, where its future says."""
        expected: dict[int, list[bytes | None]] = {each: [] for each in range(3)}
        for parcel in self.parcels:
            for row in range(parcel.row_count):
                if parcel.error_of(row) is not None:
                    continue
                _, partition, offset, _ = parcel.delivery(row)
                number = self.parcels_first(parcel) + row
                expected[partition].append(b"%d" % number)
                records = self.shard.partitions["t", partition].records
                assert records[offset].value == b"%d" % number
        found = {each: self.shard.partitions["t", each].values() for each in range(3)}
        assert found == expected

    def check_late(self) -> None:
        """Every row is in the log once at most, in order, and those that are not failed are."""
        for partition in range(3):
            found = [int(each or b"") for each in self.shard.partitions["t", partition].values()]
            assert found == sorted(set(found))
        for parcel in self.parcels:
            for row in range(parcel.row_count):
                if parcel.error_of(row) is None:
                    number = self.parcels_first(parcel) + row
                    there = self.shard.partitions["t", parcel.delivery(row).partition]
                    assert there.records[parcel.delivery(row).offset].value == b"%d" % number

    def parcels_first(self, parcel: Parcel | SingleRecord) -> int:
        at = self.parcels.index(parcel)
        return sum(each.row_count for each in self.parcels[:at])


def single_of(value: bytes, partition: int = 0) -> SingleRecord:
    return SingleRecord("t", NoWaiting(), one_of(value, None, (), OPENED_MS), partition, 10**9)
