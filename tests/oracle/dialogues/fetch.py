"""Fetch: what is returned from where, how much of it, and what is refused how."""

from collections.abc import Sequence
from typing import Any

from smq.wire.codec import ZERO_UUID
from smq.wire.generated.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from smq.wire.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.oracle.batches import TIME_MS, batch, changed
from tests.oracle.dialogues import dialogue
from tests.oracle.dialogues.produce import UNKNOWN_ID
from tests.oracle.talk import Talk, encode

NEEDS_ID = 13
INT32_MAX = 2**31 - 1


def fetch(talk: Talk, topic: str, *partitions: FetchPartition, **fields: Any) -> FetchRequest:
    """What a consumer asks; any field of the request may be given."""
    asked: dict[str, Any] = {"max_wait_ms": 0, "max_bytes": INT32_MAX, "min_bytes": 1}
    asked |= {"topics": [named(talk, topic, partitions)]} | fields
    return FetchRequest(**asked)


def at(offset: int, partition: int = 0, **fields: Any) -> FetchPartition:
    asked = {"partition_max_bytes": 1_048_576} | fields
    return FetchPartition(partition=partition, fetch_offset=offset, **asked)


def named(talk: Talk, topic: str, partitions: Sequence[FetchPartition]) -> FetchTopic:
    if talk.version < NEEDS_ID:
        return FetchTopic(topic=topic, partitions=partitions)
    known = talk.topic_id(topic)
    return FetchTopic(topic_id=UNKNOWN_ID if known == ZERO_UUID else known, partitions=partitions)


def fill(talk: Talk, topic: str, *batches: bytes, partition: int = 0) -> None:
    for records in batches:
        data = [PartitionProduceData(index=partition, records=records)]
        request = ProduceRequest(
            acks=-1,
            timeout_ms=5000,
            topic_data=[TopicProduceData(name=topic, partition_data=data)],
        )
        answer = talk.quietly(request, 9)
        assert answer.responses[0].partition_responses[0].error_code == 0


@dialogue("Fetch", also=(5, 7, 9, 10, 11, 13, 16))
def records(talk: Talk) -> None:
    topic = talk.make_topic()
    talk.ask("from an empty partition", fetch(talk, topic, at(0)))
    headers = ((b"h", b"1"), (b"h", None), (b"", b""))
    fill(talk, topic, batch(b"a", b"b", None), batch(b"", key=None, headers=headers))
    talk.ask("from the start", fetch(talk, topic, at(0)))
    talk.ask("from within the first batch", fetch(talk, topic, at(1)))
    talk.ask("from the second batch", fetch(talk, topic, at(3)))
    talk.ask("from the end", fetch(talk, topic, at(4)))
    talk.ask("beyond the end", fetch(talk, topic, at(5)))
    talk.ask("far beyond the end", fetch(talk, topic, at(2**62)))
    talk.ask("from -1", fetch(talk, topic, at(-1)))
    talk.ask("from -2", fetch(talk, topic, at(-2)))
    talk.ask("read committed", fetch(talk, topic, at(0), isolation_level=1))
    talk.ask("read committed from the end", fetch(talk, topic, at(4), isolation_level=1))
    talk.ask("isolation level 2", fetch(talk, topic, at(0), isolation_level=2))


@dialogue("Fetch", also=(10,))
def compressed(talk: Talk) -> None:
    topic = talk.make_topic()
    fill(talk, topic, *(batch(b"a" * 50, b"b", compression=codec) for codec in (1, 2, 3, 4)))
    for offset in (0, 3, 6, 7):
        talk.ask(f"from {offset}", fetch(talk, topic, at(offset)))


