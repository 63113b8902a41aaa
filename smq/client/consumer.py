"""Reads records of one topic from where one wants: all partitions, or some; to an end, or for ever.

Where to begin and to end is a `Place`: the earliest record, the end of the log as it is now, an
offset, or the first record with a timestamp at or after one.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from smq.client.cluster import Cluster, check
from smq.client.connection import Question
from smq.model.errors import BrokerError, ErrorCode
from smq.wire.generated.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    read_fetch_response,
    write_fetch_request,
)
from smq.wire.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    read_list_offsets_response,
    write_list_offsets_request,
)
from smq.wire.records import Batch, Record, read_batches

FETCH_WAIT_MS = 250  # How long a broker may wait for records: with several, each waits in turn.
FETCH_BYTES_MAX = 16 * 1024 * 1024
PARTITION_FETCH_BYTES_MAX = 4 * 1024 * 1024
REPLICA_ID_OF_A_CONSUMER = -1
LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2

FETCH = Question[FetchRequest, FetchResponse](
    "Fetch",
    write_fetch_request,
    read_fetch_response,
    version_max=12,  # Later ones name topics by their ids.
)
LIST_OFFSETS = Question[ListOffsetsRequest, ListOffsetsResponse](
    "ListOffsets", write_list_offsets_request, read_list_offsets_response
)


@dataclass(frozen=True, slots=True)
class Place:
    """A place in every partition: an offset, or what ListOffsets makes of a timestamp."""

    offset: int | None = None
    timestamp: int | None = None


EARLIEST = Place(timestamp=EARLIEST_TIMESTAMP)
LATEST = Place(timestamp=LATEST_TIMESTAMP)


def resolve(
    cluster: Cluster, topic: str, partitions: Iterable[int], place: Place
) -> dict[int, int]:
    """The offset of a place, by partition; where no record is that late, the end of the log."""
    partitions = list(partitions)
    if place.offset is not None:
        return dict.fromkeys(partitions, place.offset)
    assert place.timestamp is not None
    timestamp = place.timestamp
    offsets = cluster.retrying(lambda: _list_offsets(cluster, topic, partitions, timestamp))
    beyond = [partition for partition, offset in offsets.items() if offset < 0]
    if beyond:
        offsets |= resolve(cluster, topic, beyond, LATEST)
    return offsets


def _list_offsets(
    cluster: Cluster, topic: str, partitions: list[int], timestamp: int
) -> dict[int, int]:
    requests = {}
    for leader, led in cluster.by_leader(topic, partitions).items():
        asked = [ListOffsetsPartition(partition_index=each, timestamp=timestamp) for each in led]
        requests[leader] = ListOffsetsRequest(
            replica_id=REPLICA_ID_OF_A_CONSUMER,
            topics=[ListOffsetsTopic(name=topic, partitions=asked)],
        )
    offsets = {}
    for response in cluster.ask_each(LIST_OFFSETS, requests):
        for each in response.topics[0].partitions:
            check(each.error_code)
            offsets[each.partition_index] = each.offset
    return offsets


class Consumer:
    """Reads partitions of a topic. `offsets` are those of the next records, by partition."""

    def __init__(self, cluster: Cluster, topic: str, offsets: dict[int, int]) -> None:
        self.offsets = dict(offsets)
        self._cluster = cluster
        self._topic = topic

    def read(self, ends: dict[int, int] | None = None) -> Iterator[tuple[int, Record]]:
        """Partitions and records, up to the ends or for ever. Raises BrokerError.

        An iterator that is left early has taken the offsets of the records it gave, and no more.
        """
        while open_ := self._open(ends):
            for partition, batch in self._cluster.retrying(lambda: self._fetch(open_)):
                end = None if ends is None else ends[partition]
                for record in self._records(batch, self.offsets[partition], end):
                    self.offsets[partition] = record.offset + 1
                    yield partition, record
                self.offsets[partition] = max(self.offsets[partition], batch.last_offset + 1)

    def _open(self, ends: dict[int, int] | None) -> list[int]:
        return [
            partition
            for partition, offset in self.offsets.items()
            if ends is None or offset < ends[partition]
        ]

    @staticmethod
    def _records(batch: Batch, start: int, end: int | None) -> Iterator[Record]:
        if batch.is_control:
            return
        for record in batch.records():
            if record.offset >= start and (end is None or record.offset < end):
                yield record

    def _fetch(self, partitions: list[int]) -> list[tuple[int, Batch]]:
        requests = {
            leader: self._request(led)
            for leader, led in self._cluster.by_leader(self._topic, partitions).items()
        }
        batches: list[tuple[int, Batch]] = []
        for response in self._cluster.ask_each(FETCH, requests):
            check(response.error_code)
            for topic in response.responses:
                for partition in topic.partitions:
                    batches += self._batches(partition)
        return batches

    def _request(self, partitions: list[int]) -> FetchRequest:
        wanted = [
            FetchPartition(
                partition=partition,
                fetch_offset=self.offsets[partition],
                partition_max_bytes=PARTITION_FETCH_BYTES_MAX,
            )
            for partition in partitions
        ]
        return FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES_MAX,
            topics=[FetchTopic(topic=self._topic, partitions=wanted)],
        )

    def _batches(self, data: PartitionData) -> Iterator[tuple[int, Batch]]:
        partition = data.partition_index
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            earliest = resolve(self._cluster, self._topic, [partition], EARLIEST)[partition]
            latest = resolve(self._cluster, self._topic, [partition], LATEST)[partition]
            raise BrokerError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self._topic}-{partition} has no offset {self.offsets[partition]}: "
                f"its records are from {earliest} up to {latest}",
            )
        check(data.error_code)
        if data.records is None:
            return
        assert isinstance(data.records, memoryview)
        for batch in read_batches(data.records):
            yield partition, batch
