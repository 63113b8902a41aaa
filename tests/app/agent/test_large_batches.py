"""Batches that inflate far: read in pieces, or passed over and said, and never in anybody's way."""

import asyncio
from typing import Any

import pytest

from smq.agent.layouts import RingLayout
from smq.agent.proto import mq_agent_pb2 as agent_pb, mq_broker_pb2 as pb
from smq.agent.proto.mq_schema_pb2 import Partition, PartitionOffset, Topic
from smq.agent.topic_names import TopicName
from smq.app.agent.broker import BrokerSide
from smq.app.agent.large_batches import PIECE_BYTES, RECORD_BYTES_MAX, SAID_MAX, LargeBatches
from smq.app.agent.readers import PartitionReaders
from smq.app.agent.topics import KnownTopic
from smq.app.process.status import attach_timings
from smq.client.errors import BatchTooLarge, UnreadableBatch
from smq.client.kafka.group_admin import committed_offsets
from smq.client.kafka.topic_changes import alter_topic
from smq.client.locate import cluster_at
from smq.client.names import TopicPartition
from tests.app.agent.doors import Doors
from tests.app.agent.raw_batches import append, batch_of, record_of
from tests.app.agent.streams import OpenStream, kafka_name, soon, topic_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

MiB = 1024 * 1024
HEADERS = 4_300_000  # Their columns take more than the SDK's 128 MiB.
TOO_MANY = batch_of(record_of(b"?", HEADERS))
MALFORMED = batch_of(b"no records")
ZEROS = bytes(3_000_000)
BATCHES = [
    batch_of(record_of(b"a")),
    TOO_MANY,
    MALFORMED,
    batch_of(record_of(ZEROS, headers=2)),
    batch_of(record_of(b"b")),
]
VALUES = {0: b"a", 3: ZEROS, 4: b"b"}


@pytest.fixture
def awkward(doors: Doors) -> tuple[Topic, Partition, list[str]]:
    """A topic with all these, and what is said of those that nobody can read."""
    topic, [partition] = topic_of(doors)
    name = kafka_name(topic)
    with cluster_at(doors.smq.data_dir) as cluster:
        append(cluster, name, *BATCHES)
    said = f"{name}-0 has a batch at offsets {{0}} to {{0}} that {{1}}; it is passed over"
    far = "inflates to more than 134217728 bytes, or its columns do"
    return topic, partition, [said.format(1, far), said.format(2, "cannot be read")]


def test_a_subscriber_of_a_partition_gets_past_batches_that_cannot_be_read(
    doors: Doors, awkward: tuple[Topic, Partition, list[str]]
) -> None:
    topic, partition, said = awkward
    init = pb.SubscribeMessageRequest.InitMessage(
        topic=topic,
        partition_offset=PartitionOffset(partition=partition),
        consumer_group=topic.name,
        consumer_id="i",
    )
    stream = OpenStream(doors.broker.SubscribeMessage, pb.SubscribeMessageRequest(init=init))
    answers = stream.read_many(5)
    data = {each.data.offset: each.data.value for each in answers if each.HasField("data")}
    assert data == VALUES
    assert [each.ctrl.error for each in answers if each.HasField("ctrl")] == said
    assert not any(each.ctrl.is_end_of_stream for each in answers)
    soon(lambda: committed(doors, topic) == 5)
    stream.finish()


def test_a_subscriber_of_a_topic_gets_past_batches_that_cannot_be_read(
    doors: Doors, awkward: tuple[Topic, Partition, list[str]]
) -> None:
    topic, _, said = awkward
    init = agent_pb.SubscribeRecordRequest.InitSubscribeRecordRequest(
        topic=topic, consumer_group=topic.name, consumer_group_instance_id="i"
    )
    stream = OpenStream(doors.agent.SubscribeRecord, agent_pb.SubscribeRecordRequest(init=init))
    answers = stream.read_many(5)
    data = {
        each.offset: each.value.fields["_value"].bytes_value
        for each in answers
        if each.HasField("value")
    }
    assert data == VALUES
    assert [each.error for each in answers if not each.HasField("value")] == said
    soon(lambda: committed(doors, topic) == 5)
    stream.finish()