@dialogue("Fetch")
def as_it_was_sent(talk: Talk) -> None:
    """What of a batch the broker writes anew."""
    topic = talk.make_topic()
    fill(
        talk,
        topic,
        changed(batch(), leader_epoch=77),
        changed(batch(b"a", b"b"), max_timestamp=TIME_MS + 500),
        changed(batch(), attributes=0x8),
        changed(batch(), attributes=0x40),
        changed(batch(), attributes=0x80),
        changed(batch(), base_sequence=3, producer_epoch=0),
        batch(first_ms=-1),
    )
    talk.ask("all of them", fetch(talk, topic, at(0)))
    own_time = talk.make_topic("own-time", message_timestamp_type="LogAppendTime")
    fill(talk, own_time, batch(b"a", b"b"), batch(b"c", compression=1))
    talk.ask("with the broker's time", fetch(talk, own_time, at(0)))


@dialogue("Fetch")
def sizes(talk: Talk) -> None:
    topic = talk.make_topic(partitions=3)
    for partition in range(3):
        fill(talk, topic, batch(b"x" * 1000), batch(b"y" * 1000), partition=partition)
    everywhere = [at(0, partition) for partition in range(3)]
    for name, size in (("0", 0), ("1", 1), ("of one batch", 1100), ("of one and a half", 1500)):
        one = at(0, partition_max_bytes=size)
        talk.ask(f"partition bytes {name}", fetch(talk, topic, one))
        talk.ask(f"bytes {name}", fetch(talk, topic, *everywhere, max_bytes=size))
    negative = at(0, partition_max_bytes=-1)
    talk.ask("partition bytes -1", fetch(talk, topic, negative))
    talk.ask("bytes -1", fetch(talk, topic, at(0), max_bytes=-1))
    talk.ask("bytes of three batches", fetch(talk, topic, *everywhere, max_bytes=3500))
    small = [at(0, partition, partition_max_bytes=1) for partition in range(3)]
    talk.ask("three partitions of a byte", fetch(talk, topic, *small))
    talk.ask("an empty one first", fetch(talk, topic, at(2, 0), at(0, 1), at(0, 2), max_bytes=1))
    talk.ask("in another order", fetch(talk, topic, at(0, 2), at(0, 0), at(0, 1), max_bytes=1200))


def without_ends(answer: FetchResponse) -> None:
    """Kafka looks at the high watermark before or after it has moved, as it happens."""
    for topic in answer.responses:
        for partition in topic.partitions:
            partition.high_watermark = partition.last_stable_offset = 0


@dialogue("Fetch")
def waiting(talk: Talk) -> None:
    topic = talk.make_topic(partitions=2)
    wait = {"max_wait_ms": 200}
    talk.ask("until the time is over", fetch(talk, topic, at(0), **wait))
    fill(talk, topic, batch(b"x"))
    long = {"max_wait_ms": 5000}
    talk.ask("for what is there", fetch(talk, topic, at(0), **long))
    talk.ask("for more than is there", fetch(talk, topic, at(0), min_bytes=5000, **wait))
    talk.ask("for no bytes", fetch(talk, topic, at(1), min_bytes=0, **long))
    talk.ask("for -1 bytes", fetch(talk, topic, at(1), min_bytes=-1, **long))
    talk.ask("with an error beside", fetch(talk, topic, at(0, 1), at(9, 0), **long))
    talk.ask("for -1 milliseconds", fetch(talk, topic, at(1), max_wait_ms=-1))
    talk.ask(
        "for more bytes than may be sent",
        fetch(talk, topic, at(0), max_bytes=10, min_bytes=100, **wait),
    )
    reader = talk.voice()
    reader.begin(fetch(talk, topic, at(1), max_wait_ms=5000))
    fill(talk, topic, batch(b"y"))
    reader.note("until something comes", without_ends)
    reader.begin(fetch(talk, topic, at(0, 1), at(2, 0), max_wait_ms=5000))
    fill(talk, topic, batch(b"z"), partition=1)
    reader.note("until something comes to one of two", without_ends)


