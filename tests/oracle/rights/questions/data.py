"""Produce, Fetch and what else goes to a partition's leader: which topics, and as whom."""

from collections.abc import Sequence
from typing import Any

from smq.wire.generated.api_versions import ApiVersionsRequest
from smq.wire.generated.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from smq.wire.generated.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
)
from smq.wire.generated.init_producer_id import InitProducerIdRequest
from smq.wire.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from smq.wire.generated.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from smq.wire.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.oracle.batches import TRANSACTIONAL, batch, changed
from tests.oracle.dialogues.fetch import fill
from tests.oracle.dialogues.transactions import Who, find, open_
from tests.oracle.rights import asked
from tests.oracle.rights.cell import EXISTING, Cell

PRODUCE_NEEDS_ID = FETCH_NEEDS_ID = 13
INIT = 4  # The version of what is only needed beforehand.
FOLLOWER, EARLIEST, LATEST = 7, -2, -1


def ends(cell: Cell) -> dict[str, int]:
    """Where the logs of the topics end."""
    found = {}
    for word in EXISTING:
        partition = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
        topic = ListOffsetsTopic(name=cell.own(word), partitions=[partition])
        answer = cell.quietly(ListOffsetsRequest(replica_id=-1, topics=[topic]), 4)
        found[word] = answer.topics[0].partitions[0].offset
    return found


def produce(cell: Cell, records: bytes, *words: str, **fields: Any) -> ProduceRequest:
    """One batch for partition 0 of these topics; of all four if none is named."""
    data = [PartitionProduceData(index=0, records=records)]
    if cell.version >= PRODUCE_NEEDS_ID:
        ids = [cell.ids[word] for word in words] or cell.topic_ids()
        topics = [TopicProduceData(topic_id=each, partition_data=data) for each in ids]
    else:
        names = [cell.own(word) for word in words] or cell.all()
        topics = [TopicProduceData(name=each, partition_data=data) for each in names]
    asked: dict[str, Any] = {"acks": -1, "timeout_ms": 5000, "topic_data": topics}
    return ProduceRequest(**(asked | fields))


@asked("Produce", also=(12,))
def produced(cell: Cell) -> None:
    before = ends(cell)

    def moved(step: str) -> None:
        """The records that the step has added to each log.

        What was sent without acks may stand there late, but before a later batch is acknowledged.
        """
        filled(cell)
        now = ends(cell)
        cell.note(step, {word: now[word] - 1 - before[word] for word in EXISTING})
        before.update(now)

    cell.ask("all", produce(cell, batch()))
    moved("all: appended")
    cell.tell(produce(cell, batch(), acks=0))
    cell.ask("without acks, then ApiVersions", ApiVersionsRequest(), version=0, trim=briefly)
    moved("without acks: appended")
    cell.tell(produce(cell, batch(), "allowed", acks=0))
    cell.ask("without acks, one, then ApiVersions", ApiVersionsRequest(), version=0, trim=briefly)
    moved("without acks, one: appended")
    producer = (1_000_000 + cell.turn, 0, 0)
    cell.ask("idempotent", produce(cell, batch(producer=producer), "allowed"))


def briefly(answer: Any) -> None:
    answer.api_keys = answer.api_keys[:0]


def begin(cell: Cell, name: str) -> Who:
    """A producer whose id its coordinator has already, once nothing of it is being written."""
    whole = cell.own(name)
    request = InitProducerIdRequest(transactional_id=whole, transaction_timeout_ms=60_000)
    answer = cell.until(request, lambda answer: not answer.error_code, INIT)
    return Who(whole, answer.producer_id, answer.producer_epoch)


def found(cell: Cell) -> None:
    """Have the coordinator ready for the ids."""
    for word in EXISTING:
        find(cell, cell.own(word))