def test_a_fetch_goes_on_behind_a_batch_that_cannot_be_read(
    doors: Doors, awkward: tuple[Topic, Partition, list[str]]
) -> None:
    topic, partition, said = awkward
    timings = attach_timings(doors.smq.status())
    assert timings is not None
    passed, before = timings.rpcs().passed_batches, int(timings.rpcs().passed_batches[0])
    found, start = list[tuple[Any, ...]](), 0
    for _ in range(2):
        start = 0
        while start < 5:
            request = pb.FetchMessageRequest(
                topic=topic, partition=partition, start_offset=start, max_wait_ms=10_000
            )
            answer = doors.broker.FetchMessage(request)
            offsets = [each.offset for each in answer.messages]
            assert [each.value for each in answer.messages] == [VALUES[each] for each in offsets]
            found.append((start, offsets, answer.error, answer.error_code, answer.next_offset))
            start = answer.next_offset
    assert found[: len(found) // 2] == found[len(found) // 2 :]
    assert found[: len(found) // 2] in (
        [
            (0, [0], "", 0, 1),
            (1, [], said[0], 10, 2),
            (2, [], said[1], 42, 3),
            *rest,
        ]
        for rest in ([(3, [3, 4], "", 0, 5)], [(3, [3], "", 0, 4), (4, [4], "", 0, 5)])
    )
    assert passed[0] >= before + 4


def test_unflushed_messages_name_the_batches_that_are_left_out(
    doors: Doors, awkward: tuple[Topic, Partition, list[str]]
) -> None:
    topic, partition, said = awkward
    request = pb.GetUnflushedMessagesRequest(topic=topic, partition=partition)
    *answers, end = doors.broker.GetUnflushedMessages(request)
    assert end.end_of_stream
    assert {
        each.message.offset: each.message.data for each in answers if each.HasField("message")
    } == VALUES
    assert [each.error for each in answers if each.error] == said


def test_a_large_batch_comes_whole_and_in_order_in_pieces(doors: Doors) -> None:
    count = 100_000
    topic, _ = topic_of(doors)
    name = kafka_name(topic)
    batch = batch_of(b"".join(record_of(b"%d" % at, at=at) for at in range(count)), count)
    with cluster_at(doors.smq.data_dir) as cluster:
        append(cluster, name, batch, batch_of(record_of(b"last")))
    with doors.smq.connect() as client:
        topic_id = client.topic_ids()[name]
    known = KnownTopic(TopicName("shop", topic.name), topic_id, {}, (RingLayout(1, 1),))

    async def talk() -> None:
        side, pieces = BrokerSide(doors.smq.data_dir), 0
        reader = await large_readers(side).opened(known, 0, 10)
        found = list[tuple[int, bytes]]()
        while len(found) < count - 10 + 1:
            assert await reader.wait(5)
            pieces += 1
            assert len(reader._ahead) * 600 <= PIECE_BYTES + 600
            while reader.peek() is not None:
                record = await reader.take()
                found.append((record.offset, record.value))
        assert pieces > count * 600 // PIECE_BYTES
        assert found == [*((at, b"%d" % at) for at in range(10, count)), (count, b"last")]
        assert reader.position == count + 1
        for offset in (count - 1, 5, 50_000):
            await reader.seek(offset)
            assert await reader.wait(5)
            assert (await reader.take()).value == b"%d" % offset
        await reader.close()
        side.close()

    asyncio.run(talk())


def test_a_record_that_inflates_beyond_what_a_stream_may_have_is_passed_over(doors: Doors) -> None:
    """One of 110 MiB was larger than any answer, and ended each stream that came to it."""
    topic, [partition] = topic_of(doors)
    name, most = kafka_name(topic), bytes(RECORD_BYTES_MAX)
    some = record_of(b"a"), record_of(bytes(110 * MiB), at=1), record_of(most, at=2)
    with cluster_at(doors.smq.data_dir) as cluster:
        append(cluster, name, batch_of(b"".join(some), 3), batch_of(record_of(most + b"x")))

    def fetch(start: int) -> tuple[list[int], int, int]:
        request = pb.FetchMessageRequest(
            topic=topic, partition=partition, start_offset=start, max_bytes=64 * MiB
        )
        answer = doors.broker.FetchMessage(request)
        found = [each.offset for each in answer.messages]
        return found, answer.error_code, answer.next_offset

    assert [fetch(start) for start in range(4)] == [
        ([0], 0, 1), ([], 10, 2), ([2], 0, 3), ([], 10, 4),
    ]  # fmt: skip
    with cluster_at(doors.smq.data_dir) as cluster:
        alter_topic(cluster, name, {"max.message.bytes": str(RECORD_BYTES_MAX + 1)}, [])
    soon(lambda: fetch(3) == ([3], 0, 4))


def test_an_idle_reader_keeps_nothing_of_a_large_batch(doors: Doors) -> None:
    topic, _ = topic_of(doors)
    with cluster_at(doors.smq.data_dir) as cluster:
        some = (record_of(ZEROS, at=at) for at in range(3))
        append(cluster, kafka_name(topic), batch_of(b"".join(some), 3))
    with doors.smq.connect() as client:
        topic_id = client.topic_ids()[kafka_name(topic)]
    known = KnownTopic(TopicName("shop", topic.name), topic_id, {}, (RingLayout(1, 1),))

    async def talk() -> None:
        side = BrokerSide(doors.smq.data_dir)
        readers = large_readers(side)
        for start in (0, 1, 1, 0, 2):
            reader = await readers.at(known, 0, start)
            assert await reader.wait(5)
            record = await reader.read()
            assert (record.offset, record.value) == (start, ZEROS)
            readers.give_back(known, 0, reader)
            assert reader.peek() is None
        await reader.close()
        side.close()

    asyncio.run(talk())


def test_a_batch_is_logged_once_and_counted_each_time() -> None:
    said, counted = list[str](), list[int]()
    nothing: Any = None
    large = LargeBatches(nothing, lambda _: 0, said.append, lambda: counted.append(1))
    topic = KnownTopic(TopicName("kafka", "t"), nothing, {}, (RingLayout(1, 1),))
    first = BatchTooLarge(("t", 0), (5, 9), 100)
    for _ in range(3):
        refused = large.pass_over(topic, first)
        assert refused.code == 10
        assert refused.sentence.startswith("t-0 has a batch at offsets 5 to 8 that inflates")
    assert (len(said), len(counted)) == (1, 3)
    assert said[0].startswith("agent: t-0 has a batch at offsets 5 to 8")
    for number in range(SAID_MAX):
        large.pass_over(topic, UnreadableBatch(("t", 1), (number, number + 1)))
    large.pass_over(topic, first)
    assert len(said) == SAID_MAX + 2


def large_readers(side: BrokerSide) -> PartitionReaders:
    return PartitionReaders(side, LargeBatches(side, lambda _: 0, print, lambda: None))


def committed(doors: Doors, topic: Topic) -> int | None:
    with cluster_at(doors.smq.data_dir) as cluster:
        found = committed_offsets(cluster, topic.name)
    return found.get(TopicPartition(kafka_name(topic), 0))
