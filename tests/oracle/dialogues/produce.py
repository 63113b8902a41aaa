"""Produce: what is appended where, and what is refused how."""

from typing import Any
from uuid import UUID

from smq.wire.codec import ZERO_UUID
from smq.wire.generated.api_versions import ApiVersionsRequest
from smq.wire.generated.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from smq.wire.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from smq.wire.generated.init_producer_id import InitProducerIdRequest
from smq.wire.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from smq.wire.records import read_batches
from tests.oracle.batches import (
    CONTROL,
    TIME_MS,
    TRANSACTIONAL,
    batch,
    changed,
    message_set,
    with_payload,
)
from tests.oracle.dialogues import dialogue
from tests.oracle.talk import Talk, encode

NEEDS_ID = 13  # From here on topics are named by id.
UNKNOWN_ID = UUID(int=0x1234)
LARGEST_BATCH_BYTES = 1_048_588
YEAR_2263_MS = 9_246_182_400_000


def produce(
    talk: Talk, topic: str, *records: bytes | None, partitions: tuple[int, ...] = (), acks: int = -1
) -> ProduceRequest:
    """A request with these records, for partition 0 or for the partitions given."""
    data = [
        PartitionProduceData(index=index, records=each)
        for index, each in zip(partitions or (0,) * len(records), records, strict=True)
    ]
    return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=[named(talk, topic, data)])


def named(talk: Talk, topic: str, data: list[PartitionProduceData]) -> TopicProduceData:
    if talk.version < NEEDS_ID:
        return TopicProduceData(name=topic, partition_data=data)
    known = talk.topic_id(topic)
    return TopicProduceData(
        topic_id=UNKNOWN_ID if known == ZERO_UUID else known, partition_data=data
    )


def ask(talk: Talk, step: str, request: ProduceRequest, **how: Any) -> None:
    """Kafka answers in the order of a hash table, which we need not copy."""
    talk.ask(step, request, trim=in_order, **how)


def in_order(answer: ProduceResponse) -> None:
    answer.responses = sorted(answer.responses, key=lambda topic: (topic.name, topic.topic_id))
    for topic in answer.responses:
        topic.partition_responses = sorted(topic.partition_responses, key=lambda each: each.index)


@dialogue("Produce", also=(7, 8, 10, 12))
def appends(talk: Talk) -> None:
    topic = talk.make_topic(partitions=2)
    ask(talk, "one record", produce(talk, topic, batch()))
    ask(talk, "three records", produce(talk, topic, batch(b"a", b"b", None)))
    ask(talk, "after them", produce(talk, topic, batch(key=None, headers=((b"h", None),))))
    ask(talk, "two partitions", produce(talk, topic, batch(), batch(b"x"), partitions=(1, 0)))
    ask(talk, "acks of the leader", produce(talk, topic, batch(), acks=1))
    ask(talk, "a base offset of its own", produce(talk, topic, changed(batch(), base_offset=77)))
    ask(talk, "a leader epoch of its own", produce(talk, topic, changed(batch(), leader_epoch=5)))


