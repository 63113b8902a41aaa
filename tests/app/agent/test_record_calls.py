"""SubscribeRecord of a real broker: typed records, and partitions that instances share."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import grpc
import pytest

from smq.agent.proto import mq_agent_pb2 as pb
from smq.agent.proto.mq_broker_pb2 import ConfigureTopicRequest, GetTopicSubscribersRequest
from smq.agent.proto.mq_schema_pb2 import (
    OffsetType,
    Partition,
    PartitionOffset,
    RecordValue,
    Topic,
    Value,
)
from smq.app.agent.record_calls import RELEASE_S
from smq.app.agent.refusals import CallRefused
from smq.client.kafka.group_admin import committed_offsets
from smq.client.locate import cluster_at
from tests.app.agent.doors import Doors, refused
from tests.app.agent.lone_stream import OurShare, Part, Places, TheirEnd, starts, stream_of, until
from tests.app.agent.message_streams import FIRST_MS
from tests.app.agent.streams import OpenStream, kafka_name, soon, topic_of
from tests.app.agent.test_subscribe_calls import SEEKS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

T = OffsetType
EXPLICIT = (("smq-ack", "explicit"),)


def order(number: int) -> RecordValue:
    return RecordValue(fields={"id": Value(int64_value=number)})


def fill(doors: Doors, topic: Topic, partition: int, numbers: range) -> None:
    with doors.smq.connect() as client, client.producer() as producer:
        for number in numbers:
            value = order(number).SerializeToString()
            producer.send(kafka_name(topic), value, key=b"k", partition=partition)


def init(topic: Topic, group: str = "", kind: int = 0, **rest: Any) -> pb.SubscribeRecordRequest:
    said = pb.SubscribeRecordRequest.InitSubscribeRecordRequest(
        topic=topic,
        consumer_group=group or topic.name,
        offset_type=kind,  # type: ignore[arg-type]
        **({"consumer_group_instance_id": "i"} | rest),
    )
    return pb.SubscribeRecordRequest(init=said)


def subscribed(doors: Doors, *requests: Any, **options: Any) -> OpenStream:
    return OpenStream(doors.agent.SubscribeRecord, *requests, **options)


def numbers(answers: list[Any]) -> list[int]:
    return [each.value.fields["id"].int64_value for each in answers if each.HasField("value")]


def committed(doors: Doors, topic: Topic) -> dict[int, int]:
    with cluster_at(doors.smq.data_dir) as cluster:
        return {
            name.partition: offset
            for name, offset in committed_offsets(cluster, topic.name).items()
            if name.topic == kafka_name(topic)
        }


def test_an_instance_has_all_partitions_and_written_records_are_committed(doors: Doors) -> None:
    topic, _ = topic_of(doors, 3)
    for partition in range(3):
        fill(doors, topic, partition, range(10 * partition, 10 * partition + 2))
    stream = subscribed(doors, init(topic))
    found = stream.read_many(6)
    assert sorted(numbers(found)) == [0, 1, 10, 11, 20, 21]
    assert {(each.partition, each.offset) for each in found} == {
        (partition, offset) for partition in range(3) for offset in range(2)
    }
    assert {each.key for each in found} == {b"k"}
    assert {each.delivery_count for each in found} == {1}
    [end] = stream.finish()
    assert end.is_end_of_stream
    assert committed(doors, topic) == {0: 2, 1: 2, 2: 2}
    fill(doors, topic, 1, range(99, 100))
    again = subscribed(doors, init(topic))
    assert numbers([again.read()]) == [99]
    again.finish()


def test_a_record_of_kafkas_that_is_no_record_value_comes_as_its_bytes(doors: Doors) -> None:
    topic, _ = topic_of(doors)
    with doors.smq.connect() as client, client.producer() as producer:
        producer.send(kafka_name(topic), b"plain text", headers=[("h", b"1")])
    stream = subscribed(doors, init(topic))
    found = stream.read()
    assert found.value.fields["_value"].bytes_value == b"plain text"
    assert [(each.key, each.value) for each in found.headers] == [("h", b"1")]
    stream.finish()


def test_a_record_of_very_many_fields_and_headers_comes_as_it_was_written(doors: Doors) -> None:
    topic, _ = topic_of(doors)
    names = [f"{each:05}" for each in range(30_000)]
    value = RecordValue(fields=dict.fromkeys(names, Value())).SerializeToString()
    headers = [("grün", b"x"), ("\udcff", None)] * 20_000
    with doors.smq.connect() as client, client.producer() as producer:
        producer.send(kafka_name(topic), value, headers=headers).result(60)
    stream = subscribed(doors, init(topic, filter="\"00007\" is null and header['grün'] = 'x'"))
    found = stream.read()
    assert found.value == RecordValue.FromString(value)
    assert [each.key for each in found.headers] == ["grün", "\ufffd"] * 20_000
    assert [each.HasField("value") for each in found.headers[:2]] == [True, False]
    stream.finish()


def test_two_instances_share_and_one_takes_over_the_others_partitions(doors: Doors) -> None:
    topic, _ = topic_of(doors, 2)
    for partition in range(2):
        fill(doors, topic, partition, range(10 * partition, 10 * partition + 2))
    one = subscribed(doors, init(topic, consumer_group_instance_id="one"))
    assert sorted(numbers(one.read_many(4))) == [0, 1, 10, 11]
    two = subscribed(doors, init(topic, consumer_group_instance_id="two"))
    soon(lambda: owners(doors, topic) == {"one", "two"})
    for partition in range(2):
        fill(doors, topic, partition, range(10 * partition + 5, 10 * partition + 6))
    assert sorted(numbers([one.read(), two.read()])) == [5, 15]
    one.finish()
    soon(lambda: owners(doors, topic) == {"two"})
    for partition in range(2):
        fill(doors, topic, partition, range(10 * partition + 6, 10 * partition + 7))
    assert sorted(numbers(two.read_many(2))) == [6, 16]
    two.finish()
    assert committed(doors, topic) == {0: 4, 1: 4}


def owners(doors: Doors, topic: Topic) -> set[str]:
    asked = GetTopicSubscribersRequest(topic=topic)
    found = doors.broker.GetTopicSubscribers(asked).subscribers
    return {each.consumer_id for each in found} if len(found) == 2 else set()


def test_an_instance_has_at_most_the_partitions_that_it_asks_for(doors: Doors) -> None:
    topic, _ = topic_of(doors, 3)
    for partition in range(3):
        fill(doors, topic, partition, range(partition, partition + 1))
    stream = subscribed(doors, init(topic, max_subscribed_partitions=2))
    assert len({each.partition for each in stream.read_many(2)}) == 2
    [end] = stream.finish()
    assert end.is_end_of_stream


def test_a_session_begins_where_it_says_for_each_partition(doors: Doors) -> None:
    topic, ranges = topic_of(doors, 2)
    for partition in range(2):
        fill(doors, topic, partition, range(10 * partition, 10 * partition + 5))
    entry = PartitionOffset(partition=ranges[1], start_offset=3)
    stream = subscribed(doors, init(topic, kind=T.EXACT_OFFSET, partition_offsets=[entry]))
    assert sorted(numbers(stream.read_many(7))) == [0, 1, 2, 3, 4, 13, 14]
    stream.finish()


def test_new_partitions_are_read_by_open_sessions(doors: Doors) -> None:
    topic, _ = topic_of(doors, 1)
    stream = subscribed(doors, init(topic))
    doors.broker.ConfigureTopic(ConfigureTopicRequest(topic=topic, partition_count=2))
    fill(doors, topic, 1, range(7, 8))
    found = stream.read()
    assert (found.partition, numbers([found])) == (1, [7])
    stream.finish()


def test_explicit_acknowledgements_are_by_time_and_key_or_by_offset(doors: Doors) -> None:
    topic, _ = topic_of(doors)
    fill(doors, topic, 0, range(2))
    stream = subscribed(doors, init(topic), metadata=EXPLICIT)
    zero, one = stream.read_many(2)
    stream.send(pb.SubscribeRecordRequest(offset=zero.offset, ack_partition=0, nack=True))
    again = stream.read()
    assert (again.offset, again.delivery_count) == (0, 2)
    stream.send(pb.SubscribeRecordRequest(offset=0, ack_partition=0))
    stream.send(pb.SubscribeRecordRequest(ack_sequence=one.ts_ns, ack_key=one.key))
    stream.send(pb.SubscribeRecordRequest(offset=5, ack_partition=77))
    stream.finish()
    expected = {0: 2} if one.ts_ns != zero.ts_ns else committed(doors, topic)
    assert committed(doors, topic) == expected


def test_a_seek_goes_on_elsewhere_in_one_partition(doors: Doors) -> None:
    topic, _ = topic_of(doors)
    fill(doors, topic, 0, range(4))
    stream = subscribed(doors, init(topic))
    stream.read_many(4)
    seek = pb.SubscribeRecordRequest.SeekMessage(offset=2, offset_type=T.EXACT_OFFSET)
    stream.send(pb.SubscribeRecordRequest(seek=seek))
    assert numbers(stream.read_many(3)) == [2, 3]
    seek = pb.SubscribeRecordRequest.SeekMessage(partition=9)
    stream.send(pb.SubscribeRecordRequest(seek=seek))
    assert "does not have partition 9" in stream.read().error
    stream.finish()


def test_a_seek_has_each_offset_type_and_is_by_time_too(doors: Doors) -> None:
    topic, _ = topic_of(doors)
    with doors.smq.connect() as client, client.producer() as producer:
        for number in range(5):
            value = order(number).SerializeToString()
            producer.send(kafka_name(topic), value, timestamp_ms=FIRST_MS + number)
    stream = subscribed(doors, init(topic))
    stream.read_many(5)
    for kind, number, first in SEEKS:
        seek = pb.SubscribeRecordRequest.SeekMessage(offset=number, offset_type=kind)
        stream.send(pb.SubscribeRecordRequest(seek=seek))
        assert numbers(stream.read_many(1 + 5 - first)) == [*range(first, 5)]
    stream.finish()


def test_a_subscriber_gets_committed_records_and_no_aborted_ones(doors: Doors) -> None:
    topic, _ = topic_of(doors)
    fill(doors, topic, 0, range(1))
    name, stream = kafka_name(topic), subscribed(doors, init(topic))
    assert numbers([stream.read()]) == [0]
    with doors.smq.connect() as client, client.producer(transactional_id=name) as producer:
        for number in (1, 2):
            with suppress(ZeroDivisionError), producer.transaction():
                producer.send(name, order(number).SerializeToString())
                producer.flush()
                if number == 1:
                    raise ZeroDivisionError
    assert numbers([stream.read()]) == [2]
    [end] = stream.finish()
    assert end.is_end_of_stream


@pytest.mark.parametrize(("asked", "count"), [(0, 128), (-1, 128), (3, 3)])
def test_as_many_records_are_unacknowledged_as_the_window_has(
    doors: Doors, asked: int, count: int
) -> None:
    topic, _ = topic_of(doors)
    fill(doors, topic, 0, range(140))
    stream = subscribed(doors, init(topic, sliding_window_size=asked), metadata=EXPLICIT)
    assert numbers(stream.read_many(count)) == [*range(count)]
    last = count - 1
    stream.send(pb.SubscribeRecordRequest(offset=last, ack_partition=0, nack=True))
    assert stream.read().offset == last  # And no further one before it.
    stream.send(pb.SubscribeRecordRequest(offset=0, ack_partition=0))
    assert numbers([stream.read()]) == [count]
    stream.finish()


def test_a_session_by_time_resumes_partitions_without_an_entry(doors: Doors) -> None:
    topic, ranges = topic_of(doors, 2)
    for partition in range(2):
        fill(doors, topic, partition, range(10 * partition, 10 * partition + 3))
    stream = subscribed(doors, init(topic))
    stream.read_many(6)
    stream.finish()
    entry = PartitionOffset(partition=ranges[1], start_ts_ns=1)
    stream = subscribed(doors, init(topic, kind=T.EXACT_TS_NS, partition_offsets=[entry]))
    fill(doors, topic, 0, range(3, 4))
    assert sorted(numbers(stream.read_many(4))) == [3, 10, 11, 12]
    stream.finish()


def test_bad_beginnings_end_the_stream_with_the_reason(doors: Doors) -> None:
    topic, _ = topic_of(doors)
    bad = PartitionOffset(partition=Partition(ring_size=7))
    for first, words in (
        (pb.SubscribeRecordRequest(ack_sequence=1), "first message of a stream is its init"),
        (init(Topic(namespace="shop", name="nowhere")), "there is no topic"),
        (init(topic, filter="x"), "filter: at character 2"),
        (init(topic, partition_offsets=[bad]), "its ring has 7 slots"),
        (init(topic, kind=3), "no offset type 3"),
    ):
        [answer] = subscribed(doors, first).finish()
        assert words in answer.error


def test_a_deleted_topic_ends_the_stream(doors: Doors) -> None:
    topic, _ = topic_of(doors)
    fill(doors, topic, 0, range(1))
    stream = subscribed(doors, init(topic))
    stream.read()
    with doors.smq.connect() as client:
        client.delete_topic(kafka_name(topic))
    end = stream.read()
    assert (end.is_end_of_stream, end.is_end_of_topic) == (True, True)
    stream.finish()


@contextmanager
def raw_subscriber(doors: Doors, topic: Topic, *metadata: tuple[str, str]) -> Iterator[OpenStream]:
    """A subscriber with a connection of its own, which sends whatever bytes."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(doors.smq.status().agent, options=options) as channel:
        call = channel.stream_stream(
            "/messaging_pb.SeaweedMessagingAgent/SubscribeRecord",
            response_deserializer=pb.SubscribeRecordResponse.FromString,
        )
        yield OpenStream(call, init(topic).SerializeToString(), metadata=metadata, timeout=60)