@dialogue("Fetch")
def unknown_places(talk: Talk) -> None:
    topic = talk.make_topic(partitions=2)
    fill(talk, topic, batch())
    talk.ask("partition 9", fetch(talk, topic, at(0, 9)))
    talk.ask("partition -1", fetch(talk, topic, at(0, -1)))
    talk.ask("an unknown topic", fetch(talk, talk.own("unknown"), at(0)))
    topics = [named(talk, talk.own("unknown"), [at(0)]), named(talk, topic, [at(0), at(0, 9)])]
    talk.ask("known and unknown", fetch(talk, topic, topics=topics))
    topics.reverse()
    talk.ask("the other way round", fetch(talk, topic, topics=topics))


@dialogue("Fetch")
def shapes(talk: Talk) -> None:
    topic = talk.make_topic(partitions=2)
    fill(talk, topic, batch())
    talk.ask("no topics", fetch(talk, topic, topics=[]))
    talk.ask("no topics, and time", fetch(talk, topic, topics=[], max_wait_ms=100))
    talk.ask("no partitions", fetch(talk, topic))
    talk.ask("a partition twice", fetch(talk, topic, at(0), at(1)))
    twice = [named(talk, topic, [at(0)]), named(talk, topic, [at(0, 1)])]
    talk.ask("a topic twice", fetch(talk, topic, topics=twice))


@dialogue("Fetch", since=9)
def epochs(talk: Talk) -> None:
    topic = talk.make_topic()
    fill(talk, topic, batch())
    for epoch in (0, 1, 1000, -1, -2):
        here = at(0, current_leader_epoch=epoch)
        talk.ask(f"leader epoch {epoch}", fetch(talk, topic, here))


@dialogue("Fetch", since=12)
def diverging_epochs(talk: Talk) -> None:
    topic = talk.make_topic()
    fill(talk, topic, batch(), batch())
    for epoch in (0, 1, 1000):
        talk.ask(f"last epoch {epoch}", fetch(talk, topic, at(1, last_fetched_epoch=epoch)))


@dialogue("Fetch", since=7)
def sessions(talk: Talk) -> None:
    topic = talk.make_topic(partitions=2)
    fill(talk, topic, batch())
    talk.ask("none", fetch(talk, topic, at(0), session_epoch=-1))
    talk.ask("a new one", fetch(talk, topic, at(0), at(0, 1), session_epoch=0))
    talk.ask("an unknown one", fetch(talk, topic, at(0), session_id=12345, session_epoch=1))
    talk.ask("one that begins", fetch(talk, topic, at(0), session_id=12345, session_epoch=0))
    talk.ask("one that ends", fetch(talk, topic, at(0), session_id=12345, session_epoch=-1))
    talk.ask("none, with an epoch", fetch(talk, topic, at(0), session_id=0, session_epoch=5))
    gone = [
        ForgottenTopic(topic=topic, partitions=[0])
        if talk.version < NEEDS_ID
        else ForgottenTopic(topic_id=talk.topic_id(topic), partitions=[0])
    ]
    talk.ask("forgotten, without one", fetch(talk, topic, at(0), forgotten_topics_data=gone))


@dialogue("Fetch", until=14)
def as_a_follower(talk: Talk) -> None:
    topic = talk.make_topic()
    fill(talk, topic, batch())
    talk.ask("replica -2", fetch(talk, topic, at(0), replica_state=ReplicaState(replica_id=-2)))
    talk.ask("replica 5", fetch(talk, topic, at(0), replica_state=ReplicaState(replica_id=5)))


@dialogue("Fetch")
def bytes_that_are_no_request(talk: Talk) -> None:
    topic = talk.make_topic()
    whole = encode(fetch(talk, topic, at(0)), talk.version)
    how: dict[str, Any] = {"answer": ("Fetch", talk.version)}
    talk.ask_raw("whole", whole, **how)
    talk.ask_raw("cut by a byte", whole[:-1], **how)
    talk.ask_raw("a byte more", whole + b"\0", **how)
    talk.ask_raw("only a header", whole[:16], **how)


