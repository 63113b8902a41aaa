"""Producers as partitions know them, and transactions that an administrator ends."""

from typing import Any

from smq.wire.generated.describe_producers import DescribeProducersRequest, TopicRequest
from smq.wire.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from smq.wire.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from smq.wire.generated.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.oracle.batches import TIME_MS, TRANSACTIONAL, batch, changed
from tests.oracle.dialogues import dialogue
from tests.oracle.dialogues.transactions import Who, begin, ending, open_, settled
from tests.oracle.talk import Talk

PRODUCE = 9  # Versions of what is only needed beforehand.
END, V2 = 4, 5
COMMITTED = 1
UNKNOWN = 987_654  # A producer that has written nothing.


def write(talk: Talk, who: Who, topic: str, sequence: int = 0, partition: int = 0) -> None:
    """Append a batch of two records to the producer's transaction, which has the partition."""
    data = batch(b"a", b"b", producer=(who.id, who.epoch, sequence))
    data = changed(data, attributes=TRANSACTIONAL)
    row = PartitionProduceData(index=partition, records=data)
    topics = [TopicProduceData(name=topic, partition_data=[row])]
    request = ProduceRequest(transactional_id=who.name, acks=-1, timeout_ms=5000, topic_data=topics)
    answer = talk.quietly(request, PRODUCE)
    assert answer.responses[0].partition_responses[0].error_code == 0, answer


def describing(*topics: tuple[str, list[int]]) -> DescribeProducersRequest:
    asked = [TopicRequest(name=name, partition_indexes=indexes) for name, indexes in topics]
    return DescribeProducersRequest(topics=asked)


def in_order(answer: Any) -> None:
    answer.topics = sorted(answer.topics, key=lambda each: each.name)
    for topic in answer.topics:
        topic.partitions = sorted(topic.partitions, key=lambda each: each.partition_index)
        for each in topic.partitions:
            each.active_producers = sorted(each.active_producers, key=lambda one: one.producer_id)


def marking(who: Who, *places: tuple[str, list[int]], **fields: Any) -> WritableTxnMarker:
    topics = [
        WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in places
    ]
    marker: dict[str, Any] = {
        "producer_id": who.id,
        "producer_epoch": who.epoch,
        "transaction_result": False,
        "topics": topics,
    }
    return WritableTxnMarker(**(marker | fields))


def markers_in_order(answer: WriteTxnMarkersResponse) -> None:
    answer.markers = sorted(answer.markers, key=lambda each: each.producer_id)
    for marker in answer.markers:
        marker.topics = sorted(marker.topics, key=lambda each: each.name)
        for topic in marker.topics:
            topic.partitions = sorted(topic.partitions, key=lambda each: each.partition_index)


@dialogue("DescribeProducers")
def known(talk: Talk) -> None:
    topic, other = talk.make_topic(partitions=2), talk.make_topic("other")

    def ask(step: str, *topics: tuple[str, list[int]]) -> None:
        talk.ask(step, describing(*topics), trim=in_order)

    ask("nothing")
    ask("nobody has written", (topic, [0, 1]))
    ask("no partitions", (topic, []))
    ask("no such topic or partition", (talk.own("unknown"), [0]), (topic, [7, -1]))
    ask("a bad name", ("a b", [0]), ("", [0]))
    me, they = begin(talk), begin(talk, "they")
    open_(talk, me, topic, 0, 1)
    write(talk, me, topic)
    write(talk, me, topic, sequence=2)
    ask("one is open", (topic, [0, 1]))
    open_(talk, they, topic, 0)
    write(talk, they, topic)
    ask("two are open", (topic, [0]), (other, [0]))
    ask("a partition twice", (topic, [0, 0]), (topic, [0]))
    talk.quietly(ending(me), END)
    settled(talk, me)
    talk.quietly(ending(they, committed=False), V2)
    settled(talk, they)
    ask("one has committed, one has aborted", (topic, [0, 1]))