def subscribers(doors: Doors, topic: Topic) -> int:
    asked = GetTopicSubscribersRequest(topic=topic)
    return len(doors.broker.GetTopicSubscribers(asked).subscribers)


def test_a_subscriber_that_goes_away_leaves_no_partition_behind(doors: Doors) -> None:
    topic, _ = topic_of(doors, 4)
    with doors.smq.connect() as client, client.producer() as producer:
        for number in range(8000):
            producer.send(kafka_name(topic), b"x" * 1000, partition=number % 4)
    for _ in range(3):
        with raw_subscriber(doors, topic) as stream:
            stream.read()
            soon(lambda: subscribers(doors, topic) == 4)
        soon(lambda: subscribers(doors, topic) == 0)


def test_bytes_that_are_no_message_end_the_stream_and_hold_nothing(doors: Doors) -> None:
    topic, _ = topic_of(doors, 4)
    for partition in range(4):
        fill(doors, topic, partition, range(10))
    with raw_subscriber(doors, topic, *EXPLICIT) as stream:
        stream.read()
        stream.send(b"\xff\xff\xff")
        words = "these bytes are no messaging_pb.SubscribeRecordRequest"
        with refused(grpc.StatusCode.INVALID_ARGUMENT, words):
            stream.finish_reading()
    assert subscribers(doors, topic) == 0


