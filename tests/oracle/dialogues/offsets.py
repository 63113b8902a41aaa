"""ListOffsets and OffsetForLeaderEpoch: where a partition begins and ends, now and then."""

from typing import Any

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
from tests.oracle.batches import TIME_MS, batch
from tests.oracle.dialogues import dialogue
from tests.oracle.dialogues.fetch import fill
from tests.oracle.talk import Talk

SPECIAL = {
    -1: "latest",
    -2: "earliest",
    -3: "largest time",
    -4: "earliest local",
    -5: "latest tiered",
    -6: "earliest pending upload",
    -7: "-7",
    -100: "-100",
}


def offsets(topic: str, *times: int, partition: int = 0, **fields: Any) -> ListOffsetsRequest:
    """One partition at these times; fields of a partition may be given."""
    isolation = fields.pop("isolation_level", 0)
    asked = [
        ListOffsetsPartition(partition_index=partition, timestamp=time, **fields) for time in times
    ]
    topics = [ListOffsetsTopic(name=topic, partitions=asked)]
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation, topics=topics, timeout_ms=5000
    )


@dialogue("ListOffsets", also=(2, 4, 5, 7, 8, 9, 10))
def special_times(talk: Talk) -> None:
    topic = talk.make_topic()
    for time, name in SPECIAL.items():
        talk.ask(f"{name}, empty", offsets(topic, time))
    fill(talk, topic, batch(b"a", b"b"), batch(b"c", first_ms=TIME_MS - 50), batch(b"d", b"e"))
    for time, name in SPECIAL.items():
        talk.ask(name, offsets(topic, time))
    talk.ask("latest committed", offsets(topic, -1, isolation_level=1))
    talk.ask("isolation level 2", offsets(topic, -1, isolation_level=2))


@dialogue("ListOffsets")
def by_time(talk: Talk) -> None:
    topic = talk.make_topic()
    fill(
        talk,
        topic,
        batch(b"a", b"b", b"c"),
        batch(b"d", first_ms=TIME_MS + 100),
        batch(b"e", first_ms=TIME_MS - 100),
        batch(b"f", b"g", first_ms=TIME_MS + 50, compression=1),
    )
    for time in (-200, -100, 0, 1, 2, 3, 50, 51, 99, 100, 101):
        talk.ask(f"{time:+} ms", offsets(topic, TIME_MS + time))
    talk.ask("the year 1970", offsets(topic, 0))
    talk.ask("the end of time", offsets(topic, 2**63 - 1))


@dialogue("ListOffsets")
def refused(talk: Talk) -> None:
    topic = talk.make_topic(partitions=2)
    talk.ask("partition 9", offsets(topic, -1, partition=9))
    talk.ask("partition -1", offsets(topic, -1, partition=-1))
    talk.ask("an unknown topic", offsets(talk.own("unknown"), -1))
    talk.ask("an empty name", offsets("", -1))
    talk.ask("a partition twice", offsets(topic, -1, -2))
    talk.ask("no partitions", offsets(topic))
    talk.ask("no topics", ListOffsetsRequest(replica_id=-1))
    follower = offsets(topic, -1)
    follower.replica_id = -2
    talk.ask("as a debugger", follower)
    follower.replica_id = 5
    talk.ask("as a follower", follower)


@dialogue("ListOffsets", since=4)
def epochs(talk: Talk) -> None:
    topic = talk.make_topic()
    for epoch in (0, 1, 1000, -1, -2):
        talk.ask(f"leader epoch {epoch}", offsets(topic, -1, current_leader_epoch=epoch))


@dialogue("OffsetForLeaderEpoch", also=(3,))
def ends_of_epochs(talk: Talk) -> None:
    topic = talk.make_topic(partitions=2)

    def ask(step: str, epoch: int, current: int = -1, partition: int = 0, **other: str) -> None:
        asked = OffsetForLeaderPartition(
            partition=partition, current_leader_epoch=current, leader_epoch=epoch
        )
        topics = [OffsetForLeaderTopic(topic=other.get("topic", topic), partitions=[asked])]
        talk.ask(step, OffsetForLeaderEpochRequest(replica_id=-1, topics=topics))

    ask("of an empty partition", 0)
    fill(talk, topic, batch(b"a", b"b"))
    for epoch in (0, 1, 1000, -1, -2):
        ask(f"epoch {epoch}", epoch)
    ask("with the current epoch", 0, 0)
    ask("with an epoch to come", 0, 7)
    ask("with an epoch that never was", 0, -5)
    ask("partition 9", 0, partition=9)
    ask("an unknown topic", 0, topic=talk.own("unknown"))
    talk.ask("no topics", OffsetForLeaderEpochRequest(replica_id=-1))