@dialogue("WriteTxnMarkers")
def markers(talk: Talk) -> None:
    """Each marker of transactions that the coordinator knows, or has never known."""
    topic = talk.make_topic(partitions=2)

    def ask(step: str, *asked: WritableTxnMarker) -> None:
        talk.ask(step, WriteTxnMarkersRequest(markers=list(asked)), trim=markers_in_order)

    def stable(step: str) -> None:
        place = ListOffsetsPartition(partition_index=0, timestamp=-1)
        topics = [ListOffsetsTopic(name=topic, partitions=[place])]
        request = ListOffsetsRequest(replica_id=-1, isolation_level=COMMITTED, topics=topics)
        answer = talk.quietly(request, 7)
        talk.note(f"{step}: stable", answer.topics[0].partitions[0].offset)

    def described(step: str) -> None:
        talk.ask(step, describing((topic, [0])), version=0, trim=in_order)

    ask("none")
    me, they = begin(talk), begin(talk, "they")
    ask("of nowhere", marking(me))
    ask("no such topic or partition", marking(me, (talk.own("unknown"), [0]), (topic, [7])))
    open_(talk, me, topic, 0)
    write(talk, me, topic)
    open_(talk, they, topic, 0, 1)
    write(talk, they, topic)
    stable("open")
    ask("of no epoch", marking(me._replace(epoch=-1), (topic, [0])))
    stable("of no epoch")
    if talk.version >= 2:
        strict = {"transaction_version": 2}
        ask("the same epoch where each grows", marking(me, (topic, [0]), **strict))
        stable("the same epoch where each grows")
    ask("an abort", marking(me, (topic, [0])))
    stable("an abort")
    described("after the abort")
    both = marking(they, (topic, [0, 1])), marking(me, (topic, [1]))
    ask("another's abort, and one where nothing was written", *both)
    stable("both are ended")
    third = begin(talk, "third")
    open_(talk, third, topic, 0)
    write(talk, third, topic)
    later = third._replace(epoch=third.epoch + 1)
    ask("a commit of a later epoch", marking(later, (topic, [0]), transaction_result=True))
    stable("a commit of a later epoch")
    described("after the commit of a later epoch")
    ask("the epoch before", marking(third, (topic, [0])))
    ask("of a producer that wrote nothing", marking(Who("", UNKNOWN, 0), (topic, [0])))
    ask("a later coordinator", marking(later, (topic, [0]), coordinator_epoch=9))
    ask("an earlier coordinator", marking(later, (topic, [0]), coordinator_epoch=3))
    nobody = Who("", -1, -1)
    ask("of no producer", marking(nobody, (topic, [0])))


@dialogue("ListOffsets", since=7)
def newest_below_the_open(talk: Talk) -> None:
    """The largest timestamp, for readers of what is committed, over an open transaction."""
    topic, who = talk.make_topic(), begin(talk)

    def ask(step: str) -> None:
        for timestamp, level in ((-3, 0), (-3, COMMITTED), (TIME_MS + 9, COMMITTED)):
            place = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
            topics = [ListOffsetsTopic(name=topic, partitions=[place])]
            request = ListOffsetsRequest(replica_id=-1, isolation_level=level, topics=topics)
            talk.ask(f"{step}, {timestamp}, level {level}", request)

    row = PartitionProduceData(index=0, records=batch(b"a", b"b"))
    topics = [TopicProduceData(name=topic, partition_data=[row])]
    request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=5000, topic_data=topics)
    talk.quietly(request, PRODUCE)
    ask("none open")
    open_(talk, who, topic)
    data = batch(b"c", b"d", producer=(who.id, who.epoch, 0), first_ms=TIME_MS + 5)
    row = PartitionProduceData(index=0, records=changed(data, attributes=TRANSACTIONAL))
    topics = [TopicProduceData(name=topic, partition_data=[row])]
    request = ProduceRequest(transactional_id=who.name, acks=-1, timeout_ms=5000, topic_data=topics)
    talk.quietly(request, PRODUCE)
    ask("one open")
    talk.quietly(ending(who), END)
    settled(talk, who)
