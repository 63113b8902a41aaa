"""One topic of a real broker, asked question by question for tests of its answers.

Nothing is tried again behind the test's back, but where a method says so. The topic has one
partition unless more are asked for.
"""

from pathlib import Path
from typing import Any

import duckdb

from smq.client.errors import BrokerUnavailable
from smq.client.kafka.admin import create_topic
from smq.client.kafka.cluster import Cluster
from smq.filer.location import Location
from smq.filer.store import Store
from smq.model.errors import BrokerError, ErrorCode
from smq.model.segments import Segment
from smq.store.manifest import open_manifest
from smq.testing.records import INT64_MAX
from smq.testing.smq_broker import SmqBroker
from smq.wire.generated.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from smq.wire.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from smq.wire.generated.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from smq.wire.records import BatchView, Record, read_batches, write_batch
from tests.app.fake_broker import eventually
from tests.broker.questions import FETCH, LIST_OFFSETS, PRODUCE

MiB = 1024 * 1024
# The smallest there is: 4 MiB of ring, 1 MiB a segment, so that little data goes a long way.
SETTINGS = {
    "wal.segment.bytes": "1MiB",
    "ring.bytes": "4MiB",
    "wal.bytes.max": "16MiB",
    "wal.keep.bytes": "0",  # What is sealed is read from there.
    "seal.ms": "200",
    "message.max.bytes": "500000",
}
ANY_TIME = {"message.timestamp.after.max.ms": str(INT64_MAX)}
FILLER_BYTES = 400_000  # A batch of so many does not share a WAL segment with more than one other.
EARLIEST, LATEST = -2, -1


class OneTopic:
    """A topic; `number` is its first partition's in files and frames.

    throttled_ms   what all answers to producers have said so far
    """

    throttled_ms = 0

    def __init__(
        self,
        broker: SmqBroker,
        cluster: Cluster,
        name: str,
        configs: dict[str, str] | None = None,
        partitions: int = 1,
    ) -> None:
        self.broker, self.cluster, self.name = broker, cluster, name
        create_topic(cluster, name, partitions, ANY_TIME | (configs or {}))
        eventually(self._numbers, "the topic is in the manifest's store")
        self.number = self._numbers()[0]

    def _numbers(self) -> list[int]:
        with open_manifest(self.broker.data_dir / "store.sqlite") as manifest:
            found = [each for each in manifest.topics() if each.name == self.name]
            return list(found[0].partition_numbers) if found else []

    # --- asking ----------------------------------------------------------------------------------

    def produce(self, batch: bytes, partition: int = 0) -> PartitionProduceResponse:
        """What a Produce request of one batch is answered."""
        data = PartitionProduceData(index=partition, records=batch)
        request = ProduceRequest(
            acks=-1,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name=self.name, partition_data=[data])],
        )
        leader = self.cluster.broker(self.cluster.topic(self.name).leaders[partition])
        response = leader.ask(PRODUCE, request)
        self.throttled_ms += response.throttle_time_ms
        answer: PartitionProduceResponse = response.responses[0].partition_responses[0]
        return answer

    def append(self, batch: bytes, partition: int = 0) -> int:
        """Produce until it is taken; the offset it got."""
        taken: list[int] = []

        def try_once() -> bool:
            try:
                answer = self.produce(batch, partition)
            except BrokerError:  # A broker that is being restarted.
                self.cluster.forget()
                return False
            if answer.error_code == ErrorCode.NONE:
                taken.append(answer.base_offset)
            return bool(taken)

        eventually(try_once, "the batch is taken")
        return taken[0]

    def append_filler(self, count: int, timestamp_ms: int = 0) -> int:
        """Batches of a big record each; the offset after the last."""
        offset = -1
        for _ in range(count):
            offset = self.append(write_batch([Record(0, timestamp_ms, None, bytes(FILLER_BYTES))]))
        return offset + 1

    def fetch(self, offset: int, partition: int = 0, bytes_max: int = 4 * MiB) -> PartitionData:
        """What a Fetch request of one partition is answered."""
        request = fetch_request(self.name, {partition: offset}, bytes_max)
        leader = self.cluster.broker(self.cluster.topic(self.name).leaders[partition])
        answer: PartitionData = leader.ask(FETCH, request).responses[0].partitions[0]
        return answer

    def read(self, end: int, start: int = 0, partition: int = 0) -> list[BatchView]:
        """All batches of [start, end), fetched as a consumer would: with no error on the way."""
        batches: list[BatchView] = []
        offset = start

        def reached() -> bool:
            nonlocal offset
            try:
                data = self.fetch(offset, partition)
            except BrokerUnavailable:  # A loan ends before a producer waits: clients fetch again.
                return False
            assert data.error_code == ErrorCode.NONE, (offset, ErrorCode(data.error_code))
            assert isinstance(data.records, memoryview)
            for batch in read_batches(data.records):
                batches.append(batch)
                assert batch.last_offset >= offset, "a batch from before what was asked for"
                offset = batch.last_offset + 1
            return offset >= end

        eventually(reached, f"a reader reaches offset {end}")
        return batches

    def records(self, end: int, start: int = 0, partition: int = 0) -> list[Record]:
        """All records of [start, end).

        A batch may begin before the offset that was asked for, as after a merge of segments: a
        consumer passes over what it has. What an answer has beyond the end is not looked at.
        """
        records: list[Record] = []
        for batch in self.read(end, start, partition):
            if batch.base_offset >= end:
                break
            have = records[-1].offset + 1 if records else start
            records += [record for record in batch.records() if have <= record.offset < end]
        return records

    def list_offset(self, timestamp: int, partition: int = 0) -> ListOffsetsPartitionResponse:
        """What ListOffsets answers."""
        wanted = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=self.name, partitions=[wanted])])
        leader = self.cluster.broker(self.cluster.topic(self.name).leaders[partition])
        answer: ListOffsetsPartitionResponse = (
            leader.ask(LIST_OFFSETS, request).topics[0].partitions[0]
        )
        return answer

    def offset_at(self, timestamp: int, partition: int = 0) -> int:
        """The offset that ListOffsets answers, without an error."""
        answer = self.list_offset(timestamp, partition)
        assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code)
        return answer.offset

    # --- looking inside --------------------------------------------------------------------------

    def segments(self, partition: int = 0) -> list[Segment]:
        """The manifest's lines."""
        with open_manifest(self.broker.data_dir / "store.sqlite") as manifest:
            return manifest.segments(self.number + partition)

    def named_files(self, partition: int = 0) -> set[str]:
        """Keys of the files that the manifest names."""
        return {segment.path for segment in self.segments(partition)}

    def sealed_end(self, partition: int = 0) -> int:
        """Up to which offset the manifest has it."""
        segments = self.segments(partition)
        return segments[-1].end_offset if segments else 0

    def wait_sealed(self, end: int, partition: int = 0) -> list[Segment]:
        """Until everything below `end` is sealed."""
        eventually(
            lambda: self.sealed_end(partition) >= end,
            f"{self.name}-{partition} is sealed up to {end}: {self.segments(partition)}",
        )
        return self.segments(partition)

    def wait_recycled(self, position: int) -> None:
        """Until no WAL segment begins below a position."""
        eventually(
            lambda: wal_starts(self.broker)[0] >= position,
            f"the log is freed up to {position}: {wal_starts(self.broker)}",
        )

    def seal_and_recycle(self, end: int) -> list[Segment]:
        """Until sealed segments alone have what lies below `end`, which the ring has left."""
        position = wal_starts(self.broker)[-1]
        segments = self.wait_sealed(end)
        self.append_filler(2 * 4 + 2)  # More than a ring: two to a segment.
        self.wait_recycled(position + MiB)
        return segments

    def files(self) -> set[str]:
        """Keys of the topic's files in the filer."""
        return {facts.key for facts in store_of(self.broker).list(f"topics/kafka/{self.name}/")}