def test_many_groups_read_a_partition_while_one_of_them_reads_nothing(doors: Doors) -> None:
    topic, _ = topic_of(doors)
    fill(doors, topic, 0, range(50))
    start = T.RESET_TO_EARLIEST
    silent = subscribed(doors, init(topic, f"{topic.name}-silent", start))
    streams = [subscribed(doors, init(topic, f"{topic.name}-{n}", start)) for n in range(60)]
    for stream in streams:
        assert numbers(stream.read_many(50)) == [*range(50)]
    for stream in (*streams, silent):
        stream.cancel()


def test_all_partitions_that_are_taken_are_asked_for_at_once() -> None:
    """Each asked for all commits of its group: a thousand of them took a minute."""

    async def asked() -> list[list[int]]:
        places = Places()
        stream = stream_of(places, OurShare(1000), TheirEnd())
        await stream._follow(starts())
        await stream._follow(starts())
        return places.asked

    assert asyncio.run(asked()) == [[*range(1000)]]


@pytest.mark.parametrize("turns", range(12))
def test_a_stream_that_is_cancelled_at_any_turn_of_its_end_holds_no_partition(turns: int) -> None:
    """gRPC ends the reading first, and cancels the call some turns of the loop later."""

    async def held() -> set[Part]:
        places, client = Places(), TheirEnd()
        serving = asyncio.create_task(stream_of(places, OurShare(4), client).serve(starts()))
        await until(lambda: len(places.open) == 4)
        client.is_gone.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        serving.cancel()
        with suppress(asyncio.CancelledError, CallRefused):
            await serving
        return places.open

    assert asyncio.run(held()) == set()


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_client_that_goes_away_unread_notes_and_all_holds_no_partition(
    *, is_cancelled: bool
) -> None:
    async def held() -> set[Part]:
        places, client = Places("it begins elsewhere"), TheirEnd()
        serving = asyncio.create_task(stream_of(places, OurShare(4), client).serve(starts()))
        await until(lambda: bool(places.open))
        if is_cancelled:
            serving.cancel()
        client.is_gone.set()
        with suppress(asyncio.CancelledError, CallRefused):
            await serving
        return places.open

    assert asyncio.run(held()) == set()


def test_a_stream_that_is_cancelled_as_it_ends_waits_for_no_client_that_reads_nothing() -> None:
    async def held() -> set[Part]:
        places = Places("it begins elsewhere")
        stream = stream_of(places, OurShare(4), TheirEnd())
        serving = asyncio.create_task(stream.serve(starts()))
        await until(lambda: len(places.open) == 4)
        stream.end()
        for _ in range(5):
            await asyncio.sleep(0)
        serving.cancel()
        with suppress(asyncio.CancelledError):
            async with asyncio.timeout(RELEASE_S / 2):
                await serving
        return places.open

    assert asyncio.run(held()) == set()