@asked("Produce", prepare=found)
def produced_in_transactions(cell: Cell) -> None:
    for name, topic in (("allowed", "allowed"), ("denied", "allowed"), ("allowed", "denied")):
        who = begin(cell, name)
        open_(cell, who, cell.own(topic))
        records = changed(batch(producer=(who.id, who.epoch, 0)), attributes=TRANSACTIONAL)
        before = ends(cell)[topic]
        request = produce(cell, records, topic, transactional_id=who.name)
        cell.ask(f"the id {name}, the topic {topic}", request)
        cell.note(f"the id {name}, the topic {topic}: appended", ends(cell)[topic] - before)
    who = begin(cell, "allowed")
    records = changed(batch(producer=(who.id, who.epoch, 0)), attributes=TRANSACTIONAL)
    cell.ask("no id", produce(cell, records, "allowed"))


def fetch(cell: Cell, *words: str, **fields: Any) -> FetchRequest:
    """From the start of these topics; of all four if none is named."""
    places = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1_000_000)
        for index in range(fields.pop("partitions", 1))
    ]
    asked: dict[str, Any] = {"max_wait_ms": 0, "max_bytes": 1_000_000, "min_bytes": 0}
    if cell.version >= FETCH_NEEDS_ID:
        ids = [cell.ids[word] for word in words] or cell.topic_ids()
        asked["topics"] = [FetchTopic(topic_id=each, partitions=places) for each in ids]
    else:
        names = [cell.own(word) for word in words] or cell.all()
        asked["topics"] = [FetchTopic(topic=each, partitions=places) for each in names]
    return FetchRequest(**(asked | fields))


def filled(cell: Cell) -> None:
    for word in EXISTING:
        fill(cell, cell.own(word), batch(word.encode()))


@asked("Fetch", also=(13, 15, 17), prepare=filled)
def fetched(cell: Cell) -> None:
    cell.ask("all", fetch(cell))
    cell.ask("one", fetch(cell, "allowed"))
    follower = ReplicaState(replica_id=FOLLOWER)
    cell.ask("as a follower", fetch(cell, replica_state=follower), trim=without_leader)


def without_leader(answer: Any) -> None:
    """Who leads is no secret to a follower, and no right."""
    for topic in answer.responses:
        for each in topic.partitions:
            each.current_leader = None


@asked("Fetch", since=7, also=(13,), prepare=filled)
def fetched_in_a_session(cell: Cell) -> None:
    """Of so many partitions that we keep one, too; but for the first they do not exist."""

    def first(answer: Any) -> None:
        for topic in answer.responses:
            topic.partitions = [each for each in topic.partitions if each.partition_index == 0]
        answer.responses = [each for each in answer.responses if each.partitions]

    begun = cell.ask("begun", fetch(cell, session_epoch=0, partitions=6), trim=first)
    session = {"session_id": begun.session_id, "session_epoch": 1, "topics": []}
    cell.ask("again", fetch(cell, **session), trim=first)


def list_offsets(cell: Cell, replica_id: int = -1) -> ListOffsetsRequest:
    places = [ListOffsetsPartition(partition_index=0, timestamp=LATEST)]
    topics = [ListOffsetsTopic(name=each, partitions=places) for each in cell.all()]
    return ListOffsetsRequest(replica_id=replica_id, topics=topics, timeout_ms=5000)


@asked("ListOffsets")
def listed(cell: Cell) -> None:
    cell.ask("all", list_offsets(cell))
    cell.ask("as a follower", list_offsets(cell, FOLLOWER))


def epochs(names: Sequence[str], replica_id: int) -> OffsetForLeaderEpochRequest:
    places = [OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)]
    topics = [OffsetForLeaderTopic(topic=each, partitions=places) for each in names]
    return OffsetForLeaderEpochRequest(replica_id=replica_id, topics=topics)


@asked("OffsetForLeaderEpoch", also=(3,))
def ends_of_epochs(cell: Cell) -> None:
    cell.ask("all", epochs(cell.all(), -1))
    cell.ask("as a follower", epochs(cell.all(), FOLLOWER))


@asked("DeleteRecords", prepare=filled)
def deleted_records(cell: Cell) -> None:
    places = [DeleteRecordsPartition(partition_index=0, offset=0)]
    topics = [DeleteRecordsTopic(name=each, partitions=places) for each in cell.all()]
    cell.ask("all", DeleteRecordsRequest(topics=topics, timeout_ms=5000))