@dialogue("Fetch", until=4)
def versions_that_are_no_more(talk: Talk) -> None:
    topic = talk.make_topic()
    whole = encode(fetch(talk, topic, at(0)), talk.version)
    for version in (0, 3, 19):
        frame = whole[:2] + version.to_bytes(2, signed=True) + whole[4:]
        talk.ask_raw(f"version {version}", frame, answer=("Fetch", 4))


MANY = 20  # Fewer have no session with SMQ.


def forgotten(talk: Talk, topic: str, *partitions: int) -> list[ForgottenTopic]:
    if talk.version < NEEDS_ID:
        return [ForgottenTopic(topic=topic, partitions=partitions)]
    return [ForgottenTopic(topic_id=talk.topic_id(topic), partitions=partitions)]


@dialogue("Fetch", since=7, also=(12, 13))
def incremental(talk: Talk) -> None:
    """What an answer within a session leaves out, and how it ends."""
    topic = talk.make_topic(partitions=MANY)
    fill(talk, topic, batch(b"a"), partition=3)
    everything = [at(0, index) for index in range(MANY)]
    begun = talk.ask("it begins", fetch(talk, topic, *everything, session_epoch=0))
    epochs = iter(range(1, 100))

    def ask(step: str, *partitions: FetchPartition, **fields: Any) -> Any:
        topics: dict[str, Any] = {} if partitions else {"topics": []}
        session = {"session_id": begun.session_id, "session_epoch": next(epochs)}
        return talk.ask(step, fetch(talk, topic, *partitions, **(topics | session | fields)))

    ask("records that are not taken come again")
    ask("the position has moved", at(1, 3))
    ask("nothing is new")
    fill(talk, topic, batch(b"b"), partition=7)
    fill(talk, topic, batch(b"c"), partition=5)
    ask("two have records")
    ask("one of them moves", at(1, 5))
    ask("the other one is forgotten", forgotten_topics_data=forgotten(talk, topic, 7, 99))
    ask("it comes back", at(1, 7))
    ask("it has been told")
    ask("a position beyond the end", at(9, 7))
    ask("the error stays")
    ask("the error goes", at(1, 7))
    ask("nothing is new again")
    ask("no such partition", at(0, MANY))
    ask("no such partition, still")
    ask("it is forgotten", forgotten_topics_data=forgotten(talk, topic, MANY))
    ask("a fresh start of one", at(0, 3), at(1, 3))
    ask("read committed", at(0, 5), at(1, 3), isolation_level=1)
    wrong = {"session_id": begun.session_id, "session_epoch": 77, "topics": []}
    talk.ask("an epoch that is not the next", fetch(talk, topic, **wrong))
    ask("it goes on")
    ask("all are forgotten", forgotten_topics_data=forgotten(talk, topic, *range(MANY)))
    ask("it is over")


@dialogue("Fetch", since=7, also=(13,))
def sessions_that_end(talk: Talk) -> None:
    topic = talk.make_topic(partitions=MANY)
    everything = [at(0, index) for index in range(MANY)]
    first = talk.ask("one", fetch(talk, topic, *everything, session_epoch=0)).session_id
    again = fetch(talk, topic, *everything, session_id=first, session_epoch=0)
    second = talk.ask("another instead", again).session_id
    of = {"topics": [], "session_epoch": 1}
    talk.ask("the first is over", fetch(talk, topic, session_id=first, **of))
    talk.ask("the second is not", fetch(talk, topic, session_id=second, **of))
    last = fetch(talk, topic, *everything, session_id=second, session_epoch=-1)
    talk.ask("the last of the second", last)
    talk.ask(
        "the second is over", fetch(talk, topic, session_id=second, **of | {"session_epoch": 2})
    )
    talk.ask("of nothing", fetch(talk, topic, topics=[], session_epoch=0))