def fetch_request(
    topic: str, offsets: dict[int, int], partition_bytes_max: int = 4 * MiB
) -> FetchRequest:
    """A Fetch of a topic's partitions from these offsets on."""
    wanted = [
        FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=partition_bytes_max
        )
        for partition, offset in offsets.items()
    ]
    return FetchRequest(
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=16 * MiB,
        topics=[FetchTopic(topic=topic, partitions=wanted)],
    )


def store_of(broker: SmqBroker) -> Store:
    """The broker's filer, as another process sees it."""
    given = broker.settings.get
    location = Location(
        given("filer.root", str(broker.data_dir / "filer")),
        given("filer.s3.endpoint", ""),
        given("filer.s3.region", ""),
        given("filer.s3.credentials", ""),
    )
    return location.open({})


def wal_starts(broker: SmqBroker, log: int = 0) -> list[int]:
    """The positions where the WAL's segments begin."""
    return sorted(int(path.stem) for path in (broker.data_dir / "logs" / str(log)).glob("*.wal"))


def wal_bytes(broker: SmqBroker, log: int = 0) -> int:
    """What the files of a WAL take: its segments, the next one, and spares."""
    files = (broker.data_dir / "logs" / str(log)).iterdir()
    return sum(size_of(path) for path in files if path.suffix in {".wal", ".spare"})


def size_of(path: Path) -> int:
    """A file's size; it may be renamed or deleted meanwhile."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def said(broker: SmqBroker) -> str:
    """What the broker has said so far."""
    return (broker.data_dir.parent / "output.log").read_text()


def query(sql: str) -> list[tuple[Any, ...]]:
    """What DuckDB answers."""
    with duckdb.connect() as connection:
        return connection.execute(sql).fetchall()