@dialogue("Produce", also=(7,))
def compressions(talk: Talk) -> None:
    topic = talk.make_topic(partitions=5)
    for name, codec in (("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)):
        ask(talk, name, produce(talk, topic, batch(b"a" * 100, b"b", compression=codec)))
    ask(talk, "codec 5", produce(talk, topic, changed(batch(), attributes=5)))
    ask(talk, "codec 7", produce(talk, topic, changed(batch(), attributes=7)))
    for name, codec in (("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)):
        garbage = with_payload(batch(), b"no such thing", attributes=codec)
        request = produce(talk, topic, garbage, partitions=(codec,))
        ask(talk, f"garbage as {name}", request)


@dialogue("Produce")
def shapes(talk: Talk) -> None:
    """Lists that are empty, null, or say a thing twice."""
    topic, twice = talk.make_topic(partitions=2), talk.make_topic("twice")
    # Kafka never answers this: its handler fails before it could.
    ask(talk, "null records", produce(talk, topic, None), seconds_max=1)
    ask(talk, "empty records", produce(talk, topic, b""))
    ask(talk, "no topics", ProduceRequest(acks=-1, timeout_ms=5000))
    ask(talk, "no partitions", produce(talk, topic))
    ask(talk, "a partition twice", produce(talk, twice, batch(), batch(b"w"), partitions=(0, 0)))
    one = [PartitionProduceData(index=0, records=batch())]
    topics = [named(talk, twice, one), named(talk, twice, one)]
    ask(talk, "a topic twice", ProduceRequest(acks=-1, timeout_ms=5000, topic_data=topics))
    topics = [named(talk, topic, one)]
    ask(talk, "two batches in a partition", produce(talk, topic, batch() + batch(b"w")))
    ask(talk, "timeout 0", ProduceRequest(acks=-1, timeout_ms=0, topic_data=topics))
    ask(talk, "timeout -1", ProduceRequest(acks=-1, timeout_ms=-1, topic_data=topics))
    ask(talk, "and goes on", produce(talk, topic, batch()))


@dialogue("Produce", also=(8,))
def unknown_places(talk: Talk) -> None:
    topic = talk.make_topic(partitions=2)
    ask(talk, "partition 7", produce(talk, topic, batch(), partitions=(7,)))
    ask(talk, "partition -1", produce(talk, topic, batch(), partitions=(-1,)))
    ask(
        talk,
        "a good one between bad ones",
        produce(talk, topic, batch(), batch(), batch(), partitions=(9, 1, 8)),
    )
    ask(talk, "an unknown topic", produce(talk, talk.own("unknown"), batch()))
    one = [PartitionProduceData(index=0, records=batch())]
    both = [named(talk, talk.own("unknown"), one), named(talk, topic, one)]
    ask(
        talk,
        "an unknown topic and a known one",
        ProduceRequest(acks=-1, timeout_ms=5000, topic_data=both),
    )
    both.reverse()
    ask(talk, "the other way round", ProduceRequest(acks=-1, timeout_ms=5000, topic_data=both))


@dialogue("Produce", until=12)
def bad_names(talk: Talk) -> None:
    for name in ("", ".", "..", "a b", "x" * 250, "\u00e9"):
        ask(talk, f"the name {name[:5]!r}", produce(talk, name, batch()))


@dialogue("Produce", also=(8,))
def acks(talk: Talk) -> None:
    topic = talk.make_topic()
    talk.tell(produce(talk, topic, batch(), acks=0))
    ask(talk, "after acks 0", produce(talk, topic, batch()))
    for number in (2, -2, 127):
        ask(talk, f"acks {number}", produce(talk, topic, batch(), acks=number))
    ask(talk, "and goes on", produce(talk, topic, batch()))
    anything = ApiVersionsRequest()
    talk.tell(produce(talk, talk.own("unknown"), batch(), acks=0))
    talk.ask("after acks 0 and an unknown topic", anything, version=0)
    talk.tell(produce(talk, topic, changed(batch(), crc=1), acks=0))
    talk.ask("after acks 0 and a wrong CRC", anything, version=0)
    ask(talk, "in the end", produce(talk, topic, batch()))


@dialogue("Produce", also=(8,))
def bad_batches(talk: Talk) -> None:
    good = batch(b"a", b"b")
    bad = {
        "a wrong CRC": changed(good, crc=1),
        "magic 0": message_set(0),
        "magic 1": message_set(1),
        "magic 3": changed(good, magic=3),
        "magic -1": changed(good, magic=-1),
        "a length beyond the end": changed(good, length=len(good)),
        "a length below the header": changed(good, length=20),
        "a length of 0": changed(good, length=0),
        "a negative length": changed(good, length=-1),
        "cut in the records": good[:-3],
        "cut in the header": good[:40],
        "cut before the magic": good[:10],
        "bytes after it": good + b"\0\0\0",
        "a count too large": changed(good, record_count=3),
        "a count too small": changed(good, record_count=1),
        "a count of 0": with_payload(good, b"", record_count=0),
        "a count of 0 with records": changed(good, record_count=0),
        "a negative count": changed(good, record_count=-1),
        "a last offset delta too large": changed(good, last_offset_delta=5),
        "a last offset delta too small": changed(good, last_offset_delta=0),
        "a negative last offset delta": changed(good, last_offset_delta=-1),
        "both too large": changed(good, last_offset_delta=2, record_count=3),
        "garbage for records": with_payload(good, b"\xff" * 30),
        "no bytes for records": with_payload(good, b""),
        "a control batch": changed(good, attributes=CONTROL),
        "a transactional control batch": changed(good, attributes=CONTROL | TRANSACTIONAL),
        "a transactional batch": changed(good, attributes=TRANSACTIONAL),
        "log append time": changed(good, attributes=8),
        "a delete horizon": changed(good, attributes=0x40),
        "an unknown attribute": changed(good, attributes=0x80),
        "a producer without a sequence": changed(good, producer_id=4000, producer_epoch=0),
        "a sequence without a producer": changed(good, base_sequence=3, producer_epoch=0),
        "a producer with epoch -1": changed(good, producer_id=4000, base_sequence=0),
        "a negative base offset": changed(good, base_offset=-5),
    }
    each_in_its_partition(talk, bad)


@dialogue("Produce", also=(8,))
def bad_records(talk: Talk) -> None:
    """Batches with a good CRC around records that are not."""
    good = batch(b"v", key=None)
    # length, attributes, timestamp delta, offset delta, key length, value length, value, headers
    records = {
        "a record too long": b"\x10\0\0\0\x01\x02v\0",
        "a record too short": b"\x0c\0\0\0\x01\x02v\0",
        "a record of length 0": b"\0",
        "a negative length": b"\x01\0\0\0\x01\x02v\0",
        "a record that is cut": b"\x0e\0\0\0\x01\x02v",
        "a key beyond the end": b"\x0e\0\0\0\x60\x02v\0",
        "a value beyond the end": b"\x0e\0\0\0\x01\x60v\0",
        "a key of length -2": b"\x0e\0\0\0\x03\x02v\0",
        "headers beyond the end": b"\x0e\0\0\0\x01\x02v\x08",
        "a negative count of headers": b"\x0e\0\0\0\x01\x02v\x01",
        "a header without a key": b"\x12\0\0\0\x01\x02v\x02\x01\0",
        "an offset delta of 5": b"\x0e\0\0\x0a\x01\x02v\0",
        "a negative offset delta": b"\x0e\0\0\x01\x01\x02v\0",
        "an attribute": b"\x0e\x01\0\0\x01\x02v\0",
        "a varint that does not end": b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        "bytes after the records": b"\x0e\0\0\0\x01\x02v\0more",
    }
    bad = {name: with_payload(good, payload) for name, payload in records.items()}
    each_in_its_partition(talk, bad)


def each_in_its_partition(talk: Talk, batches: dict[str, bytes]) -> None:
    """So that one being taken does not change the answer to the next."""
    topic = talk.make_topic(partitions=len(batches) + 1)
    for partition, (name, records) in enumerate(batches.items()):
        ask(talk, name, produce(talk, topic, records, partitions=(partition,)))
    ask(talk, "and goes on", produce(talk, topic, batch(), partitions=(len(batches),)))


@dialogue("Produce", also=(8,))
def sizes(talk: Talk) -> None:
    topic = talk.make_topic()
    room = LARGEST_BATCH_BYTES - len(batch(b"")) - 4  # Two lengths take two bytes more each.
    ask(talk, "the largest", produce(talk, topic, batch(b"\0" * room)))
    ask(talk, "a byte more", produce(talk, topic, batch(b"\0" * (room + 1))))
    small = talk.make_topic("small", max_message_bytes="200")
    ask(talk, "too large for its topic", produce(talk, small, batch(b"\0" * 300)))
    zeros = batch(b"\0" * 3000, compression=1)
    ask(talk, "small when compressed", produce(talk, small, zeros))


@dialogue("Produce", also=(8,))
def times(talk: Talk) -> None:
    topic = talk.make_topic()
    for name, first_ms in (
        ("-1", -1),
        ("0", 0),
        ("-2", -2),
        ("in the year 2263", YEAR_2263_MS),
        ("the largest", 2**63 - 1),
    ):
        ask(talk, f"time {name}", produce(talk, topic, batch(first_ms=first_ms)))
    wrong = changed(batch(b"a", b"b"), max_timestamp=TIME_MS + 500)
    ask(talk, "a largest timestamp that is wrong", produce(talk, topic, wrong))
    ask(talk, "none is the largest", produce(talk, topic, changed(batch(), max_timestamp=-1)))
    any_time = talk.make_topic("any", message_timestamp_after_max_ms=str(2**63 - 1))
    ask(talk, "2263 where it may be", produce(talk, any_time, batch(first_ms=YEAR_2263_MS)))
    old = talk.make_topic("old", message_timestamp_before_max_ms="1000")
    ask(talk, "too old", produce(talk, old, batch()))
    ask(talk, "one of three too old", produce(talk, old, batch(b"a", b"b", b"c")))
    ask(talk, "without a time where old is refused", produce(talk, old, batch(first_ms=-1)))


@dialogue("Produce", also=(8,))
def log_append_time(talk: Talk) -> None:
    topic = talk.make_topic(message_timestamp_type="LogAppendTime")
    ask(talk, "the broker's time", produce(talk, topic, batch()))
    ask(talk, "compressed", produce(talk, topic, batch(b"a", b"b", compression=1)))
    ask(talk, "of 2263", produce(talk, topic, batch(first_ms=YEAR_2263_MS)))


@dialogue("Produce", also=(8,))
def compacted(talk: Talk) -> None:
    topic = talk.own()
    policy = [CreatableTopicConfig(name="cleanup.policy", value="compact")]
    made = CreatableTopic(name=topic, num_partitions=1, replication_factor=1, configs=policy)
    answer = talk.ask("the topic", CreateTopicsRequest(topics=[made], timeout_ms=10_000), version=4)
    if answer.topics[0].error_code:
        return
    talk.settle(topic)
    ask(talk, "with a key", produce(talk, topic, batch()))
    ask(talk, "a tombstone", produce(talk, topic, batch(None)))
    ask(talk, "without a key", produce(talk, topic, batch(b"a", b"b", key=None)))
    ask(talk, "compressed", produce(talk, topic, batch(b"a", key=None, compression=1)))
    ask(talk, "and goes on", produce(talk, topic, batch()))


@dialogue("Produce", also=(8,))
def idempotence(talk: Talk) -> None:
    topic = talk.make_topic(partitions=2)
    init = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    pid = talk.quietly(init, 4).producer_id

    def say(step: str, epoch: int, sequence: int, count: int = 1, partition: int = 0) -> None:
        records = batch(*[b"v"] * count, producer=(pid, epoch, sequence))
        ask(talk, step, produce(talk, topic, records, partitions=(partition,)))

    say("the first", 0, 0)
    say("the next, of three", 0, 1, 3)
    say("the first again", 0, 0)
    say("the three again", 0, 1, 3)
    say("two of the three", 0, 1, 2)
    say("a gap", 0, 5)
    say("the right one", 0, 4)
    for sequence in range(5, 9):
        say(f"sequence {sequence}", 0, sequence)
    say("the fifth last again", 0, 4)
    say("the sixth last again", 0, 1, 3)
    say("the other partition starts at 7", 0, 7, partition=1)
    say("and goes on", 0, 8, partition=1)
    say("epoch 1, not from 0", 1, 9)
    say("epoch 1, from 0", 1, 0)
    say("epoch 0 again", 0, 9)
    say("epoch 3 from 0", 3, 0)
    say("epoch 3 goes on", 3, 1)
    ask(talk, "without a producer id", produce(talk, topic, batch()))
    say("and it goes on", 3, 2)


@dialogue("Produce")
def sequences_wrap(talk: Talk) -> None:
    topic = talk.make_topic()
    init = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    pid = talk.quietly(init, 4).producer_id
    last = 2**31 - 1
    for step, sequence, count in (
        ("near the end", last - 1, 1),
        ("over the end, three", last, 3),
        ("after it", 2, 1),
        ("over the end again", last, 3),
        ("a gap", 5, 1),
    ):
        records = batch(*[b"v"] * count, producer=(pid, 0, sequence))
        ask(talk, step, produce(talk, topic, records))


@dialogue("Produce")
def a_producer_id_that_nobody_gave(talk: Talk) -> None:
    topic = talk.make_topic()
    for step, sequence in (("from 5", 5), ("goes on", 6), ("again", 6), ("a gap", 9)):
        ask(talk, step, produce(talk, topic, batch(producer=(1 << 40, 3, sequence))))


@dialogue("Produce", also=(11,))
def transactional(talk: Talk) -> None:
    """Without a transaction."""
    topic = talk.make_topic()
    request = produce(talk, topic, batch())
    request.transactional_id = "t"
    ask(talk, "an id, but no transactional batch", request)
    in_one = changed(batch(producer=(5000, 0, 0)), attributes=TRANSACTIONAL)
    ask(talk, "a batch, but no id", produce(talk, topic, in_one))


@dialogue("Produce")
def bytes_that_are_no_request(talk: Talk) -> None:
    topic = talk.make_topic()
    whole = encode(produce(talk, topic, batch()), talk.version)
    how: dict[str, Any] = {"answer": ("Produce", talk.version)}
    talk.ask_raw("whole", whole, **how)
    talk.ask_raw("cut by a byte", whole[:-1], **how)
    talk.ask_raw("cut in the batch", whole[:-40], **how)
    talk.ask_raw("a byte more", whole + b"\0", **how)
    talk.ask_raw("only a header", whole[:16], **how)
    ask(talk, "and goes on", produce(talk, topic, batch()))


@dialogue("Produce", until=3)
def versions_that_are_no_more(talk: Talk) -> None:
    topic = talk.make_topic()
    whole = encode(produce(talk, topic, batch()), talk.version)
    for version in (0, 1, 2, 14, 99, -1):
        frame = whole[:2] + version.to_bytes(2, signed=True) + whole[4:]
        talk.ask_raw(f"version {version}", frame, answer=("Produce", 3))


@dialogue("Produce", since=7, also=(13,))
def recompressed(talk: Talk) -> None:
    """A topic's compression.type: what producers send is compressed anew."""
    for kind in ("uncompressed", "gzip", "snappy", "lz4", "zstd"):
        name = talk.make_topic(kind, compression_type=kind)
        for codec in (0, 1, 2, 3, 4):
            sent = batch(b"a", b"b" * 40, None, compression=codec)
            ask(talk, f"codec {codec} for {kind}", produce(talk, name, sent))
        garbage = with_payload(batch(b"v"), b"\xff" * 10)
        ask(talk, f"garbage for {kind}", produce(talk, name, garbage))
        read = FetchRequest(
            max_wait_ms=0,
            max_bytes=2**31 - 1,
            min_bytes=1,
            topics=[
                FetchTopic(
                    topic=name,
                    partitions=[
                        FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=2**20)
                    ],
                )
            ],
        )
        fetched = talk.quietly(read, 12).responses[0].partitions[0].records
        talk.note(f"stored as {kind}", [each.codec for each in read_batches(bytes(fetched))])
